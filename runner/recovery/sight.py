"""Seeing what belongs to other users: capabilities that a run has, and nothing that it starts.

Preflight must tell who owns a port and which file a server maps, also where production is another
user's. A candidate must not: what may look into every process can take it over.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator

_PR_SET_KEEPCAPS = 8
_PR_CAP_AMBIENT = 47
_IS_SET, _RAISE, _LOWER = 1, 2, 3
_VERSION_3 = 0x20080522
CAPABILITIES = (2, 19, 34)
"""CAP_DAC_READ_SEARCH, CAP_SYS_PTRACE and CAP_SYSLOG, as the unit of a run has them."""


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Sets(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


def _prctl(option: int, first: int, second: int = 0) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    done: int = libc.prctl(option, first, second, 0, 0)
    return done


def _set(mask: int) -> bool:
    """Have exactly these capabilities, and leave to hand them on."""
    header = _Header(_VERSION_3, 0)
    low, high = mask & 0xFFFFFFFF, mask >> 32
    sets = (_Sets * 2)(_Sets(low, low, low), _Sets(high, high, high))
    done: int = ctypes.CDLL(None, use_errno=True).capset(ctypes.byref(header), sets)
    return done == 0


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """Inside, this process becomes another user; afterwards it sees as the units do, no more.

    Where the machine grants it not, it sees what that user sees.
    """
    _prctl(_PR_SET_KEEPCAPS, 1)
    try:
        yield
    finally:
        _prctl(_PR_SET_KEEPCAPS, 0)
        if _set(sum(1 << number for number in CAPABILITIES)):
            for number in CAPABILITIES:
                _prctl(_PR_CAP_AMBIENT, _RAISE, number)


@contextlib.contextmanager
def unhanded() -> Iterator[None]:
    """Inside, what this thread starts is handed none of them."""
    ambient = [number for number in CAPABILITIES if _prctl(_PR_CAP_AMBIENT, _IS_SET, number) == 1]
    for number in ambient:
        _prctl(_PR_CAP_AMBIENT, _LOWER, number)
    try:
        yield
    finally:
        for number in ambient:
            _prctl(_PR_CAP_AMBIENT, _RAISE, number)


def has() -> bool:
    """Whether this process sees what belongs to others."""
    if os.geteuid() == 0:
        return True
    return all(_prctl(_PR_CAP_AMBIENT, _IS_SET, number) == 1 for number in CAPABILITIES)
