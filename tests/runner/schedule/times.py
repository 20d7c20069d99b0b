"""Every clock of a made-up machine: each can be set, stopped and slept through by itself."""

from collections.abc import Sequence
from datetime import UTC, datetime

from runner.schedule.moments import Moment


class FakeTimes:
    """Wall clock, time since boot and time without suspend, moved by hand."""

    def __init__(self, at: str = "2027-01-15T22:00:00+00:00") -> None:
        self._wall = datetime.fromisoformat(at).timestamp()
        self._boot, self._steady = 5000.0, 4000.0
        self.boot_id = "boot-1"

    def now(self) -> float:
        """Seconds since boot."""
        return self._boot

    def wall(self) -> datetime:
        """The date and time, in UTC."""
        return datetime.fromtimestamp(self._wall, UTC)

    def moment(self) -> Moment:
        """All clocks at once."""
        return Moment(self._wall, self._boot, self._steady, self.boot_id)

    def pause(self, seconds: float, wake: Sequence[int] = ()) -> set[int]:
        """Let time pass."""
        del wake
        self.passes(seconds)
        return set()

    def passes(self, seconds: float) -> Moment:
        """Time goes on as always."""
        self._wall += seconds
        self._boot += seconds
        self._steady += seconds
        return self.moment()

    def until(self, at: str, step: float | None = None) -> Moment:
        """Time goes on until the wall clock shows this."""
        return self.passes(step or datetime.fromisoformat(at).timestamp() - self._wall)

    def sleeps(self, seconds: float) -> Moment:
        """The machine is suspended."""
        self._wall += seconds
        self._boot += seconds
        return self.moment()

    def set_by(self, seconds: float) -> Moment:
        """Somebody sets the wall clock."""
        self._wall += seconds
        return self.moment()

    def reboots(self, seconds: float) -> Moment:
        """The machine is off for a while and comes up again."""
        self._wall += seconds
        self._boot, self._steady = 30.0, 30.0
        self.boot_id = f"{self.boot_id}+"
        return self.moment()
