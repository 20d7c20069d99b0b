"""The Clock of tests: time passes when somebody waits, and not otherwise."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

from runner.until import RealClock

BACK_OFF_POLL = 0.25
"""Seconds between two looks of a back-off; what is waited for is looked at more often."""


class FakeClock:
    """Seconds since a boot of its own; a pause takes no time and is remembered.

    `at(seconds, act)` does something when that moment has come, inside the pause that reaches it;
    `news` are descriptors that have something to read from now on.
    """

    def __init__(self, now: float = 1000.0, wall: datetime | None = None) -> None:
        self._start = self._now = now
        self._wall = wall or datetime(2026, 3, 1, tzinfo=UTC)
        self._acts: list[tuple[float, Callable[[], object]]] = []
        self.pauses: list[float] = []
        self.woken_by: list[tuple[int, ...]] = []
        self.news: set[int] = set()

    def now(self) -> float:
        """Seconds since boot."""
        return self._now

    def wall(self) -> datetime:
        """The date and time that belong to `now`."""
        return self._wall + timedelta(seconds=self._now - self._start)

    def pause(self, seconds: float, wake: Sequence[int] = ()) -> set[int]:
        """Let the time pass at once, unless a descriptor has news."""
        self.pauses.append(seconds)
        self.woken_by.append(tuple(wake))
        if found := self.news & set(wake):
            return found
        self.forward(seconds)
        return set()

    def forward(self, seconds: float) -> None:
        """Let time pass; what was due by then happens, in order."""
        self._now += seconds
        due = [act for act in self._acts if act[0] <= self._now]
        self._acts = [act for act in self._acts if act[0] > self._now]
        for _, act in sorted(due, key=lambda act: act[0]):
            act()

    def at(self, seconds: float, act: Callable[[], object]) -> None:
        """Do something `seconds` from now."""
        self._acts.append((self._now + seconds, act))


class HastyClock(RealClock):
    """The machine's clock for real processes, but a back-off takes a moment of it and no more."""

    def __init__(self) -> None:
        self._skipped = 0.0

    def now(self) -> float:
        """Seconds since boot, as if every back-off had lasted."""
        return super().now() + self._skipped

    def pause(self, seconds: float, wake: Sequence[int] = ()) -> set[int]:
        """As the real one's where something is polled, and hardly anything where it is not."""
        if seconds < BACK_OFF_POLL or wake:
            return super().pause(seconds, wake)
        self._skipped += seconds
        return super().pause(0.002)
