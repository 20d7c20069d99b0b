"""Whether a slot may begin now, must wait, or is over. Pure: clocks and journal are handed in."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

from runner.schedule.cron import existing
from runner.schedule.ledger import EVERY_JOB, Pause
from runner.schedule.slots import State
from runner.settings import Schedule
from runner.words import duration

ON_TIME_S = 1.0
"""What begins later than this after its time is said to be late."""

GRACE_S = 60.0
"""So late a slot may be without asking what `missed` says: nobody calls that missed."""

_SOON = timedelta(hours=12)


@dataclass(frozen=True, slots=True)
class Go:
    """It may begin; `back_by` is when production must serve again, in seconds since 1970."""

    back_by: float | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """Not yet: ask again at `until`, in seconds since 1970."""

    until: float
    why: str


@dataclass(frozen=True, slots=True)
class Over:
    """It does not begin any more, or not at all."""

    state: State
    why: str


def next_clock(text: str, after: datetime, zone: ZoneInfo) -> datetime:
    """The first time after a moment that the clock shows HH:MM. Where it never does that day, the
    first minute after the jump; where it does twice, the first.
    """
    hour, minute = (int(part) for part in text.split(":"))
    day = after.astimezone(zone).date()
    while True:
        at = existing(datetime.combine(day, time(hour, minute)), zone)
        if at > after:
            return at
        day += timedelta(days=1)


def ends(schedule: Schedule, slot_at: datetime, zone: ZoneInfo) -> datetime:
    """Until when a run of this slot may begin: `try_until`, else `late_by` after its time."""
    begin = begins(schedule, slot_at, zone)
    if schedule.try_until is not None:
        return next_clock(schedule.try_until, begin, zone)
    return begin + timedelta(seconds=float(schedule.late_by))


def begins(schedule: Schedule, slot_at: datetime, zone: ZoneInfo) -> datetime:
    """When a run of this slot may begin: its time, or `not_before` where that comes soon after."""
    if schedule.not_before is None:
        return slot_at
    earliest = next_clock(schedule.not_before, slot_at - timedelta(minutes=1), zone)
    return max(slot_at, earliest) if earliest - slot_at < _SOON else slot_at


def blacked_out(schedule: Schedule, at: datetime, zone: ZoneInfo) -> str | None:
    """The blackout that this moment falls into; None where there is none."""
    local = at.astimezone(zone)
    for span in schedule.blackout:
        if ":" in span:
            first, last = (time.fromisoformat(part) for part in span.split("-"))
            now = local.time()
            inside = first <= now < last if first <= last else now >= first or now < last
        else:
            begin, _, end = span.partition("..")
            inside = begin <= local.date().isoformat() <= (end or begin)
        if inside:
            return span
    return None


def paused(pauses: Sequence[Pause], job: str, zone: ZoneInfo) -> str | None:
    """Why a person wants this job not to fire now; None where nobody does."""
    for pause in pauses:
        if pause.job in {job, EVERY_JOB}:
            until = (
                f"until {datetime.fromtimestamp(pause.until, UTC).astimezone(zone):%Y-%m-%d %H:%M}"
                if pause.until
                else "until resumed"
            )
            return f"paused by {pause.by} {until}: {pause.reason}"
    return None


def back_by(schedule: Schedule, slot_at: datetime, zone: ZoneInfo) -> datetime | None:
    """When production must serve again after a run of this slot; None where nothing says so."""
    if schedule.back_by is None:
        return None
    return next_clock(schedule.back_by, begins(schedule, slot_at, zone), zone)


def decide(
    schedule: Schedule,
    slot_at: datetime,
    now: datetime,
    *,
    zone: ZoneInfo,
    pauses: Sequence[Pause],
    drained: str | None,
    slept: str | None,
) -> Go | Wait | Over:
    """What to do with a slot that is due. `slept` is why nobody looked when it became due."""
    if (over := _decided(schedule, slot_at, zone, pauses)) is not None:
        return over
    begin = begins(schedule, slot_at, zone)
    if now < begin:
        return Wait(begin.timestamp(), f"not before {schedule.not_before}")
    must_serve = back_by(schedule, slot_at, zone)
    if (missed := _too_late(schedule, begin, now, zone, slept)) is not None:
        return Over(State.MISSED, missed)
    if drained:
        return Over(State.DRAINED, drained)
    if must_serve is not None and now >= must_serve:
        return Over(State.MISSED, f"production must serve since {schedule.back_by}")
    return Go(must_serve.timestamp() if must_serve else None)


def _decided(
    schedule: Schedule, slot_at: datetime, zone: ZoneInfo, pauses: Sequence[Pause]
) -> Over | None:
    """What a person has decided about this slot; None where nobody has."""
    if (span := blacked_out(schedule, slot_at, zone)) is not None:
        return Over(State.SKIPPED, f"blackout {span_in_words(span)}")
    if (said := paused(pauses, schedule.job, zone)) is not None:
        return Over(State.PAUSED, said)
    return None


def _too_late(
    schedule: Schedule, begin: datetime, now: datetime, zone: ZoneInfo, slept: str | None
) -> str | None:
    """Why it is too late for a slot that could begin at `begin`; None where it is not."""
    late = (now - begin).total_seconds()
    because = f": {slept}" if slept else ""
    if slept and late > GRACE_S and schedule.missed == "skip":
        return f"{duration(late)} late{because}; missed = skip"
    if now > ends(schedule, begin, zone):
        return f"{duration(late)} late, more than allowed{because}"
    return None


def span_in_words(span: str) -> str:
    """A blackout as a person reads it."""
    first, dots, last = span.partition("..")
    return f"from {first} to {last}" if dots else f"of {span}"
