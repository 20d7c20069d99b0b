"""What is to come: the next fires, what they need, and what would refuse them. It only reads."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from runner.files import publish as show
from runner.recovery import recipe
from runner.schedule.ledger import Ledger
from runner.schedule.reconcile import Row, rows
from runner.schedule.windows import back_by, begins, blacked_out, ends, paused, span_in_words
from runner.settings import Settings
from runner.words import clock, iso

HORIZON = timedelta(days=8)
"""So far ahead others are told what is needed."""

_MOST = 200
_FACT = "ahead:"

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Fire:
    """One coming fire of a job; `row` is None for one that a person asked for."""

    job: str
    at: datetime
    row: Row | None

    def in_words(self, settings: Settings) -> str:
        """What the schedule says, and what a change of the clocks does to it."""
        if self.row is None:
            return "asked for with run --at"
        moved = self.row.cron.moved(self.at)
        said = self.row.cron.in_words()
        window = list(_window(self, settings))
        return "; ".join([said, *([moved] if moved else []), *window])


def fires(settings: Settings, ledger: Ledger | None, begin: datetime) -> Iterator[Fire]:
    """Every coming fire, soonest first; what is due together in the order of runner.toml."""
    import heapq  # noqa: PLC0415 - only where the future is asked for

    def of(place: int, row: Row) -> Iterator[tuple[datetime, int, Fire]]:
        for at in row.cron.from_(begin):
            yield at, place, Fire(row.job, at, row)

    streams = [of(place, row) for place, row in enumerate(rows(settings))]
    asked = [
        (at, -1, Fire(planned.job, at, None))
        for planned in (ledger.planned() if ledger else ())
        if (at := datetime.fromtimestamp(planned.at, begin.tzinfo)) > begin
    ]
    for _, _, fire in heapq.merge(*streams, asked, key=lambda one: one[:2]):
        yield fire


def _window(fire: Fire, settings: Settings) -> Iterator[str]:
    if fire.row is None:
        return
    schedule, zone = fire.row.schedule, settings.zone
    begin = begins(schedule, fire.at, zone)
    if begin != fire.at:
        yield f"not before {clock(iso(begin, zone))}"
    if schedule.try_until:
        yield f"tried until {clock(iso(ends(schedule, fire.at, zone), zone))}"
    if (back := back_by(schedule, fire.at, zone)) is not None:
        yield f"production back by {clock(iso(back, zone))}"


def would(fire: Fire, ledger: Ledger | None, settings: Settings, now: datetime) -> str:
    """What would become of it by what is known now: `run`, or why not."""
    if fire.row is not None and (span := blacked_out(fire.row.schedule, fire.at, settings.zone)):
        return f"skip: blackout {span_in_words(span)}"
    if ledger is None:
        return "unknown"
    return _decided(fire, ledger, settings, now) or _by_the_last_look(fire.job, ledger)


def _decided(fire: Fire, ledger: Ledger, settings: Settings, now: datetime) -> str | None:
    """What a person has decided about it; None where nobody has."""
    pauses = [
        pause
        for pause in ledger.pauses(now.timestamp())
        if pause.until is None or pause.until > fire.at.timestamp()
    ]
    if said := paused(pauses, fire.job, settings.zone):
        return f"skip: {said}"
    if drained := ledger.journal.drained():
        return f"refuse: drained since {clock(drained['since'])}: {drained['reason']}"
    return None


def _by_the_last_look(job: str, ledger: Ledger) -> str:
    known: Json = ledger.fact(f"{_FACT}{job}") or {}
    refused = known.get("refused")
    if refused is None:
        return "unknown: not looked at yet"
    if refused:
        first = next(iter(refused.items()))
        return f"refuse: {first[0]} — {first[1]}" + (
            f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
        )
    return "run"


def slots(
    settings: Settings,
    ledger: Ledger | None,
    begin: datetime,
    *,
    job: str | None = None,
    count: int = 10,
) -> list[Json]:
    """The next fires as `next --json` lists them."""
    found: list[Json] = []
    for fire in fires(settings, ledger, begin):
        if job is not None and fire.job != job:
            continue
        if len(found) >= count:
            break
        found.append(
            {
                "job": fire.job,
                "at": iso(fire.at, settings.zone),
                "in_words": fire.in_words(settings),
                "would": would(fire, ledger, settings, begin),
            }
        )
    return found


def notes(settings: Settings, begin: datetime) -> list[str]:
    """What a person should know about the schedule: the changes of the clocks that touch it."""
    found = []
    for row in rows(settings):
        if (touched := row.cron.touched(begin)) is not None:
            at, how = touched
            found.append(
                f"{row.job} ({row.schedule.cron}) on {at.astimezone(settings.zone):%Y-%m-%d}: {how}"
            )
    return found


def reservations(
    settings: Settings, ledger: Ledger | None, begin: datetime, state_dir: Path
) -> Json:
    """What coming runs need, and what production needs to come back: for other users' eyes."""
    facts: dict[str, Any] = ledger.facts(_FACT) if ledger else {}
    runs: list[Json] = []
    for fire in fires(settings, ledger, begin):
        if fire.at > begin + HORIZON or len(runs) >= _MOST:
            break
        needed = (facts.get(fire.job) or {}).get("needs") or {}
        until = fire.at + timedelta(seconds=needed.get("takes_s") or 0)
        runs.append(
            {
                "job": fire.job,
                "at": iso(fire.at, settings.zone),
                "until": iso(until, settings.zone),
                "needs": {key: value for key, value in needed.items() if key != "files"},
            }
        )
    return {
        "at": iso(begin, settings.zone),
        "contact": settings.contact,
        "runs": runs,
        "jobs": {
            job: {"files": sorted(((facts.get(job) or {}).get("needs") or {}).get("files") or ())}
            for job in dict.fromkeys(run["job"] for run in runs)
        },
        "production": _production(settings, state_dir),
        "pinned": sorted(_pinned(ledger)) if ledger else [],
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


def _pinned(ledger: Ledger) -> Sequence[str]:
    return [str(row["path"]) for row in ledger.pins()]


def publish(settings: Settings, ledger: Ledger, state_dir: Path, begin: datetime) -> None:
    """Write `public/next.json` and `public/reservations.json`. Raises OSError, JournalError."""
    coming = slots(settings, ledger, begin, count=50)
    show(state_dir, "next", {"at": iso(begin, settings.zone), "slots": coming})
    show(state_dir, "reservations", reservations(settings, ledger, begin, state_dir))
