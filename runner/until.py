"""The one place that waits. Standard library only; it knows neither servers nor runs.

Nothing here sleeps for a fixed time and hopes: every wait asks a question until it is answered,
leaves early when the answer can never come, and has a deadline. Deadlines are in CLOCK_BOOTTIME,
which goes on while the machine is suspended and never jumps with the wall clock.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Protocol, TypeVar

Answer = TypeVar("Answer")


class TimedOut(Exception):
    """The answer did not come within the deadline."""

    def __init__(self, within: float) -> None:
        super().__init__(f"no answer within {within:g} s")
        self.within = within


class Hopeless(Exception):
    """The answer can never come: the process died, or said something fatal."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Stopped(Exception):
    """Somebody asked for an orderly end while we were waiting."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Clock(Protocol):
    """Time as the runner sees it; tests bring one of their own."""

    def now(self) -> float:
        """Seconds since boot, suspend included."""
        ...

    def wall(self) -> datetime:
        """The date and time, in UTC."""
        ...

    def pause(self, seconds: float, wake: Sequence[int] = ()) -> set[int]:
        """Let at most `seconds` pass, less when one of the descriptors has news; those that have."""
        ...


class RealClock:
    """The machine's own clock."""

    def now(self) -> float:
        """Seconds of CLOCK_BOOTTIME."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def wall(self) -> datetime:
        """The date and time, in UTC."""
        return datetime.now(UTC)

    def pause(self, seconds: float, wake: Sequence[int] = ()) -> set[int]:
        """Wait on the descriptors, so that a death is noticed when it happens and not at the next
        look.
        """
        poller = select.poll()
        for fd in wake:
            poller.register(fd, select.POLLIN)
        return {fd for fd, _ in poller.poll(max(0.0, seconds) * 1000)}


def _nothing() -> None:
    return None


def until(
    probe: Callable[[], Answer | None],
    *,
    within: float,
    clock: Clock,
    every: float = 0.05,
    hopeless: Callable[[], str | None] = _nothing,
    stop: Callable[[], str | None] = _nothing,
    wake: Sequence[int] = (),
) -> Answer:
    """Ask `probe` every `every` seconds until it answers something other than None, and return it.

    Raises Stopped when `stop` gives a reason, Hopeless when `hopeless` does, TimedOut after
    `within` seconds. `wake` are file descriptors (of processes, say) that make it look at once,
    each the first time that it has news: a pidfd has news for ever.
    The probe is asked once more at the deadline, so that a machine that was suspended meanwhile
    does not report a failure that it never looked at.
    """
    ends = clock.now() + within
    waking = list(wake)
    while True:
        if reason := stop():
            raise Stopped(reason)
        if reason := hopeless():
            raise Hopeless(reason)
        late = clock.now() >= ends
        answer = probe()
        if answer is not None:
            return answer
        if late:
            raise TimedOut(within)
        news = clock.pause(min(every, max(0.0, ends - clock.now())), waking)
        waking = [fd for fd in waking if fd not in news]


def rest(seconds: float, *, clock: Clock, stop: Callable[[], str | None] = _nothing) -> None:
    """Let a back-off pass before something is tried again. Raises Stopped when `stop` says so."""

    def never() -> bool | None:
        return None

    try:
        until(never, within=seconds, clock=clock, every=0.25, stop=stop)
    except TimedOut:
        return
