"""One try at one recipe: start what is not there, wait while there is hope, prove it is the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from preflight import proc
from preflight.proc import Ident
from runner.recovery import probe
from runner.recovery.drivers import Driver, Standing, driver
from runner.recovery.progress import Progress, first_fatal, log_since, log_size
from runner.recovery.recipe import Recipe
from runner.recovery.stop import Stop, describe, living
from runner.until import Clock, Hopeless, TimedOut, until

RESTARTS_SEEN = 3
CLOSER_LOOK_S = 0.5
NO_PROGRESS_S = 300.0
_SAME = ("model_path", "model_id", "context", "slots")

Residency = Callable[[set[int]], float | None]


@dataclass(frozen=True, slots=True)
class Served:
    """How one service stands after a restore.

    `state` is "serving", "degraded" (it answers, but not as the one that was there) or "down".
    `identity` is "same", "different" or "unknown". `load` is the seconds from its start to its
    first answer, None when it was not started here.
    """

    name: str
    state: str
    identity: str = "unknown"
    at: float | None = None
    after: dict[str, Any] = field(default_factory=dict)
    load: float | None = None
    tries: int = 0
    why: str = ""
    notes: tuple[str, ...] = ()
    recipe: Recipe | None = None


@dataclass(frozen=True, slots=True)
class Past:
    """What is known of a service's stop and its start since: from `recovery.state`."""

    stop_asked: bool = False
    family: frozenset[Ident] = frozenset()
    token: str | None = None
    started: Ident | None = None

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Past:
        """As the stop and earlier restores noted it; nothing known where nothing was noted."""
        members = (Ident.from_json(who) for who in said.get("family") or ())
        return cls(
            stop_asked=bool(said.get("stop_asked")),
            family=frozenset(who for who in members if who is not None),
            token=said.get("token"),
            started=Ident.from_json(said.get("started")),
        )


