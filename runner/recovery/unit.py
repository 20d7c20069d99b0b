"""What we are to systemd: the unit we run in, the guardian's own, and time as both count it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from preflight.linux import proc
from runner.recovery import world
from runner.recovery.notify import notify
from runner.until import RealClock

TELL_EVERY_S = 1.0
EXTEND_S = 30
"""What a stop is granted beyond each look: a restore is never cut, however long a model loads."""

_RUN = re.compile(r"runner-run@[^/]+\.service")
_ASK_WITHIN_S = 10.0
_START_WITHIN_S = 45.0  # the unit itself gives up sooner, and says why


class Refused(Exception):
    """systemd does not start the unit; the text says why."""


def own() -> str | None:
    """The unit that this process runs in, None outside systemd."""
    return proc.unit_of(proc.cgroup(os.getpid()))


def is_run(name: str | None) -> bool:
    """Whether this is the unit of a run."""
    return _RUN.fullmatch(name or "") is not None


def in_a_run() -> bool:
    """Whether this process is a run that systemd started, so that it dies with that unit."""
    return is_run(own())


def guardian_of(run: str) -> str:
    """The unit of a run's guardian."""
    return f"runner-guardian@{run}.service"


def loaded(name: str) -> bool:
    """Whether systemd has this unit or its template. Without systemd there is none."""
    if not Path("/run/systemd/system").is_dir():
        return False
    argv = ["systemctl", "show", "--property=LoadState", "--value", "--", name]
    code, said = world.quiet(argv, within=_ASK_WITHIN_S)
    return code == 0 and said == "loaded"


def start(name: str, *, block: bool = True) -> None:
    """Start a unit, and wait until it says that it is ready where `block`. Raises Refused."""
    wait = [] if block else ["--no-block"]
    argv = ["systemctl", "--no-ask-password", "start", *wait, "--", name]
    code, said = world.quiet(argv, within=_START_WITHIN_S)
    if code != 0:
        raise Refused(said.partition("\n")[0] or f"systemctl answers {code}")


class UnitClock(RealClock):
    """The machine's clock. Whoever waits by it does something, and systemd is told so: its watchdog
    is fed by steps of work, never by a thread that would say that we live when we hang.

    `stopping` says whether an end was asked for: then the stop is granted more time at each look,
    unless the machine itself goes down, which nothing of ours may hold up.
    """

    def __init__(
        self,
        stopping: Callable[[], object],
        going_down: Callable[[], bool] = world.shutting_down,
    ) -> None:
        self._stopping, self._going_down = stopping, going_down
        self._told_at = float("-inf")

    def pause(self, seconds: float, wake: Sequence[int] = ()) -> set[int]:
        """As every clock's, telling systemd first, once a second at most."""
        now = self.now()
        if now - self._told_at >= TELL_EVERY_S:
            self._told_at = now
            notify("WATCHDOG=1")
            if self._stopping() and not self._going_down():
                notify(f"EXTEND_TIMEOUT_USEC={EXTEND_S * 1_000_000}")
        return super().pause(seconds, wake)
