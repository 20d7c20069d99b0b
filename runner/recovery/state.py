"""`recovery.state`: how far a run has come, in two preallocated slots.

Rewriting bytes that are already allocated works on a full disk, and one of two slots always
survives a torn write. It is best effort: recovery looks at the world first and needs this only to
know what to clean up and which stop was already asked for.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

NAME = "recovery.state"
_SLOT = 64 * 1024  # a family of many workers has many identities
_HEAD = struct.Struct("<4sIQI")  # magic, CRC of the rest, sequence, length
_MAGIC = b"RST1"


def _pack(sequence: int, payload: bytes) -> bytes:
    body = _HEAD.pack(_MAGIC, 0, sequence, len(payload))[8:] + payload
    return _MAGIC + struct.pack("<I", zlib.crc32(body)) + body


def _unpack(slot: bytes) -> tuple[int, dict[str, Any]] | None:
    if len(slot) < _HEAD.size:
        return None
    magic, crc, sequence, length = _HEAD.unpack_from(slot)
    body = slot[8 : _HEAD.size + length]
    if magic != _MAGIC or len(body) != _HEAD.size - 8 + length or zlib.crc32(body) != crc:
        return None
    try:
        said = json.loads(slot[_HEAD.size : _HEAD.size + length])
    except ValueError:
        return None
    return (sequence, said) if isinstance(said, dict) else None


def _slots(fd: int) -> list[tuple[int, dict[str, Any]] | None]:
    return [_unpack(os.pread(fd, _SLOT, index * _SLOT)) for index in (0, 1)]


def read(state_dir: Path) -> dict[str, Any]:
    """The newest slot that is whole; an empty dict when there is none."""
    try:
        fd = os.open(state_dir / NAME, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return {}
    try:
        whole = [slot for slot in _slots(fd) if slot is not None]
    except OSError:
        return {}
    finally:
        os.close(fd)
    return max(whole, key=lambda slot: slot[0])[1] if whole else {}


class StateFile:
    """The writer's side. Everything written is kept and written again with what comes next."""

    def __init__(self, state_dir: Path) -> None:
        """Open, and allocate both slots so that later writes need no space. Raises OSError."""
        self._fd = os.open(state_dir / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.posix_fallocate(self._fd, 0, 2 * _SLOT)
        slots = _slots(self._fd)
        whole = [slot for slot in slots if slot is not None]
        newest = max(whole, key=lambda slot: slot[0]) if whole else None
        self._sequence = newest[0] if newest else 0
        self._said: dict[str, Any] = dict(newest[1]) if newest else {}
        # never overwrite the only whole slot
        self._next = 1 if newest is not None and slots[0] is newest else 0

    def begin(self, said: Mapping[str, object]) -> None:
        """Forget what was before, and write this. Raises OSError."""
        self._said = {}
        self.write(**said)

    def write(self, **said: object) -> None:
        """Add to what is known, durably. Raises OSError."""
        known = self._said | said
        payload = json.dumps(known, separators=(",", ":")).encode()
        if len(payload) > _SLOT - _HEAD.size:
            raise OSError(f"recovery.state holds at most {_SLOT - _HEAD.size} bytes")
        os.pwrite(self._fd, _pack(self._sequence + 1, payload), self._next * _SLOT)
        os.fdatasync(self._fd)
        self._said, self._sequence, self._next = known, self._sequence + 1, 1 - self._next

    def note(self, **said: object) -> bool:
        """As `write`, for the time after the stop, when nothing may hold up the way back."""
        try:
            self.write(**said)
        except OSError:
            return False
        return True

    @property
    def said(self) -> dict[str, Any]:
        """What is known so far."""
        return dict(self._said)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)
