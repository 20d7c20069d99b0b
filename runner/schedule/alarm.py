"""Wakes the daemon on the second: APScheduler, which only says that a slot may be due.

What is due, and what became of it, is the ledger's to know: this thread keeps nothing, forgets
everything with the process, and may die without a slot being lost. The only page with apscheduler.
"""

import contextlib
import logging
import os
import queue
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from apscheduler.events import (
    EVENT_JOB_ERROR,
    EVENT_JOB_MAX_INSTANCES,
    EVENT_JOB_MISSED,
    JobEvent,
)
from apscheduler.executors.base import BaseExecutor, run_job
from apscheduler.jobstores.memory import MemoryJobStore
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.base import BaseTrigger
from apscheduler.triggers.interval import IntervalTrigger

After = Callable[[datetime], datetime | None]
"""The first fire later than a moment, both in UTC."""

BEAT_S = 10
_BEAT = "runner:beat"
_WORDS = {
    EVENT_JOB_MISSED: "the scheduler let a slot pass",
    EVENT_JOB_MAX_INSTANCES: "the scheduler was still busy with the slot before",
    EVENT_JOB_ERROR: "the scheduler failed",
}

logging.getLogger("apscheduler").setLevel(logging.ERROR)


class SlotTrigger(BaseTrigger):  # type: ignore[misc]  # apscheduler ships no types
    """Fires when `after` says so. What passed while nobody looked is the ledger's, not ours."""

    __slots__ = ("_after",)

    def __init__(self, after: After) -> None:
        self._after = after

    def get_next_fire_time(self, previous: datetime | None, now: datetime) -> datetime | None:
        """The next fire after now, and after the last one."""
        return self._after(max(previous, now) if previous is not None else now)


class _InPlace(BaseExecutor):  # type: ignore[misc]  # as above
    """Runs what is due in the scheduler's own thread: it only drops a name and takes no time."""

    def _do_submit_job(self, job: Any, run_times: list[datetime]) -> None:
        try:
            events = run_job(job, job._jobstore_alias, run_times, self._logger.name)  # noqa: SLF001 - as apscheduler's own executors do
        except Exception as error:  # noqa: BLE001 - told through the event it makes
            self._run_job_error(job.id, error, error.__traceback__)
        else:
            self._run_job_success(job.id, events)


class Alarm:
    """One scheduler thread. `fd` has news when something was dropped."""

    def __init__(self, store: MemoryJobStore | None = None) -> None:
        """`store` is for tests that want the scheduler to fail."""
        self.fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._dropped: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._problems: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._beats = 0
        self._rows: Mapping[str, After] = {}
        self._scheduler = self._started(store or MemoryJobStore())

    def _started(self, store: MemoryJobStore) -> BackgroundScheduler:
        scheduler = BackgroundScheduler(
            timezone=UTC,
            jobstores={"default": store},
            executors={"default": _InPlace()},
            # the ledger decides what is late or missed; here nothing may be let pass
            job_defaults={"misfire_grace_time": None, "coalesce": True, "max_instances": 1},
        )
        scheduler.add_listener(
            self._heard, EVENT_JOB_MISSED | EVENT_JOB_MAX_INSTANCES | EVENT_JOB_ERROR
        )
        scheduler.start(paused=True)
        scheduler.add_job(self._beat, IntervalTrigger(seconds=BEAT_S), id=_BEAT)
        scheduler.resume()
        return scheduler

    def set(self, rows: Mapping[str, After]) -> None:
        """From now on these rows, by a name of the caller's, and no others."""
        self._rows = dict(rows)
        self._scheduler.pause()
        for job in self._scheduler.get_jobs():
            if job.id != _BEAT:
                job.remove()
        for name, after in self._rows.items():
            self._scheduler.add_job(self._drop, SlotTrigger(after), args=(name,), id=name)
        self._scheduler.resume()

    def dropped(self) -> list[str]:
        """The names of the rows that may be due since the last look."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.fd)
        return _all_of(self._dropped)

    def problems(self) -> list[str]:
        """What went wrong in the scheduler since the last look."""
        return _all_of(self._problems)

    @property
    def beats(self) -> int:
        """How often the scheduler's thread has come round; it stops counting when that dies."""
        return self._beats

    @property
    def alive(self) -> bool:
        """Whether the thread lives: the scheduler itself goes on claiming so when it does not."""
        thread: threading.Thread | None = self._scheduler._thread  # noqa: SLF001 - there is no other way to ask
        return thread is not None and thread.is_alive()

    def revive(self) -> None:
        """A new thread with the same rows, in place of one that has died."""
        self._scheduler.remove_listener(self._heard)
        self._scheduler = self._started(MemoryJobStore())
        self.set(self._rows)

    def close(self) -> None:
        """End the thread."""
        if self.alive:
            self._scheduler.shutdown(wait=False)
        os.close(self.fd)

    def _drop(self, name: str) -> None:
        self._dropped.put(name)
        os.eventfd_write(self.fd, 1)

    def _beat(self) -> None:
        self._beats += 1

    def _heard(self, event: JobEvent) -> None:
        why = getattr(event, "exception", None)
        said = _WORDS.get(event.code, "the scheduler stumbled")
        self._problems.put(f"{said}: {event.job_id}{f' ({why!r})' if why else ''}")
        os.eventfd_write(self.fd, 1)


def _all_of(waiting: "queue.SimpleQueue[str]") -> list[str]:
    found: list[str] = []
    while True:
        try:
            found.append(waiting.get_nowait())
        except queue.Empty:
            return found
