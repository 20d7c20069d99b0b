"""The part of the reading child that reads the host: small texts, locks, terminals, log, clock.

Standard library only; it answers facts and judges nothing.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import time
from pathlib import Path

from preflight.linux.reader_base import Json, fault, user_name

_LARGEST_TEXT = 1 << 18
_LARGEST_LOG = 8 << 20
_MOST_LINES = 200
_TERMINALS = "/dev/pts"
_NOWHERE = (errno.ENOENT, errno.ENODEV, errno.ENXIO, errno.ENOTDIR)


def read_texts(asked: Json) -> Json:
    """Each of these small files, whole, or why it cannot be read."""
    return {"rows": [_text(path) for path in asked["paths"]]}


def _text(path: str) -> Json:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        try:
            raw = b""
            while piece := os.read(fd, _LARGEST_TEXT):
                raw += piece
                if len(raw) >= _LARGEST_TEXT:
                    break
        finally:
            os.close(fd)
    except (OSError, ValueError) as error:
        known = fault(error) if isinstance(error, OSError) else {"fault": "EINVAL", "said": "path"}
        return {"path": path, **known}
    return {"path": path, "text": raw[:_LARGEST_TEXT].decode("utf-8", "replace")}


def who_locks(asked: Json) -> Json:
    """Who holds a lock on each of these files: (path, pids). Nothing is opened, so none is disturbed.

    /proc/locks names a file by device and inode; a pid of 0 is a process of another namespace.
    """
    try:
        table = Path("/proc/locks").read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        return {"rows": [{"path": path, **fault(error)} for path in asked["paths"]]}
    holders: list[tuple[int, str, str, str]] = []
    for line in table.splitlines():
        # "3: POSIX  ADVISORY  WRITE 812 08:01:131077 0 EOF"; one that waits has "->" behind its number
        fields = line.split()
        if len(fields) >= 8 and fields[1] != "->" and fields[4].isdigit():
            major, minor, inode = (*fields[5].split(":"), "", "")[:3]
            holders.append((int(fields[4]), major, minor, inode))
    return {"rows": [_locked(path, holders) for path in asked["paths"]]}


def _locked(path: str, holders: list[tuple[int, str, str, str]]) -> Json:
    try:
        found = os.stat(path)
    except OSError as error:
        return {"path": path, **fault(error)}
    major, minor = f"{os.major(found.st_dev):02x}", f"{os.minor(found.st_dev):02x}"
    pids = {
        pid
        for pid, held_major, held_minor, inode in holders
        # overlays and subvolumes tell stat another number than the kernel's own, both without a disk
        if inode == str(found.st_ino)
        and held_major == major
        and (held_minor == minor or major == "00")
    }
    return {"path": path, "pids": sorted(pids)}


def open_terminals(asked: Json) -> Json:  # noqa: ARG001 - every verb is asked something
    """Every pseudo terminal with its owner; reading or typing there moves its times."""
    rows: list[Json] = []
    now = time.time()
    try:
        names = [name for name in os.listdir(_TERMINALS) if name.isdigit()]
    except OSError:
        return {"rows": []}
    for name in names:
        try:
            found = os.stat(f"{_TERMINALS}/{name}")
        except OSError:
            continue
        idle = max(0.0, now - max(found.st_atime, found.st_mtime))
        user = user_name(found.st_uid)
        rows.append({"name": f"pts/{name}", "uid": found.st_uid, "user": user, "idle_s": idle})
    return {"rows": rows}


def kernel_log(asked: Json) -> Json:
    """The lines of /dev/kmsg that match, each with its seconds since boot in front."""
    wanted = re.compile(asked["pattern"])
    try:
        fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return fault(error) | ({"fault": "absent"} if error.errno in _NOWHERE else {})
    lines: list[str] = []
    whole, first, size = True, True, 0
    try:
        while True:
            if size >= _LARGEST_LOG:
                whole = False
                break
            try:
                record = os.read(fd, 8192)
            except BlockingIOError:
                break  # the end, for now
            except BrokenPipeError:
                whole = False  # overwritten while it was read: the next read goes on behind it
                continue
            size += len(record)
            # "6,339,5140900,-;the text": level, number, microseconds since boot
            head, _, text = record.decode("utf-8", "replace").partition(";")
            number, _, rest = head.partition(",")[2].partition(",")
            if first:
                whole, first = number == "0", False
            line = text.partition("\n")[0]
            if wanted.search(line):
                at = _number(rest.partition(",")[0]) or 0
                lines.append(f"{at / 1e6:.0f} {line}")
    except OSError as error:
        return fault(error)
    finally:
        os.close(fd)
    return {"lines": lines[-_MOST_LINES:], "whole": whole}


def read_clock(asked: Json) -> Json:  # noqa: ARG001 - every verb is asked something
    """How far off the clock may be, as the kernel was told by whoever keeps it: adjtimex(2)."""
    import ctypes  # noqa: PLC0415 - only this question needs it, and the child starts without

    class Timex(ctypes.Structure):
        _fields_ = (
            ("modes", ctypes.c_uint),
            ("offset", ctypes.c_long),
            ("freq", ctypes.c_long),
            ("maxerror", ctypes.c_long),
            ("rest", ctypes.c_byte * 256),  # more than the structure has, and never looked at
        )

    told = Timex()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.adjtimex(ctypes.byref(told)) < 0:
        code = ctypes.get_errno()
        return fault(OSError(code, os.strerror(code)))
    return {"error_ms": told.maxerror / 1000}


def is_answered(asked: Json) -> Json:
    """Whether anybody takes a connection there. Nothing is sent, and it is closed at once."""
    try:
        with socket.create_connection((asked["host"], asked["port"]), timeout=asked["limit"]):
            return {"answered": True}
    except OSError as error:
        known = fault(error) if error.errno else {"fault": "TIMEOUT", "said": str(error)}
        return {"answered": False, **known}


def _number(text: str) -> int | None:
    return int(text) if text.lstrip("-").isdigit() else None
