"""The one place that waits: it asks, it leaves early, and it has a deadline."""

import os
import signal
import subprocess
import sys

import pytest

from preflight.linux import proc
from runner.recovery import world
from runner.until import Hopeless, RealClock, Stopped, TimedOut, rest, until
from tests.fakes_runner import FakeClock


def never() -> bool | None:
    """Have no answer, ever."""
    return None


def test_the_first_answer_ends_the_wait_without_a_pause() -> None:
    """What is so already costs nothing."""
    clock = FakeClock()
    assert until(lambda: "yes", within=60, clock=clock) == "yes"
    assert clock.pauses == []


def test_an_answer_may_be_false_or_empty() -> None:
    """Only None means to ask again."""
    assert until(lambda: False, within=60, clock=FakeClock()) is False
    assert until(lambda: "", within=60, clock=FakeClock()) == ""


def test_it_asks_at_the_pace_it_was_told_until_there_is_an_answer() -> None:
    """Three looks, a quarter of a second apart."""
    clock, answers = FakeClock(), iter([None, None, "there"])
    assert until(lambda: next(answers), within=60, clock=clock, every=0.25) == "there"
    assert clock.pauses == [0.25, 0.25]


def test_the_deadline_is_kept_to_the_moment() -> None:
    """The last pause is cut to what is left, and the error names the limit."""
    clock = FakeClock()
    with pytest.raises(TimedOut, match=r"within 1\.5 s"):
        until(never, within=1.5, clock=clock, every=1.0)
    assert clock.pauses == [1.0, 0.5]


def test_no_time_at_all_still_means_one_look() -> None:
    """A wait of zero seconds is a question, not a refusal."""
    assert until(lambda: 1, within=0, clock=FakeClock()) == 1
    with pytest.raises(TimedOut):
        until(never, within=0, clock=FakeClock())


def test_hopeless_ends_the_wait_at_once_with_its_reason() -> None:
    """The seed of this project: two blind waits of 15 minutes for a server that was dead."""
    clock = FakeClock()
    dead: list[str] = []
    clock.at(2.0, lambda: dead.append("exit code 1: no such file"))
    with pytest.raises(Hopeless, match="exit code 1: no such file"):
        until(never, within=900, clock=clock, every=0.5, hopeless=lambda: dead[0] if dead else None)
    assert clock.now() == 1002.0


def test_a_wish_to_stop_is_heard_before_anything_else() -> None:
    """Neither an answer nor a hopeless case may hide that somebody asked for an end."""
    with pytest.raises(Stopped, match="interrupted by TERM"):
        until(
            lambda: "yes",
            within=60,
            clock=FakeClock(),
            hopeless=lambda: "dead",
            stop=lambda: "interrupted by TERM",
        )


def test_a_machine_that_slept_over_the_deadline_is_asked_once_more() -> None:
    """Suspend goes on counting: what became true meanwhile must not be reported as late."""
    clock = FakeClock()
    awake: list[str] = []

    def sleep() -> None:
        clock.forward(3600)
        awake.append("serving")

    clock.at(0.25, sleep)
    assert until(lambda: awake[0] if awake else None, within=60, clock=clock, every=0.5)
    clock.at(0.25, lambda: clock.forward(3600))
    with pytest.raises(TimedOut):
        until(never, within=60, clock=clock, every=0.5)


def test_a_descriptor_with_news_wakes_it_once() -> None:
    """A pidfd has news for ever; it must not turn the wait into a busy loop."""
    clock = FakeClock()
    clock.news = {7}
    with pytest.raises(TimedOut):
        until(never, within=1, clock=clock, every=0.5, wake=[7, 8])
    assert clock.woken_by == [(7, 8), (8,), (8,)]


def test_the_real_clock_wakes_when_a_process_ends() -> None:
    """The death of a process is noticed when it happens and not at the next look."""
    clock = RealClock()
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", "input()"], stdin=-1) as child:
        who = proc.ident(child.pid)
        assert who is not None
        pidfd = world.open_pidfd(who)
        assert pidfd is not None
        began = clock.now()
        world.send(who, signal.SIGKILL)
        until(
            lambda: None if proc.alive(who) else True,
            within=30,
            clock=clock,
            every=20,
            wake=[pidfd],
        )
        os.close(pidfd)
    assert clock.now() - began < 10


def test_the_real_clock_counts_suspend_and_tells_the_time_in_utc() -> None:
    """Deadlines are in CLOCK_BOOTTIME; what people read is a date with its offset."""
    clock = RealClock()
    assert clock.now() <= clock.now()
    assert clock.wall().utcoffset() is not None
    assert clock.pause(0) == set()


def test_a_rest_ends_by_itself_or_when_somebody_asks() -> None:
    """A back-off between two tries is no reason to be deaf."""
    clock = FakeClock()
    rest(2.0, clock=clock)
    assert clock.now() == 1002.0
    asked: list[str] = []
    clock.at(1.0, lambda: asked.append("the machine is going down"))
    with pytest.raises(Stopped, match="going down"):
        rest(60.0, clock=clock, stop=lambda: asked[0] if asked else None)
    assert clock.now() <= 1003.25


def test_a_look_that_took_longer_than_the_deadline_is_not_the_last() -> None:
    """The machine was suspended, or a server hung, in the middle of it: it is asked once more."""
    clock, asked = FakeClock(), list[float]()

    def slow() -> str | None:
        asked.append(clock.now())
        if len(asked) == 1:
            clock.forward(60)
            return None
        return "there"

    assert until(slow, within=10, clock=clock) == "there"
    assert len(asked) == 2
