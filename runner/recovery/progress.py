"""What a starting server shows of itself: its log, its fatal lines, whether anything moves."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runner.recovery.recipe import Recipe
from runner.until import Clock

_PIECE = 1 << 20


def log_size(recipe: Recipe) -> int:
    """How long the service's own log is now; 0 where it keeps none."""
    try:
        return os.stat(recipe.supervisor.get("log") or "").st_size
    except OSError:
        return 0


class LogWatch:
    """A log that somebody else writes, read on from where it was: its lines, its first fatal one.

    Each line is looked at once, however often it is asked: a verbose server writes megabytes.
    """

    def __init__(self, path: str | os.PathLike[str], fatal: Sequence[str], offset: int = 0) -> None:
        """`fatal` are patterns of lines after which waiting is pointless."""
        self._path, self._offset, self._held = Path(path), offset, b""
        self._fatal = [re.compile(pattern) for pattern in fatal]
        self.first_fatal: str | None = None
        self.last_line = ""

    def look(self) -> str | None:
        """Read what is new; the first fatal line so far. The first tells why, the last often not."""
        while piece := self._more():
            *whole, self._held = (self._held + piece).split(b"\n")
            for raw in whole:
                self._judge(raw)
            if len(self._held) > _PIECE:  # no line of a log is that long
                self._held = b""
        return self.first_fatal

    def end(self) -> str | None:
        """As `look`, when nobody writes any more: a last line without its end counts too."""
        self.look()
        if self._held:
            self._judge(self._held)
            self._held = b""
        return self.first_fatal

    def _judge(self, raw: bytes) -> None:
        line = raw.decode("utf-8", "replace").strip()
        self.last_line = line or self.last_line
        if self.first_fatal is None and any(pattern.search(line) for pattern in self._fatal):
            self.first_fatal = line

    def _more(self) -> bytes:
        try:
            with self._path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                if size < self._offset:  # it was cut, by a rotation for one
                    self._offset, self._held = 0, b""
                file.seek(self._offset)
                piece = file.read(_PIECE)
        except OSError:
            return b""
        self._offset += len(piece)
        return piece


class Progress:
    """Whether anything at all moves while a server loads: log, CPU time, reads, memory."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._mark, self._since = clock, (), clock.now()

    def stalled(self, pids: set[int], log: int) -> float:
        """Seconds for which nothing has moved."""
        mark: tuple[Any, ...] = (log, *(_effort(pid) for pid in sorted(pids)))
        if mark != self._mark:
            self._mark, self._since = mark, self._clock.now()
        return self._clock.now() - self._since


def _effort(pid: int) -> tuple[str, str]:
    try:
        counters = Path(f"/proc/{pid}/io").read_text(encoding="ascii")
    except OSError:
        counters = ""
    try:
        times = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return counters, ""
    fields = times.rpartition(")")[2].split()
    return counters, " ".join(fields[11:13] + fields[21:22])  # utime, stime, rss
