"""What the pages of the reading child share: errors and users as plain JSON. Standard library only."""

from __future__ import annotations

import errno
import os
import pwd
from pathlib import Path
from typing import Any

Json = dict[str, Any]


def fault(error: OSError) -> Json:
    """An error as every fact carries it: the errno's name, and its words."""
    code = error.errno or 0
    return {"fault": errno.errorcode.get(code, "EIO"), "said": os.strerror(code)}


def user_name(uid: int) -> str:
    """The user's name, or "uid 1001" for a number that has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def mount_of(path: str, device: int) -> tuple[str, str]:
    """The kind of the file system below a path, and its own options.

    By device number, else by the longest mount point above the path: overlays have other numbers.
    """
    wanted = f"{os.major(device)}:{os.minor(device)}"
    nearest, found = "", ("", "")
    text = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        fields, kinds = left.split(), right.split()
        if len(fields) < 5 or not kinds:  # columns of proc_pid_mountinfo(5)
            continue
        here = (kinds[0], kinds[2] if len(kinds) > 2 else "")
        if fields[2] == wanted:
            return here
        point = fields[4].encode("latin-1", "replace").decode("unicode_escape")
        above = path == point or path.startswith(point.rstrip("/") + "/")
        if above and len(point) >= len(nearest):
            nearest, found = point, here
    return found
