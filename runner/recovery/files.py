"""Files that must be whole after a power cut, or not there at all."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path

RESERVE = "reserve"
OUTBOX_LOCK = "outbox.lock"
_RESERVED = 1 << 20
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_ROOM_NEEDED = 256 * 1024
"""What an outcome with its alert needs at most in the journal, its log and its index."""


def write_durably(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Replace `path` as a whole: write beside it, fsync, rename, fsync the directory.

    A reader sees the old file or the new one; after a power cut too. Raises OSError.
    """
    beside = path.with_name(f".{path.name}.new")
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        os.fchmod(fd, mode)  # the umask has no say in who may read a file of ours
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]
        os.fsync(fd)
    finally:
        os.close(fd)
    os.replace(beside, path)
    sync_directory(path.parent)


def remove_durably(path: Path) -> None:
    """Remove `path` so that it stays removed; nothing happens when it is not there."""
    path.unlink(missing_ok=True)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def read_json(path: Path) -> dict[str, object] | None:
    """The JSON object in a file; None when it is missing, unreadable or not one."""
    try:
        said = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return said if isinstance(said, dict) else None


@contextlib.contextmanager
def alone(state_dir: Path) -> Iterator[bool]:
    """Whether this process delivers what stands in the outbox; two at once would send it twice.

    Where no lock can be made everybody delivers: twice is allowed, never is not.
    """
    try:
        fd = os.open(state_dir / OUTBOX_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        yield True
        return
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
    finally:
        os.close(fd)


def reserve(state_dir: Path) -> None:
    """Keep some space back for the day on which the disk is full and a person must be told."""
    try:
        fd = os.open(state_dir / RESERVE, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return
    try:
        os.posix_fallocate(fd, 0, _RESERVED)
    except OSError:
        return
    finally:
        os.close(fd)


def free_reserve(state_dir: Path, *, sure: bool = False) -> bool:
    """Give that space back where the disk is full; False where it is not, or nothing is kept back.

    Unless the caller is `sure` the disk itself is asked: on a full one SQLite also reports an index
    that cannot be opened or a file that cannot be read.
    """
    if not sure and not _is_full(state_dir):
        return False
    try:
        os.unlink(state_dir / RESERVE)
    except OSError:
        return False
    return True


def _is_full(state_dir: Path) -> bool:
    """Whether no more can be written there: a quota has no other way of being seen."""
    trial = state_dir / f".room.{os.getpid()}"
    try:
        fd = os.open(trial, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        return error.errno in FULL
    try:
        os.unlink(trial)  # at once: nothing of it is left, whatever comes
        os.posix_fallocate(fd, 0, _ROOM_NEEDED)
    except OSError as error:
        return error.errno in FULL
    finally:
        os.close(fd)
    return False
