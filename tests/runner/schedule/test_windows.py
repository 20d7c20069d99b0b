"""When a slot may begin, must wait, or is over."""

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from runner.schedule.ledger import Pause
from runner.schedule.slots import State
from runner.schedule.windows import Go, Over, Wait, decide, next_clock, paused
from runner.settings import Schedule

BERLIN = ZoneInfo("Europe/Berlin")
SLOT = datetime.fromisoformat("2027-01-16T00:00:00+01:00")


def at(text: str) -> datetime:
    """A moment, in UTC."""
    return datetime.fromisoformat(text).astimezone(UTC)


def decided(now: str, *, slept: str | None = None, **keys: Any) -> Go | Wait | Over:
    """What becomes of the midnight slot at this moment."""
    pauses, drained = keys.pop("pauses", ()), keys.pop("drained", None)
    schedule = Schedule(job="night", cron="0 0 * * *", **keys)
    return decide(schedule, SLOT, at(now), zone=BERLIN, pauses=pauses, drained=drained, slept=slept)


def test_a_slot_on_time_begins() -> None:
    """Nothing speaks against it."""
    assert decided("2027-01-16T00:00:00.02+01:00") == Go()


def test_a_slot_that_was_slept_through_is_missed_or_run_as_configured() -> None:
    """`missed` decides, within `late_by`."""
    late = "2027-01-16T00:12:00+01:00"
    skipped = decided(late, slept="the box was suspended")
    assert isinstance(skipped, Over)
    assert skipped.state is State.MISSED
    assert skipped.why == "12m late: the box was suspended; missed = skip"
    assert decided(late, slept="the box was suspended", missed="run-once") == Go()
    too_late = decided("2027-01-16T03:00:00+01:00", slept="x", missed="run-once")
    assert isinstance(too_late, Over)
    assert too_late.why == "3h00m late, more than allowed: x"


def test_three_seconds_are_not_missed() -> None:
    """A daemon that stood still for a moment runs the slot, whatever `missed` says."""
    assert decided("2027-01-16T00:00:03+01:00", slept="stood still") == Go()


def test_not_before_holds_a_slot_back() -> None:
    """Until the clock shows it; a slot that comes after it in the same night does not wait."""
    waits = decided("2027-01-16T00:00:00+01:00", not_before="01:30")
    assert waits == Wait(at("2027-01-16T01:30:00+01:00").timestamp(), "not before 01:30")
    assert decided("2027-01-16T01:30:00+01:00", not_before="01:30") == Go()
    assert decided("2027-01-16T00:00:00+01:00", not_before="23:00") == Go()


def test_back_by_goes_to_the_run_and_ends_the_window() -> None:
    """The run is told when production must serve; after that nothing begins."""
    keys: dict[str, Any] = {"back_by": "06:30", "late_by": "9h"}
    end = at("2027-01-16T06:30:00+01:00").timestamp()
    assert decided("2027-01-16T00:00:00+01:00", **keys) == Go(end)
    over = decided("2027-01-16T07:00:00+01:00", **keys)
    assert over == Over(State.MISSED, "production must serve since 06:30")


def test_try_until_lengthens_the_window() -> None:
    """A slot that waits may begin until then, and not a minute longer."""
    assert decided("2027-01-16T02:59:00+01:00", try_until="03:00") == Go()
    assert isinstance(decided("2027-01-16T03:00:01+01:00", try_until="03:00"), Over)


@pytest.mark.parametrize("span", ["2027-01-16", "2027-01-10..2027-01-20", "23:00-01:00"])
def test_a_blackout_skips_the_slot(span: str) -> None:
    """A date, a span of dates, or a time of day that crosses midnight."""
    over = decided("2027-01-16T00:00:00+01:00", blackout=(span,))
    assert isinstance(over, Over)
    assert over.state is State.SKIPPED


@pytest.mark.parametrize("span", ["2027-01-15", "2026-12-24..2027-01-15", "01:00-23:00"])
def test_another_blackout_does_not(span: str) -> None:
    """The local date counts, not that of UTC."""
    assert decided("2027-01-16T00:00:00+01:00", blackout=(span,)) == Go()


@pytest.mark.parametrize(
    "wrong", ["christmas", "2027-02-30", "2027-01-20..2027-01-10", "25:00-26:00", "08:00"]
)
def test_what_is_no_blackout_is_refused(wrong: str) -> None:
    """A span that nobody understands would let a run begin on the wrong day."""
    with pytest.raises(ValueError, match=r"blackout|before it begins"):
        Schedule(job="night", cron="0 0 * * *", blackout=(wrong,))


def test_a_pause_holds_for_its_job_or_for_all() -> None:
    """With who wanted it, until when, and why."""
    pause = Pause("*", at("2027-01-16T08:00:00+01:00").timestamp(), "demo day", 0.0, "anna")
    over = decided("2027-01-16T00:00:00+01:00", pauses=(pause,))
    assert over == Over(State.PAUSED, "paused by anna until 2027-01-16 08:00: demo day")
    other = Pause("other", None, "broken", 0.0, "anna")
    assert decided("2027-01-16T00:00:00+01:00", pauses=(other,)) == Go()
    assert paused((other,), "other", BERLIN) == "paused by anna until resumed: broken"


def test_a_drained_box_fires_nothing() -> None:
    """And the row says why it is drained."""
    over = decided("2027-01-16T00:00:00+01:00", drained="drained since 23:00: llm is down")
    assert over == Over(State.DRAINED, "drained since 23:00: llm is down")


def test_a_time_on_the_clock_is_the_next_one_there_is() -> None:
    """Also when the clocks jump over it."""
    assert next_clock("03:00", at("2027-01-16T02:00:00+01:00"), BERLIN) == at(
        "2027-01-16T03:00:00+01:00"
    )
    assert next_clock("03:00", at("2027-01-16T03:00:00+01:00"), BERLIN) == at(
        "2027-01-17T03:00:00+01:00"
    )
    assert next_clock("02:30", at("2027-03-28T00:00:00+01:00"), BERLIN) == at(
        "2027-03-28T03:00:00+02:00"
    )
