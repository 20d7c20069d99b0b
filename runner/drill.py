"""A drill: a real run that is killed at a step drawn by chance, and how long production was away.

It shows on the user's own box what the crash tests show on small ones. The run is a process of its
own; whoever watches it from here only looks, and restores by hand should nobody else do so.
"""

import os
import re
import secrets
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from runner.audit import audit
from runner.journal import Journal
from runner.production import Found, survey
from runner.progress import Unwatched
from runner.recovery import lock, probe, recipe
from runner.recovery.recover import recover
from runner.run import run
from runner.settings import Settings
from runner.stopping import StopFlag
from runner.until import Clock, RealClock, TimedOut, until

STEPS: Mapping[str, str] = MappingProxyType(
    {
        "stop": r"stopping production",
        "start": r"starting the ",
        "load": r".* (loads|works)$",
        "work": r".*: request ",
        "end": r"ending the ",
        "restore": r"restoring production",
        "start again": r"restore: starting",
        "judge": r"telling",
    }
)
"""The steps at which a drill may kill, and how the run says that it has come to one."""

LOOK_S = 0.05
SLACK_S = 120.0

Json = dict[str, Any]


class _Fatal(Unwatched):
    """Kills its own process when a step begins."""

    def __init__(self, step: str) -> None:
        self._pattern = STEPS[step]

    def phase(self, name: str, within_s: float | None = None) -> None:
        """Perhaps the last one."""
        del within_s
        self._perhaps(name)

    def note(self, text: str) -> None:
        """Perhaps the last one."""
        self._perhaps(text)

    def _perhaps(self, said: str) -> None:
        if re.match(self._pattern, said):
            os.kill(os.getpid(), signal.SIGKILL)


@dataclass
class _Away:
    """How long one service did not answer, as somebody who asks all the time sees it."""

    found: Found
    last_up: float
    down_at: float | None = None
    back_at: float | None = None
    why: str = ""
    name: str = field(init=False)

    def __post_init__(self) -> None:
        self.name = self.found.service.name

    def look(self, clock: Clock) -> bool:
        """Ask once; whether it serves now."""
        asked = self.found.recipe.probe
        look = probe.health(asked, within=1)
        if look.serving and self.down_at is not None and self.back_at is None:
            look = probe.serving(asked)  # it counts as back when it completes again
        self.why = look.why
        now = clock.now()
        if not look.serving:
            self.down_at = self.down_at or self.last_up
            self.back_at = None
        elif self.down_at is None:
            self.last_up = now
        else:
            self.back_at = self.back_at or now
        return look.serving

    @property
    def seconds(self) -> float:
        """From the last answer before to the first completion after."""
        return self.back_at - self.down_at if self.back_at and self.down_at else 0.0


class NotServing(Exception):
    """Production does not serve as it is: a drill could show nothing."""


def drill(name: str, settings: Settings, config: Path, *, step: str | None = None) -> Json:
    """Run a job, kill the run at a step, and tell what became of production.

    Raises NotServing; then nothing was touched. A job that cannot be read ends its run at once.
    """
    clock, step = RealClock(), step or secrets.choice(list(STEPS))
    watched = [_Away(survey(service), clock.now()) for service in settings.production]
    for one in watched:
        if not one.look(clock):
            raise NotServing(f"{one.name} does not serve: {one.why}")
    child = _start(name, config, step)
    fd = os.pidfd_open(child.pid)
    try:
        code = _watch(child, watched, fd, clock)
    finally:
        os.close(fd)
    died_at = clock.now()
    by_hand = _until_paid(Path(settings.state_dir), watched, clock)
    return _told(name, settings, step, watched=watched, code=code, died_at=died_at, hand=by_hand)


def die_at(step: str, name: str, settings: Settings) -> int:
    """Be the run that is killed; the exit code of one that never came to the step."""
    stop = StopFlag()
    stop.install()
    return int(run(name, settings, progress=_Fatal(step), stop=stop)["exit_code"])


def _start(name: str, config: Path, step: str) -> subprocess.Popen[bytes]:
    """The run, in a process and a session of its own."""
    return subprocess.Popen(
        [sys.executable, "-I", "-m", "runner", "--config", config, "drill", name, "--die-at", step],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _watch(child: subprocess.Popen[bytes], watched: list[_Away], fd: int, clock: Clock) -> int:
    """Until the run has ended, by its own hand or by itself; how."""

    def over() -> int | None:
        for one in watched:
            one.look(clock)
        return child.poll()

    # what bounds it is the run's own timeout
    return until(over, within=float("inf"), clock=clock, every=LOOK_S, wake=[fd])


def _until_paid(state_dir: Path, watched: list[_Away], clock: Clock) -> bool:
    """Until nothing is owed and all serves; whether that took a recovery from here."""

    def paid() -> bool | None:
        serving = [one.look(clock) for one in watched]
        owed = (state_dir / recipe.NAME).exists() or lock.holder(state_dir) is not None
        return True if all(serving) and not owed else None

    within = sum(one.found.recipe.patience for one in watched) + SLACK_S
    try:
        until(paid, within=within, clock=clock, every=LOOK_S)
    except TimedOut:
        recover(state_dir, clock=clock)
        for one in watched:
            one.look(clock)
        return True
    return False


def _told(
    name: str,
    settings: Settings,
    step: str,
    *,
    watched: list[_Away],
    code: int,
    died_at: float,
    hand: bool,
) -> Json:
    state_dir = Path(settings.state_dir)
    recover(state_dir, clock=RealClock())  # a run that died owing nothing is told by this
    broken, unknown = audit(state_dir)
    with Journal.open(state_dir, read_only=True, zone=settings.zone) as journal:
        last = journal.history(limit=1)
    killed = code == -signal.SIGKILL
    backs = [one.back_at for one in watched if one.back_at is not None]
    return {
        "job": name,
        "run": last[0]["run"] if last else None,
        "outcome": last[0]["outcome"] if last else None,
        "step": step,
        "killed": killed,
        "exit_code": code if code >= 0 else 128 - code,
        "outage_s": round(max((one.seconds for one in watched), default=0.0), 2),
        "back_after_kill_s": round(max(0.0, max(backs) - died_at), 2) if killed and backs else None,
        "by_hand": hand,
        "services": [
            {"name": one.name, "outage_s": round(one.seconds, 2), "why": one.why} for one in watched
        ],
        "broken": [{"promise": one.promise, "said": one.said} for one in broken],
        "unknown": unknown,
    }
