"""Who holds the box: a flock in the state directory and one socket name for the whole machine.

The kernel frees both when the holder dies, so nobody ever has to remove a stale lock. The socket
covers what the file cannot: two state directories, two users, one GPU.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from preflight.linux import proc
from preflight.linux.proc import Ident
from runner.until import RealClock, TimedOut, until

NAME = "lock"
BOX = "runner-box"
_ASK_WITHIN = 1.0
_LOOKED_AT_S = 0.25
"""Whoever looks who holds the lock has it for an instant; this long it is asked for again."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who has the box, as far as it says."""

    run: str | None
    since: str | None
    who: Ident | None
    pid: int | None

    def __str__(self) -> str:
        """For people: which run, which process, since when."""
        run = f"run {self.run}" if self.run else "another runner"
        pid = f", pid {self.pid}" if self.pid else ""
        return f"{run}{pid}" + (f", since {self.since}" if self.since else "")


class Busy(Exception):
    """Somebody else holds the box."""

    def __init__(self, holder: Holder) -> None:
        super().__init__(f"the box is held by {holder}")
        self.holder = holder


def recovery_of(run: str) -> str:
    """What a recovery of a run calls itself as a holder."""
    return f"recovery of {run}"


def _holder(said: object, pid: int | None = None) -> Holder:
    known = said if isinstance(said, Mapping) else {}
    who = Ident.from_json(known.get("who"))
    run, since = known.get("run"), known.get("since")
    return Holder(
        run=run if isinstance(run, str) else None,
        since=since if isinstance(since, str) else None,
        who=who,
        pid=who.pid if who else pid,
    )


def holder(state_dir: Path) -> Holder | None:
    """Who holds the lock of this state directory now; None when it is free."""
    try:
        fd = os.open(state_dir / NAME, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        try:
            said = json.loads(os.pread(fd, 4096, 0) or b"{}")
        except (OSError, ValueError):
            said = {}
        return _holder(said)
    finally:
        os.close(fd)
    return None


def box_holder(name: str = BOX) -> Holder | None:
    """Ask whoever holds the box-wide name; None when nobody does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(_ASK_WITHIN)
        try:
            asking.connect("\0" + name)
        except OSError:
            return None
        credentials = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        pid = int.from_bytes(credentials[:4], "little", signed=True)
        try:
            said = json.loads(asking.recv(4096) or b"{}")
        except (OSError, ValueError):
            said = {}
        return _holder(said, pid)


def _answer(listener: socket.socket, said: bytes) -> None:
    """Tell everybody who asks. Ends when the listener is shut down."""
    while True:
        try:
            asking, _ = listener.accept()
        except OSError:
            return
        with asking, contextlib.suppress(OSError):
            asking.settimeout(_ASK_WITHIN)
            asking.sendall(said)


@contextlib.contextmanager
def hold(
    state_dir: Path, *, run: str, since: str, name: str = BOX, file_needed: bool = True
) -> Iterator[None]:
    """Hold both locks inside this block. Raises Busy, or OSError when the file cannot be opened.

    The lock file and the socket say who we are, for others to read; they are no proof of anything,
    the locks themselves are. Without `file_needed` the socket alone is enough where there is no
    file and none can be made: a recovery goes on when its state directory has gone.
    """
    said = json.dumps(
        {"run": run, "since": since, "who": (proc.ident(os.getpid()) or _nobody()).to_json()}
    ).encode()
    fd = _open(state_dir / NAME, needed=file_needed)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    answering = threading.Thread(target=_answer, args=(listener, said), daemon=True)
    try:
        if fd is not None and not _taken(fd):
            raise Busy(holder(state_dir) or _holder({}))
        try:
            listener.bind("\0" + name)
        except OSError as error:
            raise Busy(box_holder(name) or _holder({})) from error
        listener.listen(16)
        if fd is not None:
            with contextlib.suppress(OSError):  # a full disk must not keep recovery from its lock
                os.ftruncate(fd, 0)
                os.pwrite(fd, said, 0)
        answering.start()
        yield
    finally:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        if answering.ident is not None:
            answering.join(2 * _ASK_WITHIN)  # the name is free when nobody waits on it any more
        listener.close()
        if fd is not None:
            os.close(fd)


def _taken(fd: int) -> bool:
    """Take the lock, or see that somebody really has it and does not only look."""

    def take() -> bool | None:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        return True

    try:
        return until(take, within=_LOOKED_AT_S, clock=RealClock(), every=0.01)
    except TimedOut:
        return False


def _open(path: Path, *, needed: bool) -> int | None:
    """The lock file; one that exists can be locked on a read-only disk too."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        pass
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        if needed:
            raise
        return None


def _nobody() -> Ident:
    return Ident("", 0, 0)