class Attempt:
    """One try at one recipe."""

    def __init__(
        self,
        recipe: Recipe,
        past: Past,
        *,
        clock: Clock,
        stop: Callable[[], str | None],
        residency: Residency,
    ) -> None:
        self._recipe, self._past, self._clock, self._stop = recipe, past, clock, stop
        self._residency = residency
        self.driver: Driver = driver(recipe, past.started)
        self._offset = log_size(recipe)
        self._progress = Progress(clock)
        self._tokens: set[str] = set()
        self._began: float | None = None
        self._closer_look = 0.0

    def run(self, note: Callable[[Ident | None], None]) -> Served:
        """Bring the service up, or say why it does not come. Raises Stopped."""
        if why := self._finish_old_stop():
            return self._down(why)
        if self._whole() is None:
            why = self._start_unless_there(note)
            if why:
                return self._down(why)
        try:
            look = until(
                self._whole,
                within=self._recipe.patience,
                clock=self._clock,
                every=0.02 if self._recipe.supervisor["kind"] == "process" else 0.2,
                hopeless=self._hopeless,
                stop=self._stop,
            )
            at = self._clock.now()
            self._settle()
        except Hopeless as error:
            self._clear_away()
            return self._down(error.reason)
        except TimedOut:
            why = f"not serving after {self._recipe.patience:g} s ({self._why()})"
            self._clear_away()
            return self._down(why)
        return self._judge(look, at)

    def _down(self, why: str) -> Served:
        return Served(self._recipe.name, "down", why=why, recipe=self._recipe)

    def _finish_old_stop(self) -> str:
        """A process that was asked to end may still answer: it must be gone before it is restarted."""
        if not self._past.stop_asked or not living(self._past.family):
            return ""
        halting = Stop(self._recipe, self.driver, self._clock)
        halting.family |= self._past.family
        halt = halting.run()
        left = living(self._past.family)
        return halt.finding or f"{describe(min(left))} does not end" if left else ""

    def _start_unless_there(self, note: Callable[[Ident | None], None]) -> str:
        standing = self.driver.standing()
        if standing.state in {"active", "changing"}:
            return ""  # on its way up, or up and not yet whole: never a second copy
        if proc.claimants(self._recipe.host, self._recipe.port):
            held = sorted(proc.owners(self._recipe.port))
            who = ", ".join(map(describe, held)) or "a process we may not see"
            return f"port {self._recipe.port} is held by {who}"
        self._offset, self._began = log_size(self._recipe), self._clock.now()
        refused = self.driver.start()
        note(getattr(self.driver, "started", None))
        return refused or ""

    def _heads(self, standing: Standing) -> set[int]:
        return {who.pid for who in standing.heads}

    def _family(self, standing: Standing) -> set[int]:
        members: set[int] = set()
        for pid in self._heads(standing):
            members |= proc.family(pid)
        return members

    def _whole(self) -> probe.Look | None:
        """Serving in every hard sense, or None."""
        if not probe.health(self._recipe.probe, within=2).serving:
            return None
        standing = self.driver.standing()
        if standing.state != "active":
            return None
        if self._past.stop_asked and standing.token and standing.token == self._past.token:
            return None  # what answers is what was asked to stop
        owners = proc.owners(self._recipe.port)
        if standing.heads and owners and not owners & self._family(standing):
            return None
        look = probe.serving(self._recipe.probe)
        return look if look.serving else None

    def _why(self) -> str:
        look = probe.serving(self._recipe.probe, within=10)
        return self.driver.standing().why or look.why or look.state

    def _hopeless(self) -> str | None:
        standing = self.driver.standing()
        lines = log_since(self._recipe, self._offset)
        if fatal := first_fatal(lines, self._recipe.probe.get("fatal") or []):
            return fatal
        if standing.state == "inactive":
            last = lines[-1].strip() if lines else standing.why
            return f"it ended while starting{': ' + last if last else ''}"
        if standing.token:
            self._tokens.add(standing.token)
            if len(self._tokens) > RESTARTS_SEEN:
                return f"it starts again and again: {standing.why}"
        if self._clock.now() < self._closer_look:
            return None
        self._closer_look = self._clock.now() + CLOSER_LOOK_S
        return self._hopeless_looked_closer(standing)

    def _hopeless_looked_closer(self, standing: Standing) -> str | None:
        """The part that asks the server and sums up its processes: not at every poll."""
        look = probe.health(self._recipe.probe, within=2)
        if look.serving:
            who = probe.identity(self._recipe.probe)
            if who.state == "wrong":
                return f"it answers, but {who.why}"
        stalled = self._progress.stalled(self._family(standing), log_size(self._recipe))
        if stalled > NO_PROGRESS_S:
            return f"nothing moved for {stalled:.0f} s"
        return None

    def _settle(self) -> None:
        """The same processes for a while: a server in a restart loop also answers now and then."""
        first, ends = self.driver.standing().heads, self._clock.now() + self._recipe.settle

        def held() -> bool | None:
            return True if self._clock.now() >= ends else None

        def changed() -> str | None:
            now = self.driver.standing()
            if now.state != "active" or (first and not first & now.heads):
                return f"it answered and then ended: {now.why or 'a new process'}"
            return None

        until(
            held,
            within=self._recipe.settle + 60,
            clock=self._clock,
            every=0.1,
            hopeless=changed,
            stop=self._stop,
        )

    def _clear_away(self) -> None:
        """End a half-started copy, so that no second one is ever beside it."""
        if self.driver.standing().state != "inactive":
            Stop(self._recipe, self.driver, self._clock).run()

    def _judge(self, look: probe.Look, at: float) -> Served:
        """Compare what serves now with what served before."""
        before = self._recipe.identity
        known = before.get("said") or {}
        compared = [name for name in _SAME if name in known]
        differs = [name for name in compared if look.identity.get(name) != known[name]]
        notes = self._greedy_note(before.get("greedy"))
        if known.get("build") and look.identity.get("build") != known["build"]:
            notes += (f"build was {known['build']}, is {look.identity.get('build')}",)
        why = "; ".join(
            f"{name} was {known[name]}, is {look.identity.get(name)}" for name in differs
        )
        if lost := self._lost_residency(before.get("gpu_mib")):
            why = "; ".join(filter(None, (why, lost)))
        heads = self.driver.standing().heads
        after = look.identity | {"pids": sorted(who.pid for who in heads)}
        return Served(
            self._recipe.name,
            state="degraded" if why else "serving",
            identity="different" if differs else "same" if compared else "unknown",
            at=at,
            after=after,
            load=at - self._began if self._began is not None else None,
            why=why,
            notes=notes,
            recipe=self._recipe,
        )

    def _greedy_note(self, before: str | None) -> tuple[str, ...]:
        """The soft proof: near ties are real, so a different greedy answer is only worth a note."""
        if not before:
            return ()
        for _ in range(2):
            look, now = probe.complete(self._recipe.probe, which="greedy")
            if look.serving and now == before:
                return ()
        return (f"{self._recipe.name}: the greedy answer differs from the one before",)

    def _lost_residency(self, before: float | None) -> str:
        if not before:
            return ""
        now = self._residency(self._family(self.driver.standing()))
        if now is None or now >= before / 2:
            return ""
        return f"it holds {now:.0f} MiB on the GPU, held {before:.0f}: back on the CPU?"
