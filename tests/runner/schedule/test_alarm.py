"""The alarm: on the second, and a thread that dies is noticed and replaced."""

import os
import select
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from apscheduler.events import (
    EVENT_JOB_ERROR,
    EVENT_JOB_MAX_INSTANCES,
    EVENT_JOB_MISSED,
    JobEvent,
)
from apscheduler.jobstores.memory import MemoryJobStore

from runner.schedule.alarm import Alarm
from tests.servers import soon

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


@pytest.fixture
def alarm() -> Iterator[Alarm]:
    """An alarm with nothing set."""
    made = Alarm()
    yield made
    made.close()


def every(seconds: float, times: int = 1000) -> Any:
    """Fires at multiples of so many seconds."""

    def after(moment: datetime) -> datetime | None:
        at = (moment.timestamp() // seconds + 1) * seconds
        return datetime.fromtimestamp(at, UTC) if times else None

    return after


def test_it_drops_the_name_and_wakes_the_loop(alarm: Alarm) -> None:
    """The descriptor has news at the time, and the name says what may be due."""
    alarm.set({"a": every(0.2)})
    assert select.select([alarm.fd], [], [], 5)[0]
    assert "a" in alarm.dropped()


def test_what_is_set_anew_replaces_what_was(alarm: Alarm) -> None:
    """An edit of the schedule leaves no old row behind."""
    alarm.set({"a": every(0.1)})
    alarm.set({"b": every(0.1)})
    alarm.dropped()
    soon(lambda: alarm.dropped() or None)
    assert set(soon(lambda: alarm.dropped() or None)) == {"b"}


def test_a_row_that_never_fires_again_is_no_error(alarm: Alarm) -> None:
    """APScheduler takes it out; the others go on."""
    alarm.set({"over": lambda _: None, "a": every(0.1)})
    assert soon(lambda: alarm.dropped() or None) == ["a"]
    assert alarm.alive


class Locked(MemoryJobStore):  # type: ignore[misc]  # apscheduler ships no types
    """A store that fails as a locked database does."""

    def update_job(self, job: object) -> None:
        """Raise what APScheduler does not catch: its thread dies, and says so to nobody."""
        del job
        raise RuntimeError("database is locked")


def test_a_dead_scheduler_is_noticed_and_replaced() -> None:
    """`scheduler.running` stays True; we ask the thread itself, and no row is lost."""
    alarm = Alarm(Locked())
    try:
        alarm.set({"a": every(0.1)})
        soon(lambda: None if alarm.alive else True)
        alarm.revive()
        alarm.dropped()
        assert alarm.alive
        assert soon(lambda: alarm.dropped() or None)
    finally:
        alarm.close()


def test_a_trigger_that_fails_kills_the_thread_and_is_noticed() -> None:
    """The other way for the thread to die."""
    alarm, broken = Alarm(), False

    def after(moment: datetime) -> datetime | None:
        if broken:
            raise ValueError("no such time")
        return moment + timedelta(seconds=0.1)

    try:
        alarm.set({"a": after})
        soon(lambda: alarm.dropped() or None)
        broken = True
        soon(lambda: None if alarm.alive else True)
    finally:
        broken = False
        alarm.close()


def test_the_thread_has_a_heart_beat(alarm: Alarm) -> None:
    """What feeds the watchdog: it counts on only while the thread comes round."""
    assert alarm.alive
    assert alarm.beats >= 0
    assert alarm.problems() == []


def test_nothing_is_let_pass_and_nothing_overlaps(alarm: Alarm) -> None:
    """Set explicitly: APScheduler's own grace of one second drops a slot with a line in a log."""
    alarm.set({"a": every(60.0)})
    jobs = alarm._scheduler.get_jobs()
    assert {job.id for job in jobs} > {"a"}
    for job in jobs:
        assert (job.misfire_grace_time, job.coalesce, job.max_instances) == (None, True, 1)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (EVENT_JOB_MISSED, "the scheduler let a slot pass: a"),
        (EVENT_JOB_MAX_INSTANCES, "the scheduler was still busy with the slot before: a"),
        (EVENT_JOB_ERROR, "the scheduler failed: a"),
    ],
)
def test_each_event_of_the_scheduler_is_heard(alarm: Alarm, code: int, said: str) -> None:
    """And wakes the loop, which writes it down."""
    alarm._scheduler._dispatch_event(JobEvent(code, "a", "default"))
    assert alarm.problems() == [said]
    assert os.eventfd_read(alarm.fd) >= 1


def test_a_drop_that_fails_is_heard_with_its_reason() -> None:
    """The error comes from the scheduler's own thread, which lives on."""

    class Full(Alarm):
        """One whose queue takes nothing."""

        def _drop(self, name: str) -> None:
            raise MemoryError(name)

    alarm = Full()
    try:
        alarm.set({"a": every(0.1)})
        said = soon(lambda: alarm.problems() or None)
        assert said[0] == "the scheduler failed: a (MemoryError('a'))"
        assert alarm.alive
    finally:
        alarm.close()
