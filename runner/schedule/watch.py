"""The production watch: what stops, restarts or changes without a run is told to a person.

It looks and tells; it starts nothing, since production may be down on purpose. A run's own stop and
restore explain themselves.
"""

import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from preflight.linux import proc
from preflight.linux.proc import Ident
from runner.production import FILES_WITHIN_S, Files, Found, stamp, survey
from runner.recovery import lock, probe, recipe, world
from runner.recovery.recipe import Recipe
from runner.schedule.disk import UNKNOWN, Disk
from runner.schedule.incidents import Incidents
from runner.schedule.ledger import Ledger
from runner.schedule.moments import Times
from runner.service import Service
from runner.settings import Settings
from runner.words import at_epoch, clock, parsed

EVERY_S = 60.0
DOWN_S = 10.0
"""A service that is down is looked at so often, to tell when it is back."""

AGAIN_S = 2.0
"""A service that does not answer is asked once more after this, before anybody is woken."""

_FACT = "watch:"
_UNKNOWN = "unknown"
_SAME = ("model_path", "model_id", "context", "slots", "build")

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Seen:
    """One service at one look; what is remembered of it across restarts of the daemon."""

    up: bool
    pids: tuple[int, ...]
    said: Json
    model: Json
    why: str
    at: float

    def to_json(self) -> Json:
        """Plain JSON, read back by `from_json`."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @classmethod
    def from_json(cls, said: Json) -> "Seen | None":
        """What was remembered; None where it was written by another version."""
        try:
            return cls(**{**said, "pids": tuple(said["pids"])})
        except (KeyError, TypeError):
            return None


def look(
    service: Service, at: float, known: Found | None = None, *, disk: Files
) -> tuple[Seen, Found]:
    """One service as it is now. Asks for no completion, so it wakes and loads nothing.

    Where the processes of the look before live on, only its answers and its model are looked at:
    to go through all processes of the machine each minute is work.
    """
    found = (_again(known) if known else None) or survey(service, box=disk)
    weights = [one for one in found.recipe.inputs if one.get("role") == "weights"]
    heads = found.standing.heads or found.family
    why = "" if found.look.serving else found.look.why or found.standing.why or found.look.state
    if not found.family:
        why = found.standing.why or "no process of it lives"
    model = weights[0] if weights else {}
    if model:
        (fact,) = disk.files([str(model["path"])], within=FILES_WITHIN_S)
        model = model | (stamp(fact) if fact.fault not in UNKNOWN else {_UNKNOWN: fact.said})
    return (
        Seen(
            up=found.look.serving,
            pids=tuple(sorted(who.pid for who in heads)),
            said={name: found.look.identity.get(name) for name in _SAME},
            model=model,
            why=why,
            at=at,
        ),
        found,
    )


def _again(known: Found) -> Found | None:
    """The same processes, asked anew; None where they are not the same, or do not answer."""
    heads = known.standing.heads
    if not heads or not known.look.serving or not all(proc.alive(who) for who in heads):
        return None
    answer = probe.health(known.recipe.probe)
    if answer.serving:
        answer = probe.identity(known.recipe.probe)
    return dataclasses.replace(known, look=answer) if answer.serving else None


def _with_model(found: Found, model: Json) -> Recipe:
    """What a later restore should know: the model's file as it is now."""
    if _UNKNOWN in model:
        return found.recipe
    inputs = [
        {**one, **model} if one.get("path") == model.get("path") else one
        for one in found.recipe.inputs
    ]
    return dataclasses.replace(found.recipe, inputs=inputs)


