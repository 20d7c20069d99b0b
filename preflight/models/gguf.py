"""Reads the header of a GGUF file, and nothing behind it. Standard library only.

A header says what a file is and how long it has to be, in milliseconds, where the common reader
needs seconds for a large vocabulary. The input is hostile until proven otherwise: whatever the
bytes are, the answer is a Header or a BadGguf, in bounded memory and bounded time.

Layout (GGUF 3): magic, u32 version, u64 tensors, u64 keys, the keys with their values, a row per
tensor, padding to `general.alignment`, the data. Everything is little-endian.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from preflight.models.ggml import BLOCKS

MAGIC = b"GGUF"
LARGEST_HEADER = 64 << 20
"""Bytes. A vocabulary of 262,144 words makes a header of about 12 MiB."""
MOST_SECONDS = 0.8
"""Processor time, so that a slow disk is never taken for a broken file."""

_WINDOW = 1 << 20
_LONGEST_KEY = 1 << 16  # the format's own limit
_LONGEST_TENSOR_NAME = 63  # GGML_MAX_NAME counts the closing zero
_KEPT_TEXT = 4096  # of one value
_KEPT_NUMBERS = 1024  # of one list
_KEPT_IN_ALL = 8 << 20  # bytes of text and eight a number, so that no mixture fills the memory
_MOST_ROWS = 1 << 15
_MOST_DIMENSIONS = 4  # GGML_MAX_DIMS

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_TEXT, _ARRAY = 8, 9
_SCALARS = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: struct.Struct("<I"),
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    7: struct.Struct("<?"),
    10: struct.Struct("<Q"),
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}

Scalar = int | float | bool | str


@dataclass(frozen=True, slots=True)
class Array:
    """A list in the metadata; its values only where they are few numbers.

    `start` and `end` are where its items lie in the file, in bytes.
    """

    count: int
    values: tuple[Scalar, ...] | None = None
    start: int = field(default=0, compare=False)
    end: int = field(default=0, compare=False)


Value = Scalar | Array


@dataclass(frozen=True, slots=True)
class Tensor:
    """One row of the tensor table; `size` is None for a type this reader does not know."""

    name: str
    shape: tuple[int, ...]
    type: int
    offset: int
    size: int | None


@dataclass(frozen=True, slots=True)
class Header:
    """What a GGUF file says about itself."""

    version: int
    keys: Mapping[str, Value]
    tensors: tuple[Tensor, ...]
    data_start: int
    file_size: int

    @property
    def architecture(self) -> str | None:
        """general.architecture; shards behind the first have none."""
        found = self.keys.get("general.architecture")
        return found if isinstance(found, str) else None

    @property
    def needed_size(self) -> int:
        """How long the file has to be for every tensor of a known type, in bytes."""
        ends = [row.offset + row.size for row in self.tensors if row.size is not None]
        return self.data_start + max(ends, default=0)

    @property
    def misplaced(self) -> str:
        """The first tensor that does not begin where those before it end; empty for a sound file.

        llama.cpp refuses such a file (gguf.cpp of b11434), and other readers take the bytes of one
        tensor for those of the next. Behind a type of unknown size nothing can be told.
        """
        alignment = self.number("general.alignment") or 32
        expected = 0
        for row in self.tensors:
            if row.offset != expected:
                return row.name
            if row.size is None:
                break
            expected += -(-row.size // alignment) * alignment
        return ""

    @property
    def untold(self) -> int:
        """How many tensors are of a type whose size is not known here."""
        return sum(row.size is None for row in self.tensors)

    @property
    def missing(self) -> int:
        """Bytes that the file is too short; 0 for a whole file."""
        return max(0, self.needed_size - self.file_size)

    def number(self, key: str) -> int | None:
        """An integer of the metadata, or None when it is not there or something else."""
        found = self.keys.get(key)
        return found if isinstance(found, int) and not isinstance(found, bool) else None


@dataclass(frozen=True, slots=True)
class BadGguf:
    """Why this is no GGUF file that a server could load, and at which byte that shows."""

    why: str
    at: int


class _Bad(Exception):
    """The bytes are not a header."""

    def __init__(self, why: str, at: int) -> None:
        super().__init__(why)
        self.bad = BadGguf(why, at)


@dataclass(slots=True)
class _Window:
    """A piece of the file that moves forward; at most one piece and one name are in memory."""

    file: BinaryIO
    size: int
    limit: int
    ends: float
    buffer: bytes = b""
    base: int = 0
    at: int = 0
    kept: int = 0

    @property
    def place(self) -> int:
        return self.base + self.at

    def keep(self, count: int) -> None:
        """Account for what the Header will hold on to."""
        self.kept += count
        if self.kept > _KEPT_IN_ALL:
            raise _Bad("it says absurdly much about itself", self.place)

    def need(self, count: int) -> None:
        """Make the next `count` bytes available at `self.at`."""
        if self.at + count <= len(self.buffer):
            return
        place = self.place
        if place + count > self.size:
            raise _Bad("the header is cut off", self.size)
        if place + count > self.limit:
            raise _Bad(f"the header is longer than {self.limit >> 20} MiB", place)
        if time.thread_time() > self.ends:
            raise _Bad("the header takes absurdly long to read", place)
        self.file.seek(place)
        self.buffer = self.file.read(max(count, _WINDOW))
        self.base, self.at = place, 0
        if len(self.buffer) < count:  # it shrank under us
            raise _Bad("the header is cut off", place + len(self.buffer))

    def skip(self, count: int) -> None:
        """Leave out `count` bytes without reading them."""
        if self.place + count > self.size:
            raise _Bad("the header is cut off", self.size)
        self.at += count

    def take(self, shape: struct.Struct) -> Scalar:
        self.need(shape.size)
        value: Scalar = shape.unpack_from(self.buffer, self.at)[0]
        self.at += shape.size
        return value

    def number(self, shape: struct.Struct) -> int:
        return int(self.take(shape))

    def name(self, longest: int) -> str:
        """A key or a tensor's name."""
        length = self.number(_U64)
        if length > longest:
            raise _Bad(f"a name of {length} bytes", self.place - _U64.size)
        return self._text(length)

    def text(self) -> str:
        """A value of any length, of which the beginning is kept."""
        length = self.number(_U64)
        kept = self._text(min(length, _KEPT_TEXT))
        self.skip(max(0, length - _KEPT_TEXT))
        return kept

    def _text(self, length: int) -> str:
        self.keep(length)
        self.need(length)
        raw = self.buffer[self.at : self.at + length]
        self.at += length
        return raw.decode("utf-8", "replace")

    def skip_texts(self, count: int) -> None:
        """Leave out a list of texts: a vocabulary has hundreds of thousands, so this loop is bare."""
        unpack = _U64.unpack_from
        while count:
            self.need(_U64.size)
            buffer, at, left = self.buffer, self.at, count
            try:
                for left in range(count, 0, -1):  # noqa: B007 - what is left when it breaks off
                    at += 8 + unpack(buffer, at)[0]
                left = 0
            except (struct.error, OverflowError):  # the window ends inside this length
                pass
            count, self.at = left, at
        self.skip(0)


