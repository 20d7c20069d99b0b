"""The part of the reading child that tells whether another user may read a file.

By owner, mode and POSIX access list of every directory on the way, as the kernel would decide it:
acl(5), path_resolution(7). Standard library only. What other guards may say (SELinux, a server that
maps root to nobody) is not known here.
"""

from __future__ import annotations

import errno
import os
import pwd
import stat
import struct
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from preflight.linux.reader_base import Json, fault, mount_of, user_name

_READ, _ENTER = 4, 1
_ACL = "system.posix_acl_access"
_VERSION, _ENTRY = struct.Struct("<I"), struct.Struct("<HHI")
_OWNER, _USER, _OWNING_GROUP, _GROUP, _MASK, _OTHERS = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20
_MOST_LINKS = 40


class Entry(NamedTuple):
    """One line of an access list."""

    tag: int
    grants: int
    id: int


def _groups(uid: int, pid: int | None) -> set[int]:
    """The groups of a user: those of the process that runs as it, else those of the user database."""
    if pid is not None:
        found = _groups_of(pid)
        if found:
            return found
    user = pwd.getpwuid(uid)
    return set(os.getgrouplist(user.pw_name, user.pw_gid))


def _groups_of(pid: int) -> set[int]:
    found: set[int] = set()
    try:
        for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name == "Gid":
                found.add(int(value.split()[3]))  # the one that counts for files
            elif name == "Groups":
                found |= {int(word) for word in value.split()}
    except (OSError, ValueError, IndexError):
        return set()
    return found


def access_list(raw: bytes) -> list[Entry]:
    """The entries of an access list as the file system keeps it."""
    body = raw[_VERSION.size :]
    whole = len(body) // _ENTRY.size * _ENTRY.size
    return [Entry(*fields) for fields in _ENTRY.iter_unpack(body[:whole])]


def _listed(path: str) -> list[Entry]:
    try:
        return access_list(os.getxattr(path, _ACL))
    except OSError as error:
        if error.errno in (errno.ENODATA, errno.EOPNOTSUPP):
            return []
        raise


def allowed(
    wanted: int, uid: int, groups: Collection[int], seen: os.stat_result, entries: list[Entry]
) -> bool:
    """Whether the kernel would grant `wanted` (4 to read, 1 to enter) on one file or directory."""
    if uid == 0:
        return True
    if not entries:
        entries = [
            Entry(_OWNER, seen.st_mode >> 6 & 7, 0),
            Entry(_OWNING_GROUP, seen.st_mode >> 3 & 7, 0),
            Entry(_OTHERS, seen.st_mode & 7, 0),
        ]
    mask = next((one.grants for one in entries if one.tag == _MASK), 7)
    if uid == seen.st_uid:
        return any(one.grants & wanted for one in entries if one.tag == _OWNER)
    for one in entries:
        if one.tag == _USER and one.id == uid:
            return bool(one.grants & mask & wanted)
    by_group = [
        one
        for one in entries
        if (one.tag == _OWNING_GROUP and seen.st_gid in groups)
        or (one.tag == _GROUP and one.id in groups)
    ]
    if by_group:
        return any(one.grants & mask & wanted for one in by_group)
    return any(one.grants & wanted for one in entries if one.tag == _OTHERS)


def _on_the_way(path: str) -> Iterator[str]:
    """Every directory that has to be entered: those above the path, its links and its target."""
    here, hops = path, [path]
    for _ in range(_MOST_LINKS):
        try:
            here = os.path.normpath(str(Path(here).parent / os.readlink(here)))
        except OSError:
            break
        hops.append(here)
    ways = [str(parent) for hop in (*hops, os.path.realpath(path)) for parent in Path(hop).parents]
    yield from sorted(dict.fromkeys(ways), key=len)


def _private(path: str, uid: int, device: int) -> str:
    """Why a FUSE mount keeps everybody but its own user out, whatever its modes say."""
    if os.major(device):
        return ""  # a disk
    kind, options = mount_of(os.path.realpath(path), device)
    words = options.split(",")
    if not kind.startswith("fuse") or kind == "fuseblk" or "allow_other" in words:
        return ""
    owner = next((word.partition("=")[2] for word in words if word.startswith("user_id=")), "")
    if not owner.isdecimal() or int(owner) == uid:
        return ""
    return f"{path} lies on a {kind} mount that only {user_name(int(owner))} may enter"


def _described(path: str, seen: os.stat_result, entries: list[Entry]) -> str:
    listed = " and an access list" if entries else ""
    return f"{path} ({stat.filemode(seen.st_mode)} {user_name(seen.st_uid)}{listed})"


def may_read(asked: Json) -> Json:
    """Whether a user may read one file: Readable's fields."""
    path, uid = asked["path"], asked["uid"]
    try:
        groups = _groups(uid, asked.get("pid"))
    except (KeyError, OSError):
        groups = set()
    try:
        for wanted, place in [*((_ENTER, each) for each in _on_the_way(path)), (_READ, path)]:
            seen, entries = Path(place).stat(), _listed(place)
            if not allowed(wanted, uid, groups, seen, entries):
                return {"may": False, "blocked": _described(place, seen, entries)}
        private = _private(path, uid, Path(path).stat().st_dev)
    except OSError as error:
        return fault(error)
    return {"may": not private, "blocked": private}
