"""How the files of a split model are called: llama.cpp derives all from the name of the first.

Standard library only; it looks at names and never at files.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_SHARD = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ShardName:
    """A path of the form STEM-00001-of-00033.gguf."""

    stem: str
    number: int
    count: int

    def path(self, number: int) -> str:
        """The path of the shard with this number, counted from 1."""
        return f"{self.stem}-{number:05d}-of-{self.count:05d}.gguf"

    def paths(self) -> tuple[str, ...]:
        """Every path of the set, in order."""
        return tuple(self.path(number) for number in range(1, self.count + 1))


def shard_name(path: str) -> ShardName | None:
    """What the name says about a set of shards; None for a file that stands alone."""
    match = _SHARD.fullmatch(path)
    if match is None or not 1 <= int(match["number"]) <= int(match["count"]):
        return None
    return ShardName(match["stem"], int(match["number"]), int(match["count"]))
