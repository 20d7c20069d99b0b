"""What is to come: the next fires, and what would refuse them. It only reads."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

from runner.schedule.ledger import Ledger
from runner.schedule.reconcile import Row, rows
from runner.schedule.windows import back_by, begins, blacked_out, ends, paused, span_in_words
from runner.settings import Settings
from runner.words import clock, iso

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


def fires(
    settings: Settings, ledger: Ledger | None, begin: datetime, *, job: str | None = None
) -> Iterator[Fire]:
    """Every coming fire, or those of one job, soonest first; what is due together in the order of
    runner.toml.
    """
    import heapq  # noqa: PLC0415 - only where the future is asked for

    def of(place: int, row: Row) -> Iterator[tuple[datetime, int, Fire]]:
        for at in row.cron.from_(begin):
            yield at, place, Fire(row.job, at, row)

    wanted = [row for row in rows(settings) if job in {None, row.job}]
    streams = [of(place, row) for place, row in enumerate(wanted)]
    asked = [
        (at, -1, Fire(planned.job, at, None))
        for planned in (ledger.planned() if ledger else ())
        if (at := datetime.fromtimestamp(planned.at, begin.tzinfo)) > begin
        and job in {None, planned.job}
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
    return [
        {
            "job": fire.job,
            "at": iso(fire.at, settings.zone),
            "in_words": fire.in_words(settings),
            "would": would(fire, ledger, settings, begin),
        }
        for fire in islice(fires(settings, ledger, begin, job=job), count)
    ]


def notes(settings: Settings, begin: datetime, *, job: str | None = None) -> list[str]:
    """What a person should know about the schedule: the changes of the clocks that touch it."""
    found = []
    for row in (row for row in rows(settings) if job in {None, row.job}):
        if (touched := row.cron.touched(begin)) is not None:
            at, how = touched
            found.append(
                f"{row.job} ({row.schedule.cron}) on {at.astimezone(settings.zone):%Y-%m-%d}: {how}"
            )
    return found
