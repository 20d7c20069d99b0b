"""How facts are put into words: sizes, times, commands, names from a hostile file system.

It must not know checks. Everything that reaches a terminal, an alert or a log goes through
`printable` first: a file name may hold newlines and escape codes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime, tzinfo

_KIB, _MIB, _GIB = 1 << 10, 1 << 20, 1 << 30


def printable(text: str) -> str:
    """The text with everything that could move a cursor or forge a line shown as an escape."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else ascii(char)[1:-1].replace("\\\\", "\\") for char in text
    )


def clipped(text: str, limit: int) -> str:
    """At most `limit` characters, with … where something was cut off at the end."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def short_path(path: str, limit: int = 48) -> str:
    """The path with its middle left out: the file's name is what a phone must show.

    Of a name that is too long by itself its beginning and its end are shown.
    """
    if len(path) <= limit:
        return path
    name = path.rsplit("/", 1)[-1]
    most = limit - len("/…/")
    if len(name) > most:
        tail = most // 2
        name = f"{name[: most - tail - 1]}…{name[-tail:]}"
    room = limit - len(name) - 3
    head = path[: max(room, 0)].rsplit("/", 1)[0]
    return f"{head}/…/{name}"


def size(count: int) -> str:
    """Bytes for people: 253 B, 1.9 MiB, 21.3 GiB."""
    for unit, name in ((_GIB, "GiB"), (_MIB, "MiB"), (_KIB, "KiB")):
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count} B"


def memory(mib: int) -> str:
    """MiB for people: below 1 GiB as MiB, above as GiB with one decimal."""
    return f"{mib / 1024:.1f} GiB" if abs(mib) >= 1024 else f"{mib} MiB"


def seconds(amount: float) -> str:
    """A duration in seconds without needless decimals."""
    return f"{round(amount, 2):g} s"


def when(epoch: float, now: float | None = None) -> str:
    """A moment on the clock that people here read: 20:41 if it is today, else 2026-11-28 20:41."""
    moment = datetime.fromtimestamp(epoch, _CLOCK.zone)
    today = datetime.fromtimestamp(time.time() if now is None else now, _CLOCK.zone)
    same = moment.date() == today.date()
    return f"{moment:%H:%M}" if same else f"{moment:%Y-%m-%d %H:%M}"


class _Clock:
    """In which zone times are told; the box's own while nobody has said."""

    zone: tzinfo | None = None


_CLOCK = _Clock()


def tell_times_in(zone: tzinfo | None) -> None:
    """Let times be told in this zone from now on: an alert must not hold two different clocks."""
    _CLOCK.zone = zone


def command(argv: Sequence[str], limit: int = 60) -> str:
    """A command line for people: the program without its directory, clipped."""
    if not argv:
        return ""
    return clipped(" ".join([argv[0].rsplit("/", 1)[-1] or argv[0], *argv[1:]]), limit)


def named(items: Sequence[str], limit: int = 3) -> str:
    """A few of many: "a, b and 29 more"."""
    if len(items) <= limit:
        return ", ".join(items)
    return f"{', '.join(items[:limit])} and {len(items) - limit} more"