def _array(window: _Window) -> Array:
    at = window.place
    kind, count = window.number(_U32), window.number(_U64)
    shape = _SCALARS.get(kind)
    width = shape.size if shape is not None else _U64.size
    if kind != _TEXT and shape is None:
        raise _Bad(f"a list of values of unknown type {kind}", at)
    if count * width > window.size - window.place:
        raise _Bad(f"a list of {count} values does not fit into the file", at)
    start = window.place
    if shape is None:
        window.skip_texts(count)
        return Array(count, None, start, window.place)
    if count > _KEPT_NUMBERS:
        window.skip(count * width)
        return Array(count, None, start, window.place)
    window.keep(count * 8)
    values = tuple(window.take(shape) for _ in range(count))
    return Array(count, values, start, window.place)


def _value(window: _Window) -> Value:
    at = window.place
    kind = window.number(_U32)
    if kind == _TEXT:
        return window.text()
    if kind == _ARRAY:
        return _array(window)
    shape = _SCALARS.get(kind)
    if shape is None:
        raise _Bad(f"a value of unknown type {kind}", at)
    return window.take(shape)


def _keys(window: _Window, count: int) -> dict[str, Value]:
    keys: dict[str, Value] = {}
    for _ in range(count):
        at = window.place
        name = window.name(_LONGEST_KEY)
        if name in keys:
            raise _Bad(f"the key {name!r} is there twice", at)
        keys[name] = _value(window)
    return keys


def _tensor(window: _Window) -> Tensor:
    at = window.place
    name, dimensions = window.name(_LONGEST_TENSOR_NAME), window.number(_U32)
    if dimensions > _MOST_DIMENSIONS:
        raise _Bad(f"tensor {name!r} has {dimensions} dimensions", at)
    shape = tuple(window.number(_U64) for _ in range(dimensions))
    kind, offset = window.number(_U32), window.number(_U64)
    elements = 1
    for length in shape:
        elements *= length
    if elements >= 1 << 63:
        raise _Bad(f"tensor {name!r} has an absurd shape", at)
    block = BLOCKS.get(kind)
    if block is not None and shape and shape[0] % block[0]:
        raise _Bad(f"tensor {name!r} does not fill its blocks", at)
    bytes_ = None if block is None else elements // block[0] * block[1]
    return Tensor(name, shape, kind, offset, bytes_)


def _start(window: _Window) -> tuple[int, int, int]:
    window.need(min(4, window.size))
    if window.buffer[:4] != MAGIC:
        raise _Bad("it does not begin with the magic letters GGUF", 0)
    window.at = 4
    version = window.number(_U32)
    if version & 0xFFFF == 0 and version:
        raise _Bad("it is a big-endian GGUF, for another kind of processor", 4)
    if version not in (2, 3):
        raise _Bad(f"it is GGUF version {version}; servers load versions 2 and 3", 4)
    tensors, keys = window.number(_U64), window.number(_U64)
    for what, count, least in (("keys", keys, 13), ("tensors", tensors, 24)):
        if count > _MOST_ROWS or count * least > window.size:
            raise _Bad(f"it claims {count} {what}", 8)
    return version, tensors, keys


def _header(window: _Window) -> Header:
    version, tensors, count = _start(window)
    keys = _keys(window, count)
    alignment = keys.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment <= 0 or alignment & (alignment - 1):
        raise _Bad(f"its alignment is {alignment!r}", window.place)
    rows = tuple(_tensor(window) for _ in range(tensors))
    data = -(-window.place // alignment) * alignment
    # a file without tensors ends with its keys, unpadded
    return Header(version, keys, rows, data if rows else window.place, window.size)


def read_header(
    path: str, *, max_bytes: int = LARGEST_HEADER, seconds: float = MOST_SECONDS
) -> Header | BadGguf:
    """The header of one file. OSError when it cannot be read at all."""
    with Path(path).open("rb", buffering=0) as file:
        window = _Window(file, file.seek(0, 2), max_bytes, time.thread_time() + seconds)
        file.seek(0)
        try:
            return _header(window)
        except _Bad as said:
            return said.bad
