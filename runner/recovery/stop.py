"""The stop of one service, and the proof that it has stopped.

Stopped means: its family is gone (a zombie counts as gone) and nobody listens on its port. A free
port alone proves nothing: engines outlive the process that listened for them. That its GPU memory
is back is for the run to show, which can read the GPU; recovery must do without.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass

from preflight.linux import proc
from preflight.linux.proc import Ident
from runner.recovery import world
from runner.recovery.drivers import Driver
from runner.recovery.recipe import Recipe
from runner.until import Clock, Hopeless, TimedOut, until

FIRST_TERM_S = 10.0
SECOND_TERM_S = 5.0
KILL_S = 10.0
SUPERVISOR_SLACK_S = 10.0
HEADLESS_S = 1.0
ORPHANED_S = 10.0
"""How long what a supervisor calls stopped may take to let go of its last processes."""


@dataclass(frozen=True, slots=True)
class Halt:
    """How a stop ended. `finding` is empty when all proofs hold; else it says which does not.

    `refused`: the supervisor did not even accept it, so nothing was asked to end. `notes` are
    things a person should know although it worked: a swallowed signal, a KILL.
    """

    took: float
    finding: str = ""
    notes: tuple[str, ...] = ()
    refused: bool = False

    @property
    def stopped(self) -> bool:
        """Whether it has stopped."""
        return not self.finding


def households(driver: Driver, port: int) -> frozenset[Ident]:
    """Every live process of the service: its heads, what listens for them, and their families."""

    def look() -> set[int]:
        standing = driver.standing()
        heads = {who.pid for who in standing.heads}
        members = standing.family | heads
        for pid in proc.owners(port):
            # a listener belongs to the service when it shares a family with one of its heads
            if pid in members or proc.family(pid) & heads:
                members |= proc.family(pid)
        return members

    return world.identified(look)


def living(family: frozenset[Ident]) -> set[int]:
    """The pids of a recorded family that still live."""
    return {who.pid for who in remaining(family)}


def remaining(family: frozenset[Ident]) -> frozenset[Ident]:
    """Those of a recorded family that still live."""
    return frozenset(who for who in family if proc.alive(who))


def describe(pid: int) -> str:
    """A process in words: pid, name, state."""
    found = proc.stat(pid)
    if found is None:
        return f"pid {pid}"
    stuck = ", unkillable (in the kernel)" if found.state == "D" else ""
    return f"pid {pid} ({found.comm}{stuck})"


class Stop:
    """One service on its way down."""

    def __init__(self, recipe: Recipe, driver: Driver, clock: Clock) -> None:
        """Record the family now, while the service still shows who belongs to it."""
        self._recipe, self._driver, self._clock = recipe, driver, clock
        self.family = households(driver, recipe.port)
        self._heads = driver.standing().heads
        self._headless_since: float | None = None
        self._orphans = False
        self._notes: list[str] = []

    def _gone(self) -> bool | None:
        return None if remaining(self.family) else True

    def _headless(self) -> str | None:
        """A wrapper that ended by itself, and passed the signal on to nobody."""
        if not self._heads or remaining(self._heads):
            self._headless_since = None
            return None
        now = self._clock.now()
        self._headless_since = self._headless_since or now
        return "swallowed" if now - self._headless_since >= HEADLESS_S else None

    def _orphaned(self) -> str | None:
        """What lives on although its supervisor calls it stopped: nobody will end it any more."""
        if remaining(self._heads):
            return None
        now = self._clock.now()
        self._headless_since = self._headless_since or now
        if now - self._headless_since < ORPHANED_S:
            return None
        if self._driver.standing().state != "inactive":
            self._headless_since = now  # ask again when as much time has passed
            return None
        self._orphans = True
        return "orphaned"

    def _wait(self, within: float, hopeless: Callable[[], str | None] = lambda: None) -> bool:
        pidfds = [fd for who in self.family if (fd := world.open_pidfd(who)) is not None]
        try:
            return until(
                self._gone,
                within=within,
                clock=self._clock,
                every=0.1,
                hopeless=lambda: None if self._gone() else hopeless(),
                wake=pidfds,
            )
        except (TimedOut, Hopeless):
            return False
        finally:
            world.close_all(pidfds)

    def _ladder(self) -> None:
        """TERM, TERM to the whole family, KILL: for services whose ladder is ours."""
        began = self._clock.now()
        if self._wait(FIRST_TERM_S, self._headless):
            return
        left = self._left()
        who = ", ".join(describe(pid) for pid in sorted(living(left)))
        how = (
            f"did not end {self._clock.now() - began:.0f} s after TERM; signalled again"
            if self._headless_since is None
            else "was left behind by the process that got the TERM; signalled too"
        )
        self._notes.append(f"{self._recipe.name}: {who} {how}")
        world.send_all(left, signal.SIGTERM)
        if self._wait(SECOND_TERM_S):
            return
        world.send_all(self._left(), signal.SIGKILL)
        self._notes.append(f"{self._recipe.name}: killed, it ignored two TERMs")
        self._wait(KILL_S)

    def _left(self) -> frozenset[Ident]:
        """Who lives of the service, those included whom it started on its way down."""
        self.family |= households(self._driver, self._recipe.port) | self._driver.orphans()
        return remaining(self.family)

    def _settled(self) -> bool | None:
        """Whether its supervisor has done what it was asked; one that is told by a command may
        need a moment to see it.
        """
        state = self._driver.standing().state
        waits = state == "changing" or (state == "active" and self._driver.grace > 0)
        return None if waits else True

    def run(self) -> Halt:
        """Stop it and prove it. For systemd the ladder is the supervisor's own, with its deadline
        plus ten seconds.
        """
        began = self._clock.now()
        refused = self._driver.stop()
        if refused is not None:
            return Halt(self._clock.now() - began, refused, tuple(self._notes), refused=True)
        patience = self._driver.patient
        if patience is None:
            self._ladder()
        else:
            self._wait(patience + SUPERVISOR_SLACK_S, self._orphaned)
            try:
                until(self._settled, within=SUPERVISOR_SLACK_S, clock=self._clock, every=0.1)
            except TimedOut:
                why = self._driver.standing().why or "its supervisor still calls it running"
                self._notes.append(f"{self._recipe.name}: {why}")
        return Halt(self._clock.now() - began, self._finding(), tuple(self._notes))

    def _finding(self) -> str:
        """The first proof that does not hold, in words; empty when all do."""
        name, port = self._recipe.name, self._recipe.port
        if left := living(self.family):
            who = ", ".join(map(describe, sorted(left)))
            if self._orphans:
                return (
                    f"{name} has stopped and left {who} behind, which its supervisor does not end"
                )
            return f"{name} does not end: {who}"
        if self._driver.standing().state == "active":
            return f"{name} was stopped and runs again: {self._revived_by()}"
        if proc.claimants(self._recipe.host, port):
            who = ", ".join(map(describe, sorted(proc.owners(port)))) or "a process we may not see"
            return f"{name} has stopped, but port {port} is held by {who}"
        return ""

    def _revived_by(self) -> str:
        standing = self._driver.standing()
        heads = ", ".join(describe(who.pid) for who in sorted(standing.heads, key=lambda w: w.pid))
        return standing.why or heads or "somebody starts it"
