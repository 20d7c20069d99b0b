"""How busy the machine is: numbers measured on a contended one are not worth much.

Pressure is the share of time in which somebody waited: /proc/pressure, "some", over ten seconds.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar, Literal

from preflight.box import Box, Running, Text
from preflight.check import Check, Deadline, Explained
from preflight.ports.owner import ExpectedOwner
from preflight.verdict import BlastRadius, State, Verdict
from preflight.wording import command, named

_KINDS = ("cpu", "memory", "io")
_SOME = re.compile(r"^some avg10=([0-9.]+)", re.MULTILINE)
_MOST = {"cpu": 10.0, "memory": 5.0, "io": 20.0}
"""From here on numbers scatter: percent of the last ten seconds in which somebody waited."""
_LOAD = "/proc/loadavg"
_CORES = "/sys/devices/system/cpu/online"


class Quiet(Check):
    """Nobody else keeps the machine busy; if somebody does, the results are tagged with it."""

    id: ClassVar[str] = "host.load"
    radius: ClassVar[BlastRadius] = BlastRadius.HOST
    explains: ClassVar[tuple[Explained, ...]] = (
        Explained(
            "host.load",
            reads="/proc/pressure/{cpu,memory,io} where the kernel has it, else /proc/loadavg beside "
            "the number of cores; and which processes run just now",
            passes="cpu pressure below 10 %, memory below 5 %, io below 20 %",
            warns="above: results of this run are tagged as contended",
            fails="cpu pressure is above what the job allows ([needs] cpu_pressure_at_most)",
            unknown="neither pressure nor load can be read",
            remedies=("wait until it is quiet, or ask whoever is named",),
        ),
    )

    kind: Literal["quiet"] = "quiet"
    production: tuple[ExpectedOwner, ...] = ()
    """Its own work is no contention: it will be gone."""
    at_most: float | None = None
    """CPU pressure in percent above which the job does not want to run."""

    @property
    def subject(self) -> str:
        """This machine."""
        return "this machine"

    def look(self, box: Box) -> Verdict:
        """Pressure first; the load tells less, and is always there."""
        time = Deadline(self.deadline_s)
        paths = [f"/proc/pressure/{kind}" for kind in _KINDS]
        *pressures, load, cores = box.texts([*paths, _LOAD, _CORES], within=time.left())
        found = {
            kind: float(match[1])
            for kind, text in zip(_KINDS, pressures, strict=True)
            if (match := _SOME.search(text.text)) is not None
        }
        wanted = "a quiet machine; what is measured on another is tagged as contended"
        if self.at_most is not None:
            wanted = f"at most {self.at_most:g} % pressure"
        if not found:
            return self._by_load(load, cores, wanted)
        said = ", ".join(f"{kind} pressure {value:.0f} %" for kind, value in found.items())
        over = [kind for kind, value in found.items() if value >= _MOST[kind]]
        if self.at_most is not None and found.get("cpu", 0.0) > self.at_most:
            return self._says(State.FAIL, said, wanted, self._busy(box))
        if over:
            return self._says(State.WARN, said, wanted, self._busy(box))
        return self.says(State.PASS, said, wanted=wanted)

    def _says(self, state: State, said: str, wanted: str, busy: Sequence[str]) -> Verdict:
        by = f" ({named(busy)})" if busy else ""
        return self.says(
            state,
            f"{said}{by}",
            wanted=wanted,
            remedy="wait until it is quiet"
            + (f", or ask {busy[0].rpartition(', ')[2]}" if busy else ""),
        )

    def _by_load(self, load: Text, cores: Text, wanted: str) -> Verdict:
        """Without pressure: one runnable process a core is as much as there is room for."""
        count = _counted(cores.text)
        try:
            one = float(load.text.split()[0])
        except (ValueError, IndexError):
            found = f"neither pressure nor load can be read: {load.said or 'no number'}"
            return self.says(State.UNKNOWN, found, wanted=wanted, remedy="try: cat /proc/loadavg")
        said = f"load {one:g} on {count or 'an unknown number of'} cores"
        if count and one > count:
            return self._says(State.WARN, said, wanted, ())
        return self.says(State.PASS, said, wanted=wanted)

    def _busy(self, box: Box) -> list[str]:
        """Who runs just now, the most CPU time first; not production, and not we."""
        mine = box.me().line
        running = [
            one
            for one in box.table()
            if one.state == "R" and one.pid not in mine and one.ppid not in mine[:1]
        ]
        if not running:
            return []
        family = frozenset[int]().union(*(service.family(box) for service in self.production))
        most = sorted((one for one in running if one.pid not in family), key=_ticks, reverse=True)
        return [_words(box, one) for one in most[:2]]


def _ticks(one: Running) -> int:
    return one.ticks


def _words(box: Box, one: Running) -> str:
    proc = box.process(one.pid)
    return f"{command(one.argv, 40) or one.comm}, {proc.user if proc is not None else 'gone'}"


def _counted(text: str) -> int:
    """How many cores "0-3,8" are; 0 when it cannot be read."""
    count = 0
    for part in text.strip().split(","):
        first, dash, last = part.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            return 0
        count += int(last) - int(first) + 1 if dash else 1
    return count
