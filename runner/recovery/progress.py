"""What a starting server shows of itself: its log, its fatal lines, whether anything moves."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from runner.recovery.recipe import Recipe
from runner.until import Clock

_TAIL = 64 * 1024


def log_size(recipe: Recipe) -> int:
    """How long the service's own log is now; 0 where it keeps none."""
    try:
        return os.stat(recipe.supervisor.get("log") or "").st_size
    except OSError:
        return 0


def log_since(recipe: Recipe, offset: int) -> list[str]:
    """What the service has logged since `offset`, at most its last 64 KiB."""
    try:
        with Path(recipe.supervisor.get("log") or "").open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(offset, size - _TAIL))
            return file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return []


def first_fatal(lines: list[str], patterns: list[str]) -> str | None:
    """The first line that means the start has failed. The first tells why; the last often nothing."""
    for line in lines:
        if any(re.search(pattern, line) for pattern in patterns):
            return line.strip()
    return None


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
