"""Puts the headers of a model's files together: its layers, its weights, what its tensors prove.

Standard library only; it reads no file. What metadata claims and tensors do not show is not
believed: a file can name MTP layers that lie in another file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from preflight.models.gguf import Array, Header, Scalar

_LONGEST_TEXT = 512
_MOST_KEYS = 512
_MOST_LISTS = 64
_MOST_OUTSIDE = 64
_MOST_LAYERS = 4096
_MOST_NAMED = 3
_BLOCK = "blk."
_MTP = ".nextn.eh_proj.weight"
HOST, GPU = "host", "gpu"
TOKENS = "tokenizer.ggml.tokens"


def scalars(header: Header) -> dict[str, Scalar]:
    """The single values of the metadata, long texts clipped."""
    found: dict[str, Scalar] = {}
    for name, value in header.keys.items():
        if not isinstance(value, Array) and len(found) < _MOST_KEYS:
            found[name] = value[:_LONGEST_TEXT] if isinstance(value, str) else value
    return found


def _lists(header: Header) -> dict[str, tuple[Scalar, ...]]:
    """The short lists of the architecture: one value for each layer."""
    start = f"{header.architecture}."
    found: dict[str, tuple[Scalar, ...]] = {}
    for name, value in header.keys.items():
        values = value.values if isinstance(value, Array) else None
        if values is not None and name.startswith(start) and len(found) < _MOST_LISTS:
            found[name] = values
    return found


def layer_of(name: str) -> int | None:
    """The layer that a tensor belongs to: 7 for blk.7.attn_q.weight."""
    if not name.startswith(_BLOCK):
        return None
    number = name[len(_BLOCK) :].partition(".")[0]
    if not number.isascii() or not number.isdecimal() or len(number) > 4:
        return None
    return int(number) if int(number) < _MOST_LAYERS else None


class _Sums:
    """The tensor tables of all files, added up."""

    def __init__(self, overrides: Sequence[tuple[str, str]]) -> None:
        self._rules = [(re.compile(pattern), place) for pattern, place in overrides]
        self.tensors = self.size = self.untold = 0
        self.blocks: dict[int, int] = {}
        self.moved: dict[str, dict[int, int]] = {HOST: {}, GPU: {}}
        self.placed: dict[str, str] = {}
        self.outside: dict[str, int] = {}
        self.mtp: set[int] = set()
        self.repeated: list[str] = []
        self._seen: set[str] = set()

    def add(self, header: Header) -> None:
        """One more file."""
        names = {row.name for row in header.tensors}
        self.repeated += sorted(names & self._seen)[:_MOST_NAMED]
        self._seen |= names
        self.tensors += len(header.tensors)
        for row in header.tensors:
            size = row.size or 0
            self.size += size
            self.untold += row.size is None
            layer, place = layer_of(row.name), self._told(row.name)
            if layer is not None:
                self.blocks[layer] = self.blocks.get(layer, 0) + size
                if place is not None:
                    moved = self.moved[place]
                    moved[layer] = moved.get(layer, 0) + size
                if row.name.endswith(_MTP):
                    self.mtp.add(layer)
            elif len(self.outside) < _MOST_OUTSIDE:
                self.outside[row.name] = size
                if place is not None:
                    self.placed[row.name] = place

    def _told(self, name: str) -> str | None:
        """Where a tensor is told to go: by the first rule that fits (llama-model-loader.cpp)."""
        return next((place for pattern, place in self._rules if pattern.search(name)), None)


def together(
    headers: Sequence[Header], overrides: Sequence[tuple[str, str]] = ()
) -> dict[str, Any]:
    """The fields of ModelFact for these files, the first one first; plain JSON.

    `overrides` are regular expressions for names of tensors, each with HOST or GPU.
    """
    first = next((one for one in headers if one.architecture), headers[0])
    sums = _Sums(overrides)
    for header in headers:
        sums.add(header)
    last = max(sums.blocks, default=-1)
    layers = range(last + 1)
    tokens = first.keys.get(TOKENS)
    return {
        "keys": scalars(first),
        "lists": _lists(first),
        "tensors": sums.tensors,
        "size": sums.size,
        "untold": sums.untold,
        "blocks": [sums.blocks.get(layer, 0) for layer in layers],
        "on_host": [sums.moved[HOST].get(layer, 0) for layer in layers],
        "on_gpu": [sums.moved[GPU].get(layer, 0) for layer in layers],
        "placed": sums.placed,
        "outside": sums.outside,
        "mtp": sorted(sums.mtp),
        "repeated": sums.repeated[:_MOST_NAMED],
        "gaps": [layer for layer in layers if layer not in sums.blocks][:_MOST_NAMED],
        "words": tokens.count if isinstance(tokens, Array) else None,
    }
