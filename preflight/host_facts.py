"""What is known of the host beside its files and its GPUs, as facts. It must not look."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Text:
    """A small text file of the kernel or of the system; with a fault it could not be read."""

    path: str
    text: str = ""
    fault: str = ""
    said: str = ""

    @property
    def absent(self) -> bool:
        """Whether there is no such file, which is an answer too."""
        return self.fault in ("ENOENT", "ENOTDIR")


@dataclass(frozen=True, slots=True)
class Unit:
    """What systemd tells of one unit; with a fault it tells nothing."""

    name: str
    values: Mapping[str, str] = field(default_factory=dict)
    fault: str = ""
    said: str = ""

    def get(self, key: str) -> str:
        """One property; empty where it was not told."""
        return self.values.get(key, "")

    def names(self, key: str) -> tuple[str, ...]:
        """A property that lists units."""
        return tuple(self.get(key).split())


@dataclass(frozen=True, slots=True)
class Running:
    """One process in the table of all, without what only some questions need."""

    pid: int
    ppid: int
    state: str
    comm: str
    argv: tuple[str, ...] = ()
    uid: int = -1
    ticks: int = 0
    """CPU time so far, in clock ticks."""
    start: int = 0


@dataclass(frozen=True, slots=True)
class Held:
    """A file and the processes that hold a lock on it; none of them may be visible."""

    path: str
    pids: tuple[int, ...] = ()
    fault: str = ""
    said: str = ""


@dataclass(frozen=True, slots=True)
class Terminal:
    """A terminal that somebody has open, and how long ago anything was typed or shown there."""

    name: str
    uid: int
    user: str
    idle_s: float


@dataclass(frozen=True, slots=True)
class ClockFact:
    """What the kernel knows of its clock: the largest error it may have, in milliseconds."""

    error_ms: float = 0.0
    fault: str = ""
    said: str = ""


@dataclass(frozen=True, slots=True)
class KernelLog:
    """Lines of the kernel's log since the boot that hold one of the words asked for.

    `whole` is False when the oldest lines are no longer there. Faults: "absent" (this machine has
    no log to read, as in a container), an errno's name when it may not be read, TIMEOUT, CRASH.
    """

    lines: tuple[str, ...] = ()
    whole: bool = True
    fault: str = ""
    said: str = ""
