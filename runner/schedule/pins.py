"""Keeps the bytes of a file on its own mount, by a hard link or a reflink, never by a copy.

A pin survives deleting and renaming. A hard link is the same file, so overwriting in place changes
both; that is what the fingerprint at the gate is for.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from preflight.files.pins import Pin
from preflight.wording import size as in_words
from runner.recovery.files import sync_directory
from runner.who import named

NAME = ".runner-pins"
_OURS = {"pins", NAME}
_FICLONE = 0x40049409  # linux/fs.h: share the extents of another file of the same file system

Json = dict[str, Any]


class CannotPin(Exception):
    """A file cannot be pinned; the remedy names what is missing."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.message, self.remedy = message, remedy


@dataclass(frozen=True, slots=True)
class Made:
    """A pin that was made: the path as it is named, where its bytes are kept, how, and what."""

    path: str
    pin: str
    how: str
    inode: int
    size: int
    mtime_ns: int


def make(path: str, owner: str, state_dir: Path, *, room: Path | None = None) -> Made:
    """Pin one file; its link is followed, its own name kept. Raises CannotPin."""
    real = os.path.realpath(path)
    try:
        found = os.stat(real)
    except OSError as error:
        raise CannotPin(f"{path}: {error.strerror}", "name a file that is there") from error
    why: CannotPin | None = None
    for place in [room] if room else _rooms(real, state_dir):
        try:
            return _made(path, real, found, place / _below(path, owner))
        except CannotPin as error:
            why = why or error
    raise why or CannotPin(
        f"{path}: nobody but {named(os.stat(_mount(real)).st_uid)} may write on {_mount(real)}",
        "sudo runner pin …, or name a directory of that disk with --dir",
    )


def _below(path: str, owner: str) -> Path:
    """A directory of its own for each directory of each owner: shards stay together, by name."""
    parent = hashlib.sha256(os.path.dirname(path).encode()).hexdigest()[:8]
    return Path(owner.replace(":", "-")) / parent


def _made(path: str, real: str, source: os.stat_result, room: Path) -> Made:
    target = room / os.path.basename(path)
    try:
        room.mkdir(mode=0o711, parents=True, exist_ok=True)
        how = _kept(real, target, source)
        sync_directory(room)
        found = os.stat(target)
    except OSError as error:
        raise CannotPin(f"{path}: {_in_words(error, real)}", _remedy(error)) from error
    return Made(path, str(target), how, found.st_ino, found.st_size, found.st_mtime_ns)


def _kept(real: str, target: Path, source: os.stat_result) -> str:
    """Link, else share the extents; "hard link" or "reflink". An older pin of the same name stays
    until the new one is there. Raises OSError.
    """
    with contextlib.suppress(FileNotFoundError):
        if _same(os.stat(target), source):
            return "hard link"
    fresh = target.with_name(f".{target.name}.new")
    fresh.unlink(missing_ok=True)
    try:
        os.link(real, fresh)
        how = "hard link"
    except OSError as refused:
        try:
            _reflink(real, fresh)
        except OSError:
            raise refused from None
        how = "reflink"
    fresh.replace(target)
    return how


def _same(one: os.stat_result, other: os.stat_result) -> bool:
    return (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)


