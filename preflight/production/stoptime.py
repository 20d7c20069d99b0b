"""Is there time to stop production, as long as its supervisor may take for that?

A server with a long request may take minutes to end (llama.cpp PR#18292, ollama#7606). It must not
know how it is stopped.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from preflight.box import Box
from preflight.check import Explained
from preflight.production.control import OfWayBack, unit_of
from preflight.verdict import State, Verdict
from preflight.wording import clipped, seconds

_LONG_S = 90.0
"""systemd's own default; longer is worth a word."""
_LADDER_S = {"process": 25.0, "command": 60.0}
"""How long the other supervisors give a stop: TERM, TERM and KILL; the user's own command."""
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


class StopTime(OfWayBack):
    """A stop that takes as long as it may leaves time for the night."""

    id: ClassVar[str] = "prod.stoptime"
    explains: ClassVar[tuple[Explained, ...]] = (
        Explained(
            "prod.stoptime",
            reads="TimeoutStopUSec of its unit, or what the supervisor grants; how long its stops "
            "took in earlier runs; what is left of downtime_budget beside the way back",
            passes="the longest stop leaves time for the candidate",
            warns="it may take longer than 90 s, or as long as there is time; an earlier stop took "
            "nearly all that is granted",
            fails="an earlier stop took as long as there is time; TimeoutStopSec=infinity, so that a "
            "server that hangs would never be ended",
            unknown="systemd does not tell",
            remedies=("TimeoutStopSec=20 in its unit", "raise downtime_budget"),
        ),
    )

    kind: Literal["stop_time"] = "stop_time"
    left_s: float | None = None
    """What the downtime budget leaves beside the way back; None where there is no job."""
    slowest_s: float | None = None
    """The longest of its stops on record."""
    deadline_s: float = 5.0

    @property
    def subject(self) -> str:
        """The service."""
        return f"the time to stop {self.service}"

    def look(self, box: Box) -> Verdict:
        """The longest stop beside what there is."""
        granted: float | None = _LADDER_S.get(str(self.supervisor.get("kind")), 60.0)
        whose, remedy = "its supervisor", "raise downtime_budget"
        if self.supervisor.get("kind") == "systemd":
            unit = unit_of(box, self.supervisor, within=self.deadline_s)
            shown = unit.get("TimeoutStopUSec")
            granted, whose = timespan(shown), unit.name
            remedy = f"TimeoutStopSec=20 in {unit.name}, or raise downtime_budget"
            if shown == "infinity":
                found = f"{unit.name} has TimeoutStopSec=infinity: what hangs is never ended"
                return self._says(State.FAIL, found, f"TimeoutStopSec=20 in {unit.name}")
            if granted is None:
                found = f"systemd does not tell: {clipped(unit.said, 120) or 'no TimeoutStopUSec'}"
                return self._says(State.UNKNOWN, found, f"try: systemctl show {unit.name}")
        return self._judged(granted or 0.0, whose, remedy)

    def _judged(self, granted: float, whose: str, remedy: str) -> Verdict:
        found = f"{whose} gives it up to {seconds(granted)}"
        there = f"{seconds(max(0.0, round(self.left_s or 0.0)))} are there beside the way back"
        if self.left_s is not None and (self.slowest_s or 0.0) >= self.left_s:
            took = seconds(round(self.slowest_s or 0.0, 1))
            return self._says(State.FAIL, f"{found}; it took {took} once, and {there}", remedy)
        if self.left_s is not None and granted >= self.left_s:
            return self._says(State.WARN, f"{found}, and {there}", remedy)
        if self.slowest_s is not None and self.slowest_s > 0.8 * granted:
            found += f"; it took {seconds(round(self.slowest_s, 1))} once"
            return self._says(State.WARN, found, remedy)
        return self._says(State.WARN if granted > _LONG_S else State.PASS, found, remedy)

    def _says(self, state: State, found: str, remedy: str) -> Verdict:
        wanted = "time for the stop, and for the candidate"
        return self.says(state, found, wanted=wanted, remedy="" if state is State.PASS else remedy)


def timespan(text: str) -> float | None:
    """systemd's "1min 30s" in seconds; None for what is no such time, "infinity" included."""
    total = 0.0
    for part in text.split():
        number = part.rstrip("abcdefghijklmnopqrstuvwxyz")
        unit = part[len(number) :]
        if unit not in _UNITS or not number.replace(".", "", 1).isdigit():
            return None
        total += float(number) * _UNITS[unit]
    return total if text.strip() else None
