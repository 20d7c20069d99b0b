"""What time did between two looks: whether it jumped, slept or stood still. Knows no slot."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol, Self

from preflight.linux import proc
from runner.until import Clock, RealClock
from runner.words import duration

TICK_S = 30.0
"""The loop looks at least this often."""

JUMP_S = 5.0
"""A wall clock that strays further from the time since boot was set by somebody."""

STALL_S = 2 * TICK_S


@dataclass(frozen=True, slots=True)
class Moment:
    """One look at every clock: seconds since 1970, since boot, and since boot without suspend."""

    wall: float
    boot: float
    steady: float
    boot_id: str

    @property
    def at(self) -> datetime:
        """The date and time, in UTC."""
        return datetime.fromtimestamp(self.wall, UTC)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON, read back by `from_json`."""
        return {
            "wall": self.wall,
            "boot": self.boot,
            "steady": self.steady,
            "boot_id": self.boot_id,
        }

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Self:
        """The moment in a JSON object. Raises KeyError, TypeError or ValueError."""
        wall, boot, steady = (float(said[name]) for name in ("wall", "boot", "steady"))
        return cls(wall, boot, steady, str(said["boot_id"]))


class Times(Clock, Protocol):
    """A clock that also tells time without suspend; tests bring one of their own."""

    def moment(self) -> Moment:
        """All clocks at once."""
        ...


class RealTimes(RealClock):
    """The machine's own clocks."""

    def __init__(self) -> None:
        self._boot_id = proc.boot_id()

    def moment(self) -> Moment:
        """All clocks at once."""
        return Moment(
            time.time(),
            time.clock_gettime(time.CLOCK_BOOTTIME),
            time.clock_gettime(time.CLOCK_MONOTONIC),
            self._boot_id,
        )


@dataclass(frozen=True, slots=True)
class Gap:
    """Why nobody looked for a while; `jump` is by how many seconds the wall clock was set."""

    said: str
    jump: float = 0.0


def gap(before: Moment, now: Moment, *, same_process: bool) -> Gap | None:
    """What happened between two looks that a person should know of; None when nothing did."""
    if before.boot_id != now.boot_id:
        return Gap("the box was off or restarting")
    jump = (now.wall - before.wall) - (now.boot - before.boot)
    passed = now.boot - before.boot
    asleep = passed - (now.steady - before.steady)
    if abs(jump) > JUMP_S:
        way = "forward" if jump > 0 else "back"
        return Gap(f"the clock was set {way} by {duration(abs(jump))}", jump)
    if not same_process:
        return Gap("runner serve was not running")
    if asleep > JUMP_S:
        return Gap(f"the box was suspended for {duration(asleep)}")
    if passed > STALL_S:
        return Gap(f"runner serve stood still for {duration(passed)}")
    return None