def _reflink(real: str, target: Path) -> None:
    """A file of its own that shares the bytes, for the same readers. Raises OSError."""
    source = os.open(real, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.ioctl(fd, _FICLONE, source)
            found = os.fstat(source)
            _for_the_same_readers(fd, found)
            os.utime(fd, ns=(found.st_atime_ns, found.st_mtime_ns))
            os.fsync(fd)
        except OSError:
            target.unlink()
            raise
        finally:
            os.close(fd)
    finally:
        os.close(source)


def _for_the_same_readers(fd: int, source: os.stat_result) -> None:
    """Owner and mode of the file; where only root may give a file away, its group gets nothing."""
    mode = stat.S_IMODE(source.st_mode) & 0o777
    try:
        os.fchown(fd, source.st_uid, source.st_gid)
    except PermissionError:
        mode = mode & 0o707 | 0o400
    os.fchmod(fd, mode)


def _in_words(error: OSError, real: str) -> str:
    owner = named(os.stat(real).st_uid)
    if error.errno in {errno.EPERM, errno.EACCES}:
        return f"it belongs to {owner}, and {named(os.geteuid())} may not link it here"
    if error.errno == errno.EXDEV:
        return "the place for its pin is on another disk, and a pin is never a copy"
    if error.errno == errno.EROFS:
        return "its disk is mounted read-only"
    return error.strerror or str(error)


def _remedy(error: OSError) -> str:
    if error.errno in {errno.EPERM, errno.EACCES}:
        return "sudo runner pin …, or run it as the owner of the file"
    return "name a directory on the disk of the file with --dir"


def _mount(real: str) -> str:
    """The highest directory that is on the same file system as this file."""
    device, here = os.stat(real).st_dev, os.path.dirname(real)
    while here != "/" and os.stat(os.path.dirname(here)).st_dev == device:
        here = os.path.dirname(here)
    return here


def _rooms(real: str, state_dir: Path) -> Iterator[Path]:
    """Where pins of this file may be kept, best first: never below the directory it lies in, which
    is what gets deleted.
    """
    device = os.stat(real).st_dev
    if state_dir.is_dir() and state_dir.stat().st_dev == device:
        yield state_dir / "pins"
    here, above = os.path.dirname(real), []
    while here != "/" and os.stat(os.path.dirname(here)).st_dev == device:
        here = os.path.dirname(here)
        above.append(here)
    if not above:  # it lies at the root of its file system
        above = [here]
    for place in reversed(above):
        if os.access(place, os.W_OK) or (Path(place) / NAME).is_dir():
            yield Path(place) / NAME


def give_to(made: Iterable[Made], uid: int) -> None:
    """Let the owner of the state directory release what root has pinned: the directories, not the
    files, whose owner is everybody's.
    """
    for one in made:
        room = Path(one.pin).parent
        for place in (room, room.parent, room.parent.parent):
            if place.name in _OURS or place.parent.name in _OURS or place == room:
                os.chown(place, uid, -1)


def release(row: Mapping[str, Any]) -> None:
    """Remove a pin's link; the file at its path is not touched. Raises CannotPin."""
    target = Path(row["pin"])
    try:
        target.unlink(missing_ok=True)
    except OSError as error:
        raise CannotPin(f"{target}: {error.strerror}", "sudo runner unpin …") from error
    room = target.parent.parent.parent
    for place in (target.parent, target.parent.parent, *([room] if room.name in _OURS else [])):
        try:
            place.rmdir()
        except OSError:
            return  # other pins are in there, or it is not ours to remove


def stands(row: Mapping[str, Any]) -> Json:
    """A pin as it is now: whether it holds, what lies at its path, and what only it keeps."""
    try:
        found = os.stat(row["pin"])
    except OSError:
        return {**row, "state": "gone", "alone_mib": 0, "said": "its pinned bytes are gone"}
    same = (found.st_ino, found.st_size, found.st_mtime_ns) == (
        row["inode"],
        row["size"],
        row["mtime_ns"],
    )
    alone = found.st_nlink == 1 and row["how"] == "hard link"
    said = "was written to since" if not same else at_its_path(row)
    if alone:
        said += f"; only the pin keeps {in_words(found.st_size)}"
    return {
        **row,
        "state": "kept" if same else "changed",
        "alone_mib": found.st_size >> 20 if alone else 0,
        "said": said,
    }


def at_its_path(row: Mapping[str, Any]) -> str:
    """What lies at the path of a pin now."""
    try:
        found = os.stat(row["path"])
    except OSError:
        return "its file is gone"
    if found.st_ino == row["inode"]:
        return "its file is there"
    if row["how"] == "reflink":
        same = (found.st_size, found.st_mtime_ns) == (row["size"], row["mtime_ns"])
        return "its file is there" if same else "the file at its path is not what was pinned now"
    return "the file at its path is another one now"


def as_checks(rows: Iterable[Mapping[str, Any]]) -> tuple[Pin, ...]:
    """The pins as preflight is asked about them."""
    return tuple(
        Pin(
            path=row["path"],
            pin=row["pin"],
            inode=row["inode"],
            size=row["size"],
            mtime_ns=row["mtime_ns"],
            reflink=row["how"] == "reflink",
        )
        for row in rows
    )
