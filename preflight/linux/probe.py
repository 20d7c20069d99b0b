"""Children that may be abandoned: one that stays and answers, and one that runs a command.

Whatever may hang (a dead mount, a stuck driver, a tool) hangs in here. A child that misses its
deadline is killed and never waited for: in the kernel's uninterruptible sleep it cannot even die.
They are started by exec with closed descriptors, so that none of them can hold a lock of ours.
"""

from __future__ import annotations

import errno
import json
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from preflight.box import CRASH, TIMEOUT, Ran
from preflight.wording import seconds

_LARGEST_OUTPUT = 1 << 20
_PIECE = 1 << 16
_GLANCE_S = 0.05

_abandoned: list[subprocess.Popen[bytes]] = []


def _environment(more: Mapping[str, str] | None) -> dict[str, str]:
    # one language for tools whose words are quoted, and none of systemd's notices to us
    left_out = ("NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "LISTEN_PID", "LISTEN_FDS")
    own = {name: value for name, value in os.environ.items() if name not in left_out}
    return (
        own | {"LC_ALL": "C.UTF-8", "SYSTEMD_PAGER": "", "SYSTEMD_COLORS": "0"} | dict(more or {})
    )


def _start(
    argv: Sequence[str], env: Mapping[str, str] | None, *, stdin: int, stderr: int
) -> subprocess.Popen[bytes]:
    _collect()
    return subprocess.Popen(
        list(argv),
        bufsize=0,
        env=_environment(env),
        cwd="/",
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=stderr,
        start_new_session=True,
    )


def _collect() -> None:
    """Reap what was abandoned earlier and has died since."""
    _abandoned[:] = [child for child in _abandoned if child.poll() is None]


def _abandon(child: subprocess.Popen[bytes]) -> None:
    """Kill the child and what it started, close our ends, and do not wait."""
    for pipe in (child.stdin, child.stdout, child.stderr):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()
    if child.poll() is None:
        with suppress(OSError):
            os.killpg(child.pid, signal.SIGKILL)  # it leads a session of its own
        # a healthy child is dead within this; one in uninterruptible sleep is left alone
        with suppress(subprocess.TimeoutExpired):
            child.wait(0.2)
    if child.returncode is None:
        _abandoned.append(child)


def _died(code: int | None) -> str:
    if code is not None and code < 0:
        return f"it died of {signal.Signals(-code).name}"
    return f"it ended with {code}"


class Lost(Exception):
    """The child gave no answer; `fault` is TIMEOUT or CRASH, the text says it for people."""

    def __init__(self, fault: str, said: str) -> None:
        super().__init__(said)
        self.fault = fault
        self.said = said


class Helper:
    """A child that answers one JSON line to each JSON line. Started when first asked, kept warm.

    One caller at a time. After a Lost the next question starts a new child.
    """

    def __init__(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        self._argv = tuple(argv)
        self._env = env
        self._child: subprocess.Popen[bytes] | None = None

    def ask(self, question: Mapping[str, Any], *, within: float) -> dict[str, Any]:
        """The child's answer. Raises Lost past the deadline, or when the child dies."""
        if within <= 0:
            raise Lost(TIMEOUT, "no time was left to look")
        ends = time.monotonic() + within
        try:
            child = self._ready()
            stdin, stdout = child.stdin, child.stdout
            if stdin is None or stdout is None:
                raise Lost(CRASH, "it has no pipes")
            stdin.write(json.dumps(question).encode() + b"\n")
            line = _line(stdout.fileno(), ends)
        except OSError as error:
            raise self._lost(CRASH, error.strerror or str(error)) from error
        if line is None:
            raise self._lost(TIMEOUT, f"no answer within {seconds(within)}")
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise self._lost(CRASH, "")
        return answer

    def close(self) -> None:
        """End the child; a later question starts another one."""
        if self._child is not None:
            _abandon(self._child)
            self._child = None

    def _ready(self) -> subprocess.Popen[bytes]:
        if self._child is None or self._child.poll() is not None:
            self.close()
            self._child = _start(
                self._argv,
                self._env,
                stdin=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        return self._child

    def _lost(self, fault: str, said: str) -> Lost:
        child = self._child
        if child is not None and fault == CRASH:
            with suppress(subprocess.TimeoutExpired):  # its end may lag behind its closed pipe
                child.wait(0.5)
            if child.returncode is not None:
                said = _died(child.returncode)
        self.close()
        return Lost(fault, said or "it answered nonsense")


def _line(fd: int, ends: float) -> bytes | None:
    """One line from the pipe; None past the deadline, b"" when the child closed it."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    pieces: list[bytes] = []
    while True:
        left = ends - time.monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            return None
        piece = os.read(fd, _PIECE)
        if not piece:
            return b""
        pieces.append(piece)
        if piece.endswith(b"\n"):
            return b"".join(pieces)


def run(argv: Sequence[str], *, within: float, env: Mapping[str, str] | None = None) -> Ran:
    """Run a read-only command without input. Past the deadline it is abandoned with its children.

    `fault` is an errno's name when it could not be started, TIMEOUT when it did not end.
    """
    ends = time.monotonic() + within
    if argv and "/" not in argv[0] and _nowhere(argv[0], env):
        return Ran(None, fault="ENOENT", said=os.strerror(errno.ENOENT))
    try:
        child = _start(
            argv,
            env,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
    except OSError as error:
        name = errno.errorcode.get(error.errno or 0, "EIO")
        return Ran(None, fault=name, said=error.strerror or str(error))
    except (ValueError, IndexError) as error:
        return Ran(None, fault="EINVAL", said=str(error))
    try:
        return _collected(child, argv[0], within, ends)
    finally:
        _abandon(child)


def _nowhere(program: str, env: Mapping[str, str] | None) -> bool:
    """Whether PATH has no such program: a start that fails would cost a process all the same."""
    path = _environment(env).get("PATH", os.defpath)
    return "\0" not in program and shutil.which(program, path=path) is None


def _collected(child: subprocess.Popen[bytes], name: str, within: float, ends: float) -> Ran:
    late = Ran(None, fault=TIMEOUT, said=f"{name} gave no answer within {seconds(within)}")
    texts = {pipe.fileno(): bytearray() for pipe in (child.stdout, child.stderr) if pipe}
    poll = select.poll()
    for fd in texts:
        poll.register(fd, select.POLLIN)
    open_ = set(texts)
    while open_:
        left = ends - time.monotonic()
        ended = child.poll() is not None
        ready = poll.poll(0 if ended else min(left, _GLANCE_S) * 1000) if left > 0 else []
        # what it started may hold the pipes open long after it has ended
        if left <= 0 or (ended and not ready):
            break
        for fd, _ in ready:
            piece = os.read(fd, _PIECE)
            texts[fd] += piece[: _LARGEST_OUTPUT - len(texts[fd])]
            if not piece:
                poll.unregister(fd)
                open_.discard(fd)
    try:
        child.wait(max(0.0, ends - time.monotonic()))
    except subprocess.TimeoutExpired:
        return late
    out, err = (bytes(text).decode("utf-8", "replace") for text in texts.values())
    return Ran(child.returncode, out, err)
