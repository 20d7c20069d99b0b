"""GGUF files for tests, written by hand: whole ones, and every kind of broken one."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

Value = int | str | float | Sequence[str] | Sequence[int]

F32 = 0


def text(said: str) -> bytes:
    """A string of the format: its length, then its bytes."""
    raw = said.encode()
    return struct.pack("<Q", len(raw)) + raw


def value(said: Value) -> bytes:
    """A typed value: u32, f32, string, or a list of strings or i32."""
    if isinstance(said, str):
        return struct.pack("<I", 8) + text(said)
    if isinstance(said, float):
        return struct.pack("<If", 6, said)
    if isinstance(said, int):
        return struct.pack("<II", 4, said)
    if said and isinstance(said[0], str):
        words = b"".join(text(str(word)) for word in said)
        return struct.pack("<IIQ", 9, 8, len(said)) + words
    return struct.pack("<IIQ", 9, 5, len(said)) + b"".join(
        struct.pack("<i", int(number)) for number in said
    )


def gguf(
    keys: Mapping[str, Value] | None = None,
    tensors: Mapping[str, int] | None = None,
    *,
    version: int = 3,
) -> bytes:
    """A whole file; `tensors` are named vectors of so many 32-bit floats."""
    keys = {"general.architecture": "llama"} if keys is None else keys
    tensors = {"token_embd.weight": 64} if tensors is None else tensors
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(keys))
    head += b"".join(text(name) + value(said) for name, said in keys.items())
    offset = 0
    for name, length in tensors.items():
        head += text(name) + struct.pack("<IQIQ", 1, length, F32, offset)
        offset += -(-length * 4 // 32) * 32
    head += bytes(-len(head) % 32)
    return head + bytes(offset)


def write_shards(directory: Path, stem: str, count: int) -> list[Path]:
    """A split model of `count` files with one tensor each, as gguf-split names and counts them."""
    paths = []
    for number in range(count):
        path = directory / f"{stem}-{number + 1:05d}-of-{count:05d}.gguf"
        keys: dict[str, Value] = {"general.architecture": "llama"} if number == 0 else {}
        keys |= {"split.no": number, "split.count": count, "split.tensors.count": count}
        path.write_bytes(gguf(keys, {f"blk.{number}.weight": 16}))
        paths.append(path)
    return paths
