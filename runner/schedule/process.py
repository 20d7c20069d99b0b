"""The daemon as a process: alone in its state directory, woken by signals, nudged by other verbs."""

import contextlib
import fcntl
import os
import signal
from pathlib import Path
from types import FrameType

from preflight.linux import proc
from runner.recovery import world
from runner.until import RealClock, TimedOut, until

LOCK = "serve.lock"
_ASKED_S = 0.5


class Taken(Exception):
    """Another daemon serves this state directory."""


class Wishes:
    """What signals asked for. The handlers only set attributes; `fd` has news when one came, since
    a signal alone does not end a wait.
    """

    def __init__(self) -> None:
        self.reload = False
        self.fd, self._in = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def install(self) -> None:
        """Take HUP as the wish to read the configuration, and let every signal wake the loop."""
        signal.signal(signal.SIGHUP, self._asked)
        signal.set_wakeup_fd(self._in, warn_on_full_buffer=False)

    def _asked(self, _number: int, _frame: FrameType | None) -> None:
        self.reload = True

    def seen(self) -> None:
        """Forget what woke the loop."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.fd, 4096)


def serves(state_dir: Path) -> bool:
    """Whether a daemon serves this state directory; it notices nothing. Never raises."""
    try:
        fd = os.open(state_dir / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def nudge(state_dir: Path) -> bool:
    """Let the daemon of a state directory look at once; whether there is one. Never raises."""
    try:
        fd = os.open(state_dir / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        pid = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
        who = proc.ident(int(pid)) if pid.isdigit() else None
        return who is None or world.send(who, signal.SIGHUP) or True
    finally:
        os.close(fd)
    return False


def alone(state_dir: Path) -> int:
    """The lock of the one daemon of this state directory. Raises Taken."""
    fd = os.open(state_dir / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def taken() -> bool | None:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return None
        return True

    try:  # whoever only asks whether there is a daemon holds it for an instant
        until(taken, within=_ASKED_S, clock=RealClock())
    except TimedOut as error:
        pid = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
        os.close(fd)
        raise Taken(f"runner serve runs already{f', pid {pid}' if pid else ''}") from error
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return fd


def watchdog_s() -> float:
    """The watchdog of our unit in seconds; a long time where there is none."""
    try:
        return int(os.environ["WATCHDOG_USEC"]) / 1_000_000
    except (KeyError, ValueError):
        return 3600.0
