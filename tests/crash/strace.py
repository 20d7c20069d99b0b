"""Watches a process with strace: makes its n-th system call fail or kill, or writes them all down."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.crash.box import Box

FILES = (
    "journal.db",
    "journal.db-wal",
    "recovery.state",
    "recovery.json",
    ".recovery.json.new",
    ".recovery.copy.json.new",
    ".last-good.json.new",
)
SLOW_US = 300_000
"""How long a slow disk takes for each call."""

WRITTEN = (
    "openat,write,pwrite64,fsync,fdatasync,rename,renameat,renameat2,unlink,unlinkat,ftruncate,"
    "fallocate,close,mkdir"
)


def there() -> str | None:
    """The program; None where it is not installed."""
    return shutil.which("strace")


def inject(box: Box, pid: int, said: str) -> None:
    """`fdatasync:KILL:3`, `pwrite64:ENOSPC:5+`: the third call kills, the fifth and later fail.

    Only calls on the files that everything rests on are counted: a full disk spoils no socket.
    """
    call, fault, when = said.split(":")
    how = {"KILL": "signal=KILL", "SLOW": f"delay_enter={SLOW_US}"}.get(fault, f"error={fault}")
    paths = [word for name in FILES for word in ("-P", str(box.state / name))]
    _attach(box, pid, ["-e", f"inject={call}:{how}:when={when}", *paths])


def record(box: Box, pid: int, into: Path) -> None:
    """Every change of a file, with all its bytes, one call a line."""
    _attach(box, pid, ["-y", "-xx", "-s", "9999999", "-e", f"trace={WRITTEN}"], into)


def _attach(box: Box, pid: int, words: list[str], into: Path | None = None) -> None:
    program = there()
    if program is None:
        raise OSError("strace is not installed")
    child = subprocess.Popen(
        [program, "-qq", "-o", str(into or os.devnull), *words, "-p", str(pid)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=(box.room / "strace.log").open("w"),
    )
    child.returncode = 0  # the box reaps it

    def attached() -> bool | None:
        status = Path(f"/proc/{pid}/status").read_text()
        return None if "TracerPid:\t0" in status else True

    box.soon(attached, within=10, every=0.005)
