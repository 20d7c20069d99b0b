"""What the pages of the reading child share: errors and users as plain JSON. Standard library only."""

from __future__ import annotations

import errno
import os
import pwd
import re
from pathlib import Path
from typing import Any, NamedTuple

Json = dict[str, Any]

_OCTAL = re.compile(r"\\([0-7]{3})")
"""How mountinfo writes a space, a tab, a line break and a backslash."""


class Mount(NamedTuple):
    """One line of mountinfo: which directory of which file system lies at which place."""

    id: str
    device: str
    root: str
    point: str
    kind: str
    options: str


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


def mounts(pid: int | str = "self") -> list[Mount]:
    """Everything that is mounted where this process lives, as it sees it. Raises OSError.

    Columns of proc_pid_mountinfo(5); no right to look into the process is needed for it.
    """
    text = Path(f"/proc/{pid}/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    found: list[Mount] = []
    for line in text.split("\n"):
        left, _, right = line.partition(" - ")
        fields, kinds = left.split(" "), right.split(" ")
        if len(fields) < 5 or not kinds[0]:
            continue
        options = kinds[2] if len(kinds) > 2 else ""
        root, point = (_OCTAL.sub(_letter, name) for name in fields[3:5])
        found.append(Mount(fields[0], fields[2], root, point, kinds[0], options))
    return found


def _letter(match: re.Match[str]) -> str:
    return chr(int(match[1], 8))


def mounted_on(path: str, among: list[Mount]) -> Mount | None:
    """The mount that a path without links lies on: the last of those deepest above it."""
    deepest: Mount | None = None
    for one in among:
        above = path == one.point or path.startswith(one.point.rstrip("/") + "/")
        if above and (deepest is None or len(one.point) >= len(deepest.point)):
            deepest = one
    return deepest


def mount_of(path: str, device: int) -> tuple[str, str]:
    """The kind of the file system below a path, and its own options.

    By device number, else by the longest mount point above the path: overlays have other numbers.
    """
    here = mounts()
    wanted = f"{os.major(device)}:{os.minor(device)}"
    found = next((one for one in here if one.device == wanted), None) or mounted_on(path, here)
    return (found.kind, found.options) if found else ("", "")
