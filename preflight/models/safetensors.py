"""Reads the header of a safetensors file, and the index of a split model. Standard library only.

Layout: u64 length of the header, little-endian; the header as JSON, which gives each tensor's
`data_offsets`; the data, which ends where the file does. An index is JSON, whose `weight_map` gives
each tensor's file. Both may be hostile: they are searched and never built up in memory.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

LARGEST_HEADER = 100_000_000
"""Bytes; the format's own limit."""
MOST_SECONDS = 0.8
"""Processor time, so that a slow disk is never taken for a broken file."""
MOST_FILES = 4096

_LENGTH = 8
_PIECE = 1 << 20
_OVERLAP = 4096
"""Bytes that are looked at twice, so that nothing is cut in half between two pieces."""
_OFFSETS = re.compile(
    rb'"data_offsets"\s{0,64}:\s{0,64}\[\s{0,64}(\d{1,20})\s{0,64},\s{0,64}(\d{1,20})\s{0,64}\]'
)
_FILE = re.compile(rb'"\s{0,64}:\s{0,64}"([^"\\/]{1,255}\.safetensors)"')


class Weights(NamedTuple):
    """What a safetensors file says of itself."""

    tensors: int
    data_start: int
    needed: int
    """How long the file has to be, in bytes: not shorter, and not longer."""


class _Bad(Exception):
    """The bytes are not what they should be."""


def read_weights(file: BinaryIO, size: int) -> Weights | str:
    """The header of an open file of so many bytes, or why there is none. Raises OSError."""
    length = int.from_bytes(file.read(_LENGTH), "little")
    if size < _LENGTH:
        return f"it is {size} bytes long, too short for a header"
    if length > LARGEST_HEADER:
        return "it has no header of that format"
    start = _LENGTH + length
    if start > size:
        return f"its header is cut off (it needs {start} bytes, and the file has {size})"
    if length < len("{}") or file.read(1) != b"{":
        return "its header is no JSON"
    tensors = ends = 0
    try:
        for _, end in _found(_OFFSETS, file, _LENGTH, start):
            tensors, ends = tensors + 1, max(ends, int(end))
    except _Bad as bad:
        return str(bad)
    return Weights(tensors, start, start + ends)


def read_index(path: str) -> tuple[str, ...] | str:
    """The files that an index names, in its order, or why it names none. Raises OSError."""
    size = Path(path).stat().st_size
    if size > LARGEST_HEADER:
        return f"it is {size} bytes long, too long for an index"
    names: dict[str, None] = {}
    with Path(path).open("rb") as file:
        try:
            for (name,) in _found(_FILE, file, 0, size):
                names[name.decode("utf-8", "replace")] = None
                if len(names) > MOST_FILES:
                    return f"it names more than {MOST_FILES} files"
        except _Bad as bad:
            return str(bad)
    return tuple(names) or "it names no .safetensors file"


def _found(
    pattern: re.Pattern[bytes], file: BinaryIO, start: int, end: int
) -> Iterator[tuple[bytes, ...]]:
    """Everything that fits between two places, each once; at most two pieces are in memory."""
    until = time.thread_time() + MOST_SECONDS
    file.seek(start)
    at, rest, seen = start, b"", start
    while at < end and (piece := file.read(min(_PIECE, end - at))):
        text = rest + piece
        base = at - len(rest)
        for match in pattern.finditer(text):
            if base + match.start() >= seen:
                seen = base + match.end()
                yield match.groups()
        at += len(piece)
        rest = text[-_OVERLAP:]
        if time.thread_time() > until:
            raise _Bad("its header takes absurdly long to read")