class Watch:
    """Every service of production, with a pidfd on its first process."""

    def __init__(
        self,
        ledger: Ledger,
        incidents: Incidents,
        settings: Settings,
        times: Times,
        *,
        disk: Disk | None = None,
    ) -> None:
        self._ledger, self._incidents, self._times = ledger, incidents, times
        self._pidfds: dict[int, tuple[str, Ident]] = {}
        self._next: dict[str, float] = {}
        self._doubted: set[str] = set()
        self._disk = disk or Disk(times)
        self._found: dict[str, Found] = {}
        self.settings = settings
        self.known: dict[str, Seen] = {}
        """What was written down of each service."""
        self.last: dict[str, Seen] = {}
        """What was seen of it, also where that could not be written down."""

    def follow(self, settings: Settings) -> None:
        """Watch what these settings name."""
        self.settings = settings
        names = {service.name for service in settings.production}
        self.known = {name: seen for name, seen in self.known.items() if name in names}
        self.last = {name: seen for name, seen in self.last.items() if name in names}
        self._next = dict.fromkeys(names, 0.0)
        self._found = {}
        self._let_go(set(self._pidfds))

    def close(self) -> None:
        """Watch nothing any more."""
        self._let_go(set(self._pidfds))

    def fds(self) -> list[int]:
        """Descriptors that have news when a service dies."""
        return list(self._pidfds)

    def wake_at(self) -> float:
        """When the next look is due, in seconds since boot."""
        return min(self._next.values(), default=self._times.now() + EVERY_S)

    def tick(self, news: set[int], beat: Callable[[], None]) -> None:
        """Look at whatever is due or has died. `beat` is called between two services."""
        dead = {self._pidfds[fd][0] for fd in news if fd in self._pidfds}
        self._let_go({fd for fd in news if fd in self._pidfds})
        now = self._times.now()
        try:
            for service in self.settings.production:
                if service.name in dead or now >= self._next.get(service.name, 0.0):
                    self._look(service, died=service.name in dead)
                    beat()
        finally:
            self._disk.rest()

    def _look(self, service: Service, *, died: bool) -> None:
        name, wall = service.name, self._times.wall().timestamp()
        self._next[name] = self._times.now() + EVERY_S
        if self._busy():
            self._doubted.discard(name)
            self._found.pop(name, None)
            return  # what happens now is a run's, or a recovery's, to tell
        seen, found = look(service, wall, self._found.get(name), disk=self._disk)
        self._found[name] = found
        before = self.known.get(name) or self._remembered(name)
        if before and _UNKNOWN in seen.model:  # what could not be looked at has not changed
            seen = dataclasses.replace(seen, model=before.model)
        if not seen.up and not died and before and before.up and name not in self._doubted:
            self._doubted.add(name)
            self._next[name] = self._times.now() + AGAIN_S
            return
        self._doubted.discard(name)
        self.last[name] = seen
        if self._explained(before, seen) or self._busy():
            self._incidents.resolve(f"prod:{name}", self._back(service, seen)) if seen.up else None
        else:
            self._judge(service, found, before, seen)
        self.known[name] = seen
        if not seen.up:
            self._next[name] = self._times.now() + DOWN_S
        if before is None or (before.up, before.pids, before.said, before.model) != (
            seen.up,
            seen.pids,
            seen.said,
            seen.model,
        ):
            self._ledger.remember(**{f"{_FACT}{name}": seen.to_json()})
            if seen.up:
                self._remember_recipe(_with_model(found, seen.model))
        self._hold(name, found)

    def _judge(self, service: Service, found: Found, before: Seen | None, seen: Seen) -> None:
        key, name = f"prod:{service.name}", service.name
        since = clock(at_epoch(seen.at, self.settings.zone))
        if not seen.up:
            lines = list(self._how_it_went(found, before))
            self._incidents.open(key, f"DOWN since {since} · {name}: {seen.why}", lines)
            return
        self._incidents.resolve(key, self._back(service, seen))
        if before is None or not before.up:
            return
        changes = list(_changes(before, seen))
        if not set(before.pids) & set(seen.pids):
            first = f"SERVING since {self._since(seen)} · {name} was restarted, and no run did that"
            pids = f"pid {_list(before.pids)} is now pid {_list(seen.pids)}"
            self._incidents.note(f"{key}:restarted", first, [pids, *changes])
        elif changes:
            first = f"SERVING · {name} has changed, and no run did that"
            self._incidents.note(f"{key}:changed", first, changes)

    def _how_it_went(self, found: Found, before: Seen | None) -> Iterator[str]:
        """What can be told about a service that is down, and what a person can do."""
        if before is None:
            yield "it was down when the watch began; nothing is known of it before"
        elif before.up:
            last = clock(at_epoch(before.at, self.settings.zone))
            yield f"it served at {last} as pid {_list(before.pids)}; no run stopped it"
        if found.standing.why:
            yield found.standing.why
        yield "nothing is started for it: it may be down on purpose"
        yield f"to bring it back: {_by_hand(found.recipe)}"

    def _back(self, service: Service, seen: Seen) -> str:
        pids = f" as pid {_list(seen.pids)}" if seen.pids else ""
        return f"SERVING since {self._since(seen)} · {service.name} is back{pids}"

    def _since(self, seen: Seen) -> str:
        started = proc.started_at(seen.pids[0]) if seen.pids else None
        return clock(at_epoch(started or seen.at, self.settings.zone))

    def _busy(self) -> bool:
        """Whether a run or a recovery holds the box, or still owes production."""
        state_dir = Path(self.settings.state_dir)
        return (
            lock.holder(state_dir) is not None
            or (state_dir / recipe.NAME).exists()
            or lock.box_holder(self.settings.lock_name) is not None
        )

    def _explained(self, before: Seen | None, seen: Seen) -> bool:
        """Whether a run that stopped production has ended since the look before."""
        if before is None:
            return False
        for run in self._ledger.journal.history(limit=5):
            stopped = (run.get("production") or {}).get("stopped_at")
            ended = run.get("ended")
            if stopped and ended and parsed(ended).timestamp() >= before.at:
                # it has told how it left production; what happened after that it does not explain
                return parsed(ended).timestamp() <= seen.at and bool(seen.up)
        return False

    def _remembered(self, name: str) -> Seen | None:
        said = self._ledger.fact(f"{_FACT}{name}")
        return Seen.from_json(said) if said else None

    def _remember_recipe(self, known: Recipe) -> None:
        """`runner status` and a later restore know this service from now on."""
        try:
            recipe.remember(Path(self.settings.state_dir), [known])
        except OSError:
            return  # a full disk is told about by others

    def _hold(self, name: str, found: Found) -> None:
        """A pidfd on each head, so that a death is noticed when it happens."""
        held = {who for one, who in self._pidfds.values() if one == name}
        self._let_go(
            {fd for fd, (one, who) in self._pidfds.items() if one == name and not proc.alive(who)}
        )
        for who in found.standing.heads - held:
            if (fd := world.open_pidfd(who)) is not None:
                self._pidfds[fd] = (name, who)

    def _let_go(self, fds: set[int]) -> None:
        for fd in fds:
            self._pidfds.pop(fd, None)
            os.close(fd)


def _changes(before: Seen, seen: Seen) -> Iterator[str]:
    """How a service that serves is not the one that served before."""
    for name in _SAME:
        was, now = before.said.get(name), seen.said.get(name)
        if was is not None and now is not None and was != now:
            yield f"{name.replace('_', ' ')} was {was}, is {now}"
    same_path = before.model.get("path") == seen.model.get("path")
    for fact in ("size", "inode", "mtime_ns"):
        was, now = before.model.get(fact), seen.model.get(fact)
        if same_path and was is not None and was != now:
            what = "is gone" if now is None else "was replaced or rewritten"
            yield f"its model file {seen.model.get('path')} {what}"
            return


def _by_hand(known: Recipe) -> str:
    """The command with which a person starts it."""
    supervisor = known.supervisor
    if supervisor["kind"] == "systemd":
        user = "--user " if supervisor.get("scope") == "user" else ""
        return f"systemctl {user}start {supervisor['unit']}"
    words = supervisor.get("start") or supervisor.get("argv") or ()
    return " ".join(map(str, words))


def _list(pids: Sequence[int]) -> str:
    return ", ".join(map(str, pids)) or "?"
