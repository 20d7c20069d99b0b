"""The part of the reading child that tells whether another user may read a file.

By owner, mode and POSIX access list of every directory on the way, as the kernel would decide it
where that user's process lives: acl(5), path_resolution(7). Standard library only. What other guards may say (SELinux, a server that
maps root to nobody) is not known here.
"""

from __future__ import annotations

import errno
import grp
import os
import pwd
import stat
import struct
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from preflight.linux.reader_base import Json, fault, mount_of, user_name
from preflight.linux.reader_view import OURS, View, on_same_mounts, same_file, steps, view_of

_ACL = "system.posix_acl_access"
_VERSION, _ENTRY = struct.Struct("<I"), struct.Struct("<HHI")
_OWNER, _USER, _OWNING_GROUP, _GROUP, _MASK, _OTHERS = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20


class Entry(NamedTuple):
    """One line of an access list."""

    tag: int
    grants: int
    id: int


class Groups(NamedTuple):
    """The groups of a user: its own, and all of them."""

    own: int
    every: frozenset[int]


def _groups(uid: int, pid: int | None) -> Groups:
    """Those of the process that runs as the user, else those of the user database."""
    found = _groups_of(pid) if pid is not None else None
    if found is not None:
        return found
    user = pwd.getpwuid(uid)
    return Groups(user.pw_gid, frozenset(os.getgrouplist(user.pw_name, user.pw_gid)))


def _groups_of(pid: int) -> Groups | None:
    own, others = -1, set[int]()
    try:
        for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name == "Gid":
                own = int(value.split()[3])  # the one that counts for files
            elif name == "Groups":
                others = {int(word) for word in value.split()}
    except (OSError, ValueError, IndexError):
        return None
    return Groups(own, frozenset({own, *others})) if own >= 0 else None


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


def _group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return f"gid {gid}"


class _Kept(Exception):
    """A directory or the file keeps the user out."""


def _walk(view: View, path: str, uid: int, groups: Groups) -> tuple[str, str]:
    """Where the file really is, and the group without which it could not be read, if there is one.

    Raises _Kept, OSError.
    """
    place, by_group = view.root or "/", ""
    for wanted, place in steps(view, path):
        seen, entries = Path(place).stat(), _listed(place)
        if not allowed(wanted, uid, groups.every, seen, entries):
            raise _Kept(_described(place.removeprefix(view.root) or "/", seen, entries))
        if not by_group and not allowed(wanted, uid, {groups.own}, seen, entries):
            needed = (
                one
                for one in sorted(groups.every)
                if allowed(wanted, uid, {groups.own, one}, seen, entries)
            )
            by_group = next(map(_group_name, needed), "")
    private = _private(place, uid, Path(place).stat().st_dev)
    if private:
        raise _Kept(private)
    return place, by_group


def may_read(asked: Json) -> Json:
    """Whether a user may read one file, as a process of it sees that file: Readable's fields."""
    pid = asked.get("pid")
    return may_read_in(OURS if pid is None else view_of(pid), asked)


def may_read_in(view: View, asked: Json) -> Json:
    """The same where it is known how that process sees its files."""
    path, uid, pid = asked["path"], asked["uid"], asked.get("pid")
    try:
        groups = _groups(uid, pid)
    except (KeyError, OSError):
        groups = Groups(-1, frozenset())
    try:
        if pid is not None and view.hidden and not on_same_mounts(pid, path):
            return {"there": "hidden"}
        there, by_group = _walk(view, path, uid, groups)
        return {"may": True, "group": by_group, **(_elsewhere(path, there) if view.root else {})}
    except _Kept as kept:
        return {"may": False, "blocked": str(kept)}
    except OSError as error:
        if not view.root or error.errno not in (errno.ENOENT, errno.ENOTDIR):
            return fault(error)
        if not Path(view.root).exists():
            return may_read_in(OURS, {**asked, "pid": None})  # it has gone while we walked
        return {"may": False, "there": "missing"} if _is_here(path) else fault(error)


def _is_here(path: str) -> bool:
    try:
        return Path(path).exists()
    except OSError:
        return False


def _elsewhere(path: str, there: str) -> Json:
    """What a file with a view of its own is, beside the one that we see. Raises OSError."""
    seen = Path(there).stat()
    try:
        if same_file(path, there):
            return {}
        here = Path(path).stat()
    except FileNotFoundError:
        return {"may": False, "there": "only"}
    said = (
        f"{seen.st_size} bytes, inode {seen.st_ino}; here {here.st_size} bytes, inode {here.st_ino}"
    )
    return {"may": False, "there": "another", "said": said}
