"""Writes GGUF files, version 3. Knows the container; knows nothing of models.

Layout (ggml's docs/gguf.md): magic, version, two counts, key-value pairs, tensor infos, then the
tensors' bytes, each at a multiple of 32. All numbers are little-endian; all tensors are float32.
"""

import struct
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class U16(int):
    """A whole number that the reader wants in 16 bits."""


class I32(int):
    """A whole number that the reader wants with a sign."""


Value = bool | int | float | str | Sequence[str] | Sequence[int]

_VERSION = 3
_ALIGNMENT = 32
_FLOAT32 = 0  # ggml_type; the only kind of tensor written here
_SIGNED, _STRING, _ARRAY = 5, 8, 9  # gguf_type
# Python's type, gguf_type, struct's letter; the first that fits counts, and a bool is an int too
_NUMBERS = ((bool, 7, "?"), (U16, 2, "H"), (I32, _SIGNED, "i"), (int, 4, "I"), (float, 6, "f"))


def write(path: Path, metadata: Mapping[str, Value], tensors: Mapping[str, Array]) -> None:
    """Write one file; a tensor's shape is [out, in], as numpy has it."""
    header = bytearray(b"GGUF" + struct.pack("<IQQ", _VERSION, len(tensors), len(metadata)))
    for key, value in metadata.items():
        header += _text(key) + _value(value)
    offset = 0
    for name, tensor in tensors.items():
        shape = tensor.shape[::-1]  # GGUF names the fastest dimension first
        header += _text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        header += struct.pack("<IQ", _FLOAT32, offset)
        offset += _padded(tensor.size * 4)
    with path.open("wb") as file:
        file.write(header.ljust(_padded(len(header)), b"\0"))
        for tensor in tensors.values():
            content = tensor.astype("<f4").tobytes()
            file.write(content.ljust(_padded(len(content)), b"\0"))


def write_shards(
    path: Path, metadata: Mapping[str, Value], tensors: Mapping[str, Array], count: int
) -> tuple[Path, ...]:
    """Write `count` files with equal shares of the tensors; the metadata is in the first alone.

    `path` is the name without the shard's number: model.gguf becomes model-00001-of-00004.gguf.
    """
    names = list(tensors)
    ends = [number * len(names) // count for number in range(count + 1)]
    paths = shard_paths(path, count)
    for number, (target, (start, end)) in enumerate(zip(paths, pairwise(ends), strict=True)):
        split: dict[str, Value] = {
            "split.no": U16(number),
            "split.count": U16(count),
            "split.tensors.count": I32(len(names)),
        }
        share = {name: tensors[name] for name in names[start:end]}
        write(target, {**metadata, **split} if number == 0 else split, share)
    return paths


def shard_paths(path: Path, count: int) -> tuple[Path, ...]:
    """Names of a model's files as llama.cpp wants them (llama_split_path)."""
    numbers = range(1, count + 1)
    return tuple(
        path.with_name(f"{path.stem}-{number:05d}-of-{count:05d}{path.suffix}")
        for number in numbers
    )


def _padded(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def _value(value: Value) -> bytes:
    """Encode a value with its type in front; a plain int is unsigned, in 32 bits."""
    if isinstance(value, int | float):
        kind, letter = next(rest for python, *rest in _NUMBERS if isinstance(value, python))
        return struct.pack(f"<I{letter}", kind, value)
    if isinstance(value, str):
        return struct.pack("<I", _STRING) + _text(value)
    kind, items = _array(value)
    return struct.pack("<IIQ", _ARRAY, kind, len(items)) + b"".join(items)


def _array(items: Sequence[str] | Sequence[int]) -> tuple[int, list[bytes]]:
    """Encode the items of a list; numbers in a list are signed."""
    texts = [_text(item) for item in items if isinstance(item, str)]
    if texts:
        return _STRING, texts
    return _SIGNED, [struct.pack("<i", item) for item in items]
