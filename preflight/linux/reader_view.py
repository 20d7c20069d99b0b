"""The part of the reading child that looks at paths as another process has them. Standard library only.

A container, or a unit with RootDirectory=, PrivateTmp=, ProtectHome= and the like, has mounts of its
own: the same path may be another file there, or none. It is looked at through /proc/PID/root where
that is allowed, and told from /proc/PID/mountinfo where it is not.
"""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from preflight.linux.reader_base import Mount, mounted_on, mounts

READ, ENTER = 4, 1
_MOST_LINKS = 40


class View(NamedTuple):
    """Where a process sees its files: `root` is what its "/" is called here, "" for our own."""

    root: str = ""
    hidden: bool = False
    """It has mounts of its own, and may not be looked into."""


OURS = View()


def view_of(pid: int) -> View:
    """How this process sees its files; as we do where it is gone, since it then sees none."""
    root = f"/proc/{pid}/root"
    try:
        same = os.readlink(f"/proc/{pid}/ns/mnt") == os.readlink("/proc/self/ns/mnt")
        return OURS if same and os.readlink(root) == os.readlink("/proc/self/root") else View(root)
    except FileNotFoundError:
        return OURS
    except OSError:
        return OURS if _same_mounts(pid) else View(hidden=True)


def _same_mounts(pid: int) -> bool:
    """By the numbers of the mounts: those of another namespace are others, whatever is mounted."""
    try:
        return mounts(pid) == mounts()
    except OSError:
        return False


def steps(view: View, path: str) -> Iterator[tuple[int, str]]:
    """What has to be allowed on the way, as (right, path as we have it): each directory to enter,
    links followed as the kernel follows them there, and at last the file to read.

    Raises OSError where the way ends, after the directory in which it does was handed out.
    """
    left, at, links = deque(path.split("/")), list[str](), 0
    yield ENTER, view.root or "/"
    while left:
        name = left.popleft()
        if name in ("", "."):
            continue
        if name == "..":
            del at[-1:]
            continue
        here = "/".join([view.root, *at, name])
        try:
            link = os.readlink(here)
        except OSError as error:
            if error.errno != errno.EINVAL:  # which says that it is no link
                raise
            at.append(name)
            yield (ENTER if any(left) else READ), here
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        if link.startswith("/"):
            at.clear()
        left.extendleft(reversed(link.split("/")))


def same_file(path: str, there: str) -> bool:
    """Whether both paths are one file; a file system may be mounted twice under two numbers."""
    one, other = Path(path).stat(), Path(there).stat()
    alike = (one.st_ino, one.st_size, one.st_mtime_ns)
    return alike == (other.st_ino, other.st_size, other.st_mtime_ns)


def on_same_mounts(pid: int, path: str) -> bool:
    """Whether the mounts alone show that a path of ours is the same file for a process.

    That is so where every step of the way lies at the same place of the same file system.
    """
    ours = mounts()
    try:
        theirs = mounts(pid)
    except FileNotFoundError:
        return True  # it is gone, and sees nothing any more
    except OSError:
        return False
    places = [(_place(step, ours), _place(step, theirs)) for _, step in steps(OURS, path)]
    return all(one is not None and one == other for one, other in places)


def _place(path: str, among: list[Mount]) -> tuple[str, str] | None:
    """The file system a path lies on, and its place there."""
    found = mounted_on(path, among)
    if found is None:
        return None
    inner = path[len(found.point.rstrip("/")) :]
    return found.device, found.root.rstrip("/") + inner
