"""What time did between two looks."""

import pytest

from runner.schedule.moments import gap
from tests.runner.schedule.times import FakeTimes


@pytest.mark.parametrize(
    ("happens", "seconds", "said", "jump"),
    [
        ("sleeps", 7200.0, "the box was suspended for 2h00m", 0.0),
        ("passes", 300.0, "runner serve stood still for 5m", 0.0),
        ("set_by", 3600.0, "the clock was set forward by 1h00m", 3600.0),
        ("set_by", -600.0, "the clock was set back by 10m", -600.0),
        ("reboots", 60.0, "the box was off or restarting", 0.0),
    ],
)
def test_what_happened_is_told_apart(happens: str, seconds: float, said: str, jump: float) -> None:
    """By the clocks alone: with suspend, without it, and the one on the wall."""
    times = FakeTimes()
    before = times.moment()
    found = gap(before, getattr(times, happens)(seconds), same_process=True)
    assert found is not None
    assert (found.said, round(found.jump)) == (said, jump)


def test_a_tick_is_no_gap() -> None:
    """Nor is a clock that is slewed by a second, as NTP does."""
    times = FakeTimes()
    before = times.moment()
    times.set_by(1.0)
    assert gap(before, times.passes(30), same_process=True) is None


def test_another_process_says_that_there_was_none() -> None:
    """An upgrade, or a crash of the daemon alone."""
    times = FakeTimes()
    found = gap(times.moment(), times.passes(5), same_process=False)
    assert found is not None
    assert found.said == "runner serve was not running"
