"""Whether a person can be reached if a run goes wrong: asked before production is stopped.

A run whose failure nobody would hear of must not start, unless that is accepted in writing.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from alerts.channel import Channel
from runner import words
from runner.journal import Journal

FRESH_S = 7 * 24 * 3600.0
"""A delivery proves the path for this long, in seconds."""
_CLOCKS_DIFFER_S = 3600.0


@dataclass(frozen=True, slots=True)
class Reach:
    """Whether the way to a person is proven, and what is known of it."""

    proven: bool
    said: str


def reach(journal: Journal, channels: Sequence[Channel], *, live: bool) -> Reach:
    """What the last deliveries tell. A live terminal is a person; a file is proven by its disk.

    Where a channel that goes out into the world is configured, only its own delivery counts.
    """
    if live:
        return Reach(True, "a person watches this run")
    if not channels:
        return Reach(False, "no channel is configured under [alerts]")
    kinds = ", ".join(dict.fromkeys(channel.kind for channel in channels))
    if not any(channel.far for channel in channels):
        return Reach(True, f"told on this machine only ({kinds})")
    last = journal.last_delivery()
    if last is None:
        return Reach(False, f"no delivery over {kinds} was ever proven")
    age = time.time() - last
    if age < -_CLOCKS_DIFFER_S:
        why = "was at a time that is still to come: the clock was set back since"
        return Reach(False, f"the last proven delivery over {kinds} {why}")
    said = f"the last proven delivery over {kinds} was {words.duration(max(0.0, age))} ago"
    return Reach(age < FRESH_S, said)
