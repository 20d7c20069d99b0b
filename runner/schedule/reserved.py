"""What coming runs need, and production: published for other users of the box. It only reads."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

from runner.files import publish as show
from runner.recovery import recipe
from runner.schedule import coming
from runner.schedule.coming import Fire
from runner.schedule.ledger import Ledger
from runner.schedule.reconcile import rows
from runner.settings import Settings
from runner.words import iso

HORIZON = timedelta(days=8)
"""So far ahead others are told what is needed; of what comes later the first time."""

_MOST_OF_A_ROW = 20
_NEXT = 50
_FACT = "ahead:"

Json = dict[str, Any]


def publish(
    settings: Settings,
    ledger: Ledger,
    state_dir: Path,
    begin: datetime,
    *,
    config: Path | None = None,
) -> None:
    """Write `public/next.json` and `public/reservations.json`. Raises OSError, JournalError."""
    slots = coming.slots(settings, ledger, begin, count=_NEXT)
    show(state_dir, "next", {"at": iso(begin, settings.zone), "slots": slots})
    show(state_dir, "reservations", reservations(settings, ledger, begin, state_dir, config=config))


def reservations(
    settings: Settings,
    ledger: Ledger,
    begin: datetime,
    state_dir: Path,
    *,
    config: Path | None = None,
) -> Json:
    """What coming runs need, and what production needs to come back: for other users' eyes.

    `runs` are the next times of each job, `jobs` what each of them needs and `until` when it is
    needed again and again; a job that fires each minute takes no other's place.
    """
    facts: dict[str, Any] = ledger.facts(_FACT)
    runs: list[Json] = []
    last: dict[str, datetime] = {}
    for fire, ends in sorted(_soon(settings, ledger, begin), key=lambda one: one[0].at):
        needed = (facts.get(fire.job) or {}).get("needs") or {}
        takes = timedelta(seconds=needed.get("takes_s") or 0)
        runs.append(
            {
                "job": fire.job,
                "at": iso(fire.at, settings.zone),
                "until": iso(fire.at + takes, settings.zone),
                "needs": {key: value for key, value in needed.items() if key not in _LISTS},
            }
        )
        last[fire.job] = max(last.get(fire.job, begin), ends + takes)
    return {
        "at": iso(begin, settings.zone),
        "contact": settings.contact,
        "runs": runs,
        "jobs": {
            job: _needed(facts.get(job), until, settings) for job, until in sorted(last.items())
        },
        "production": _production(settings, state_dir),
        "pinned": sorted({str(row["path"]) for row in ledger.pins()}),
        "pins": [
            {name: row[name] for name in ("path", "pin", "inode", "size", "mtime_ns", "how")}
            for row in ledger.pins()
        ],
        "own": _own(settings, state_dir, config, last),
    }


_LISTS = ("files", "pinnable")


def _soon(settings: Settings, ledger: Ledger, begin: datetime) -> Iterator[tuple[Fire, datetime]]:
    """The next fires of each row and what was asked for; with each, until when it goes on so."""
    end = begin + HORIZON
    for row in rows(settings):
        times = list(islice(row.cron.from_(begin), _MOST_OF_A_ROW))
        more = len(times) == _MOST_OF_A_ROW and times[-1] <= end
        for place, at in enumerate(times):
            if at <= end or place == 0:
                yield Fire(row.job, at, row), end if more else at
    for planned in ledger.planned():
        at = datetime.fromtimestamp(planned.at, begin.tzinfo)
        if at > begin:
            yield Fire(planned.job, at, None), at


def _needed(fact: Json | None, until: datetime, settings: Settings) -> Json:
    needs = (fact or {}).get("needs")
    known, needs = needs is not None, needs or {}
    return {
        "known": known,
        "files": sorted(needs.get("files") or ()),
        "ports": needs.get("ports") or [],
        "units": needs.get("units") or [],
        "until": iso(until, settings.zone),
    }


def _production(settings: Settings, state_dir: Path) -> list[Json]:
    known = recipe.last_good(state_dir)
    return [
        {
            "name": one.name,
            "port": one.port,
            "unit": getattr(one.supervisor, "unit", None),
            "files": [item["path"] for item in known[one.name].inputs] if one.name in known else [],
        }
        for one in settings.production
    ]


def _own(
    settings: Settings, state_dir: Path, config: Path | None, jobs: dict[str, datetime]
) -> list[str]:
    """What the runner itself needs to do its work: its state, and the files it is told by."""
    files = [Path(settings.jobs_dir) / f"{job}.toml" for job in sorted(jobs)]
    return list(map(str, [state_dir, *([config.absolute()] if config else []), *files]))
