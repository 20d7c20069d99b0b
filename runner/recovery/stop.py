"""The stop of one service, and the proof that it has stopped.

Stopped means: its family is gone (a zombie counts as gone) and nobody listens on its port. A free
port alone proves nothing: engines outlive the process that listened for them. That its GPU memory
is back is for the run to show, which can read the GPU; recovery must do without.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass

from preflight import proc
from preflight.proc import Ident
from runner.recovery import world
from runner.recovery.drivers import Driver, idents
from runner.recovery.recipe import Recipe
from runner.until import Clock, TimedOut, until

FIRST_TERM_S = 10.0
SECOND_TERM_S = 5.0
KILL_S = 10.0
SUPERVISOR_SLACK_S = 10.0


@dataclass(frozen=True, slots=True)
class Halt:
    """How a stop ended. `finding` is empty when all proofs hold; else it says which does not.

    `notes` are things a person should know although it worked: a swallowed signal, a KILL.
    """

    took: float
    finding: str = ""
    notes: tuple[str, ...] = ()

    @property
    def stopped(self) -> bool:
        """Whether it has stopped."""
        return not self.finding


def households(driver: Driver, port: int) -> frozenset[Ident]:
    """Every live process of the service: its heads, what listens for them, and their families."""
    heads = {who.pid for who in driver.standing().heads}
    members: set[int] = set()
    for pid in heads:
        members |= proc.family(pid)
    for pid in proc.owners(port):
        # a listener belongs to the service when it shares a family with one of its heads
        if pid in members or proc.family(pid) & heads:
            members |= proc.family(pid)
    return idents(members | heads)


def living(family: frozenset[Ident]) -> set[int]:
    """The pids of a recorded family that still live."""
    return {who.pid for who in family if proc.alive(who)}


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
        self._notes: list[str] = []

    def _gone(self) -> bool | None:
        return None if living(self.family) else True

    def _wait(self, within: float) -> bool:
        pidfds = [fd for who in self.family if (fd := world.open_pidfd(who)) is not None]
        try:
            return until(self._gone, within=within, clock=self._clock, every=0.1, wake=pidfds)
        except TimedOut:
            return False
        finally:
            world.close_all(pidfds)

    def _ladder(self) -> None:
        """TERM, TERM to the whole family, KILL: for services whose ladder is ours."""
        if self._wait(FIRST_TERM_S):
            return
        left = living(self.family)
        self._notes.append(
            f"{self._recipe.name}: {', '.join(map(describe, sorted(left)))} did not end"
            f" {FIRST_TERM_S:g} s after TERM; signalled again"
        )
        world.send_all(left, signal.SIGTERM)
        if self._wait(SECOND_TERM_S):
            return
        world.send_all(living(self.family), signal.SIGKILL)
        self._notes.append(f"{self._recipe.name}: killed, it ignored two TERMs")
        self._wait(KILL_S)

    def _settled(self) -> bool | None:
        return None if self._driver.standing().state == "changing" else True

    def run(self) -> Halt:
        """Stop it and prove it. For systemd the ladder is the supervisor's own, with its deadline
        plus ten seconds.
        """
        began = self._clock.now()
        refused = self._driver.stop()
        if refused is not None:
            return Halt(self._clock.now() - began, refused, tuple(self._notes))
        patience = self._driver.patient
        if patience is None:
            self._ladder()
        else:
            self._wait(patience + SUPERVISOR_SLACK_S)
            try:
                until(self._settled, within=SUPERVISOR_SLACK_S, clock=self._clock, every=0.1)
            except TimedOut:
                self._notes.append(f"{self._recipe.name}: {self._driver.standing().why}")
        return Halt(self._clock.now() - began, self._finding(), tuple(self._notes))

    def _finding(self) -> str:
        """The first proof that does not hold, in words; empty when all do."""
        name, port = self._recipe.name, self._recipe.port
        if left := living(self.family):
            return f"{name} does not end: {', '.join(map(describe, sorted(left)))}"
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
