"""One try at one recipe: start what is not there, wait while there is hope, prove it is the same."""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from preflight.linux import proc
from preflight.linux.proc import Ident
from runner.recovery import probe, world
from runner.recovery.absent import absent
from runner.recovery.drivers import Driver, Standing, driver, idents
from runner.recovery.drivers.process import same_command
from runner.recovery.pins import put_back
from runner.recovery.progress import LogWatch, Progress, log_size
from runner.recovery.recipe import Recipe
from runner.recovery.sameness import compare
from runner.recovery.stop import KILL_S, Stop, describe, living, remaining
from runner.until import Clock, Hopeless, TimedOut, until
from runner.words import duration

RESTARTS_SEEN = 3
CLOSER_LOOK_S = 0.5
HEALTH_WITHIN_S = 2.0
NO_PROGRESS_S = 300.0

Residency = Callable[[set[int]], float | None]


@dataclass(frozen=True, slots=True)
class Served:
    """How one service stands after a restore.

    `state` is "serving", "degraded" (it answers, but not as the one that was there) or "down".
    `identity` is "same", "different" or "unknown". `load` is the seconds from its start to its
    first answer, None when it was not started here. `stuck`: a copy of it could not be ended, so
    no other may be started.
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
    stuck: bool = False


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


class _Other(Exception):
    """It answers, but not as the one that was there; it is left as it is."""

    def __init__(self, why: str, identity: dict[str, Any]) -> None:
        super().__init__(why)
        self.why, self.identity = why, identity


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
        strict: bool = False,
    ) -> None:
        """`strict`: one that we started and that differs is ended, for another try to do better."""
        self._recipe, self._past, self._clock, self._stop = recipe, past, clock, stop
        self._residency, self._strict = residency, strict
        self.driver: Driver = driver(recipe, past.started)
        self._log = self._watch()
        self._progress = Progress(clock)
        self._starts: set[str | Ident] = set()
        self._began: float | None = None
        self._closer_look = 0.0
        self._last = probe.Look("silent")
        self._note: Callable[[Ident | None], None] = lambda _: None
        self._put_back: list[str] = []

    def run(self, note: Callable[[Ident | None], None]) -> Served:
        """Bring the service up, or say why it does not come. Raises Stopped."""
        self._note = note
        if why := self._finish_old_stop():
            return self._down(why, stuck=True)
        try:
            if self._whole() is None and (why := self._start_unless_there()):
                return self._down(why)
            look = until(
                self._whole,
                within=self._recipe.patience,
                clock=self._clock,
                every=0.02 if self.driver.patient is None else 0.2,
                hopeless=self._hopeless,
                stop=self._stop,
            )
            at = self._clock.now()
            self._settle()
        except _Other as other:
            return self._other(other)
        except Hopeless as error:
            return self._given_up(error.reason)
        except TimedOut:
            return self._given_up(
                f"not serving after {duration(self._recipe.patience)} ({self._why()})"
            )
        return self._judge(look, at)

    def _watch(self) -> LogWatch:
        fatal = self._recipe.probe.get("fatal") or []
        return LogWatch(self._recipe.supervisor.get("log") or "", fatal, log_size(self._recipe))

    def _down(self, why: str, *, stuck: bool = False) -> Served:
        gone = absent([str(said.get("path") or "") for said in self._recipe.inputs])
        why = "; ".join([*(f"{path} is gone" for path in gone), why])
        return Served(self._recipe.name, "down", why=why, recipe=self._recipe, stuck=stuck)

    def _given_up(self, why: str) -> Served:
        """End a half-started copy, so that no second one is ever beside it."""
        if self.driver.standing().state != "inactive":
            halt = Stop(self._recipe, self.driver, self._clock).run()
            if not halt.stopped:
                return self._down(f"{why}; {halt.finding}", stuck=True)
        return self._down(why)

    def _finish_old_stop(self) -> str:
        """A process that was asked to end may still answer: it must be gone before it is restarted.

        Where its supervisor refuses the stop nothing has been asked to end, and it is as it was.
        """
        if not self._past.stop_asked or not living(self._past.family):
            return ""
        halting = Stop(self._recipe, self.driver, self._clock)
        halting.family |= self._past.family
        halt = halting.run()
        if halt.refused:
            self._past = dataclasses.replace(self._past, stop_asked=False)
            return ""
        left = living(self._past.family)
        return (halt.finding or f"{describe(min(left))} does not end") if left else ""

    def _start_unless_there(self) -> str:
        """Start it, once it is certain that it is not there. Why it was not started, else empty.

        Raises _Other when somebody else serves in its place: a copy beside that could only fail.
        """
        standing = self.driver.standing()
        if standing.state in {"active", "changing"}:
            return ""  # on its way up, or up and not yet whole: never a second copy
        if proc.claimants(self._recipe.host, self._recipe.port):
            held = sorted(proc.owners(self._recipe.port))
            who = ", ".join(map(describe, held)) or "a process we may not see"
            look = probe.serving(self._recipe.probe)
            if look.serving:
                raise _Other(f"it is served by {who}, which was not started for it", look.identity)
            return f"port {self._recipe.port} is held by {who}"
        if why := self._end_orphans():
            return why
        gone = absent([str(pin.get("path") or "") for pin in self._recipe.pins])
        self._put_back += put_back([pin for pin in self._recipe.pins if pin.get("path") in gone])
        self._log, self._began = self._watch(), self._clock.now()
        refused = self.driver.start()
        self._note(getattr(self.driver, "started", None))
        return refused or ""

    def _end_orphans(self) -> str:
        """An engine that outlived its server holds the memory that the next one needs."""
        orphans = self.driver.orphans()
        if not orphans:
            return ""
        world.send_all(orphans, signal.SIGKILL)
        try:
            until(
                lambda: None if remaining(orphans) else True,
                within=KILL_S,
                clock=self._clock,
            )
        except TimedOut:
            left = ", ".join(map(describe, sorted(living(orphans))))
            return f"{left} of its last start does not end"
        return ""

    def _whole(self) -> probe.Look | None:
        """Serving in every hard sense, or None."""
        if not probe.health(self._recipe.probe, within=HEALTH_WITHIN_S).serving:
            return None
        standing = self.driver.standing()
        if standing.state not in {"active", "unknown"} or living(self._ending):
            return None
        if self._past.stop_asked and standing.token and standing.token == self._past.token:
            return None  # what answers is what was asked to stop
        owners = proc.owners(self._recipe.port)
        if standing.heads and owners and not owners & standing.family:
            return None
        look = self._last = probe.serving(self._recipe.probe)
        return look if look.serving else None

    @property
    def _ending(self) -> frozenset[Ident]:
        return self._past.family if self._past.stop_asked else frozenset()

    def _why(self) -> str:
        look = probe.serving(self._recipe.probe, within=10)
        return self.driver.standing().why or look.why or look.state

    def _hopeless(self) -> str | None:
        standing = self.driver.standing()
        fatal = self._log.look()
        if fatal and not probe.health(self._recipe.probe, within=HEALTH_WITHIN_S).serving:
            return fatal
        if standing.state == "inactive":
            return self._not_there(standing)
        if standing.token:
            self._starts.add(standing.token)
        if len(self._starts) > RESTARTS_SEEN:
            return f"it starts again and again: {standing.why or self._log.last_line}"
        if self._clock.now() < self._closer_look:
            return None
        self._closer_look = self._clock.now() + CLOSER_LOOK_S
        return self._hopeless_looked_closer(standing)

    def _not_there(self, standing: Standing) -> str | None:
        if self._began is None:  # it was on its way down when we came
            return self._start_unless_there() or None
        if self._clock.now() - self._began < self.driver.grace:
            return None
        last = self._log.end() or self._log.last_line or standing.why
        return f"it ended while starting{': ' + last if last else ''}"

    def _hopeless_looked_closer(self, standing: Standing) -> str | None:
        """The part that asks the server and sums up its processes: not at every poll."""
        if standing.state == "active" and (why := self._answers_otherwise()):
            return why
        family = standing.family
        argv = tuple(self._recipe.identity.get("argv") or ())
        if argv and not standing.token:  # a script that starts it anew each time that it ends
            self._starts |= {who for who in idents(family) if same_command(who.pid, argv)}
        stalled = self._progress.stalled(family, log_size(self._recipe))
        if stalled > NO_PROGRESS_S:
            return f"nothing moved for {duration(stalled)}"
        return None

    def _answers_otherwise(self) -> str | None:
        """Why it had better be started anew. Raises _Other where it is left as it is."""
        look = probe.health(self._recipe.probe, within=HEALTH_WITHIN_S)
        if look.serving:
            look = probe.identity(self._recipe.probe)
        if look.serving:
            look = self._last
        if look.state == "wrong" and self._strict and self._began is not None:
            return f"it answers, but {look.why}"
        if look.state in {"wrong", "locked"}:  # a start would not bring the key
            raise _Other(f"it answers, but {look.why}", look.identity)
        return None

    def _settle(self) -> None:
        """The same processes for a while: a server in a restart loop also answers now and then."""
        first, ends = self._present(), self._clock.now() + self._recipe.settle

        def held() -> bool | None:
            return True if self._clock.now() >= ends else None

        def changed() -> str | None:
            state = self.driver.standing().state
            now = self._present()
            if state in {"inactive", "changing"} or (first and not first & now):
                return f"it answered and then ended: {self._log.end() or self._log.last_line}"
            return None

        until(
            held,
            within=self._recipe.settle + 60,
            clock=self._clock,
            every=0.1,
            hopeless=changed,
            stop=self._stop,
        )

    def _present(self) -> frozenset[Ident]:
        """Who answers: the listeners where they can be seen, else what the supervisor names."""
        return idents(proc.owners(self._recipe.port)) or self.driver.standing().heads

    def _judge(self, look: probe.Look, at: float) -> Served:
        """Compare what serves now with what served before."""
        standing = self.driver.standing()
        held = self._residency(standing.family) if self._recipe.identity.get("gpu_mib") else None
        same = compare(self._recipe, look, held)
        return Served(
            self._recipe.name,
            state="degraded" if same.why else "serving",
            identity=same.identity,
            at=at,
            after=look.identity | {"pids": sorted(who.pid for who in standing.heads)},
            load=at - self._began if self._began is not None else None,
            why=same.why,
            notes=(*self._put_back, *same.notes),
            recipe=self._recipe,
        )

    def _other(self, other: _Other) -> Served:
        at = self._clock.now()
        pids = sorted(proc.owners(self._recipe.port))
        return Served(
            self._recipe.name,
            state="degraded",
            identity="different",
            at=at,
            after=other.identity | {"pids": pids},
            load=at - self._began if self._began is not None else None,
            why=other.why,
            recipe=self._recipe,
        )
