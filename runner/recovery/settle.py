"""Pays an obligation whose run is dead: ends what it left, restores, tells, and only then forgets.

Re-entered at any point it does what is still to do. Both locks are held by the caller.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from preflight.linux import proc
from preflight.linux.proc import Ident
from runner.recovery import account, probe, recipe, state, words
from runner.recovery.absent import Absent
from runner.recovery.account import Scale
from runner.recovery.attempt import Past, Residency, Served
from runner.recovery.leftovers import end_leftovers
from runner.recovery.recipe import Owed, Recipe
from runner.recovery.restore import Say, restore
from runner.recovery.tell import Apart, deliver, post, tell
from runner.recovery.world import shutting_down
from runner.until import Clock, Stopped, TimedOut, until

LONGEST_BACK_OFF_S = 60.0
TOLD_EARLY_S = 60.0
"""A start that takes this long to fail is told before the next one is tried."""

_UNREADABLE = (
    "its recovery file could not be read, nor its copy:"
    " each service was brought back as it was last seen serving"
)

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a recovery found and did.

    `state` is "nothing" (nothing is owed), "held" (a live run has the box; it restores by itself),
    "closed" (production serves, or was never stopped), "owed" (it is still down), "untold" (it
    serves, and nobody could be told yet) or "shutdown".
    """

    state: str
    said: str
    run: str | None = None
    production: Json = field(default_factory=dict)


def quietly(*_: object, **__: object) -> None:
    """Say nothing."""


def settle(
    state_dir: Path,
    owed: Owed,
    *,
    clock: Clock,
    say: Say,
    rounds: int | None,
    residency: Residency,
) -> Recovered:
    """Pay an obligation whose run is dead. Both locks are held by the caller."""
    return _Settling(state_dir, owed, clock=clock, say=say, residency=residency).told(rounds)


class _Settling:
    """One recovery, from what the dead run left to the word about production."""

    def __init__(
        self, state_dir: Path, owed: Owed, *, clock: Clock, say: Say, residency: Residency
    ) -> None:
        self._state_dir, self._owed, self._clock = state_dir, owed, clock
        self._say, self._residency = say, residency
        known = state.read(state_dir)
        self._known: Json = known if known.get("run") == owed.run else {}
        self._services: Json = dict(self._known.get("services") or {})
        self._memory = _memory(state_dir, self._known)
        self._known["died"] = self._known.get("died") or self._known.get("phase")
        self._notes: list[str] = []
        self._apart, self._absent = Apart(), Absent()
        self._round_began = clock.now()

    def told(self, rounds: int | None) -> Recovered:
        """End the leftovers, restore until all serves or the rounds are over, tell."""
        try:
            return self._told(rounds)
        finally:
            self._apart.finish()
            if self._memory is not None:
                self._memory.close()

    def _told(self, rounds: int | None) -> Recovered:
        phase = self._known.get("phase")
        self._say("recovering", run=self._owed.run, phase=self._known["died"])
        self._notes = end_leftovers(self._owed, self._known, self._clock)
        if not self._owed.boot:
            self._notes.append(_UNREADABLE)
        if phase == "armed":
            return self._never_stopped()
        number = 0
        try:
            while True:
                done = self._round(last=rounds is not None and number + 1 >= rounds)
                number += 1
                if done.state == "closed" or (rounds is not None and number >= rounds):
                    return done
                self._back_off(number)
        except Stopped as stopped:
            return self._cut(stopped.reason)

    def _round(self, *, last: bool) -> Recovered:
        """One try at everything that is still to do."""
        if self._known.get("phase") == "restored":  # then only the telling is still to do
            return self._paid(self._known.get("production") or account.production([]))
        self._round_began = self._clock.now()
        served = restore(
            self._owed.due(self._services),
            pasts={name: Past.from_json(said) for name, said in self._services.items()},
            last_good=recipe.last_good(self._state_dir),
            clock=self._clock,
            stop=self._why_not_now,
            residency=self._residency,
            note=self._note,
            say=self._heard,
        )
        scale = Scale.of(self._clock, self._owed.timezone)
        whole = account.restored(self._owed, served, account.stops(self._known, scale), scale)
        unreadable = not served and not self._owed.boot
        if unreadable:
            whole |= {"state": "down"}  # what cannot be read is not paid
        if not unreadable and all(one.state != "down" for one in served):
            good = [one.recipe for one in served if one.recipe and one.state == "serving"]
            self._apart.finish()
            self._remember(phase="restored", production=whole)
            return self._paid(whole, good)
        why = words.reasons(whole) or "what is owed cannot be read"
        if last:
            self._tell(whole)
        else:  # whoever takes long to be told does not hold up the next try
            self._apart.do(lambda: self._tell_and_deliver(whole))
        return Recovered("owed", why, self._owed.run, whole)

    def _paid(self, whole: Json, good: list[Recipe] | None = None) -> Recovered:
        """Production serves: tell, and only then forget the debt."""
        run = self._owed.run
        if self._tell(whole) is None:
            why = f"production is {whole['state']}, and nobody could be told yet"
            return Recovered("untold", why, run, whole)
        return self._closed(f"production is {whole['state']}", whole, good or [])

    def _closed(self, said: str, whole: Json, good: list[Recipe]) -> Recovered:
        try:
            recipe.close(self._state_dir, good)
        except OSError as error:
            said += f"; the debt cannot be removed: {error.strerror}"
        else:
            self._remember(phase="closed")
        return Recovered("closed", said, self._owed.run, whole)

    def _never_stopped(self) -> Recovered:
        """The run died before it stopped anything: whoever is down now is not ours to start."""
        scale = Scale.of(self._clock, self._owed.timezone)
        seen = [(one, probe.serving(one.probe, within=10)) for one in self._owed.services]
        stands = [
            account.service(
                one,
                Served(one.name, "serving" if look.serving else "down-before", why=look.why),
                stopped=None,
                scale=scale,
                untouched=True,
            )
            for one, look in seen
        ]
        whole = account.production(stands)
        run = self._owed.run
        if self._tell(whole) is None:
            return Recovered("untold", f"run {run} died, and nobody could be told yet", run, whole)
        return self._closed(f"run {run} died before it stopped anything", whole, [])

    def _tell(self, whole: Json, *, shutdown: bool = False) -> str | None:
        news = tell(
            self._state_dir,
            self._owed,
            self._known,
            production=whole,
            clock=self._clock,
            notes=self._notes,
            shutdown=shutdown,
        )
        self._known = self._known | {"told": news or self._known.get("told")}
        return news

    def _tell_and_deliver(self, whole: Json) -> None:
        self._tell(whole)
        deliver(self._state_dir, self._owed)

    def _cut(self, reason: str) -> Recovered:
        """The machine goes down, or a person has taken over: hold nothing up."""
        if not shutting_down():
            return Recovered("closed", reason, self._owed.run)
        self._tell(account.production([]), shutdown=True)
        return Recovered("shutdown", f"{reason}; it stays owed", self._owed.run)

    def _note(self, name: str, who: Ident | None) -> None:
        started = who.to_json() if who else None
        self._services[name] = {**self._services.get(name, {}), "started": started}
        self._remember(phase="restoring", services=self._services)

    def _remember(self, **said: object) -> None:
        self._known = self._known | said
        if self._memory is not None:
            kept = {name: self._known.get(name) for name in ("died", "told")}
            self._memory.note(run=self._owed.run, **kept, **said)

    def _heard(self, event: str, **detail: object) -> None:
        """Say on, and tell a person at once of a start that took its time to fail."""
        self._say(event, **detail)
        if event == "failed" and self._clock.now() - self._round_began >= TOLD_EARLY_S:
            scale = Scale.of(self._clock, self._owed.timezone)
            alert = words.trying(self._owed, detail, self._known, scale)
            self._apart.do(lambda: post(self._state_dir, self._owed, alert, clock=self._clock))

    def _why_not_now(self) -> str | None:
        """Why a restore must end: the machine goes down, or a person has taken the debt over."""
        if shutting_down():
            return "the machine is going down"
        if (self._state_dir / recipe.NAME).exists():
            return None
        released = recipe.is_released(self._state_dir, self._owed.run)
        return "a person has taken production over" if released else None

    def _back_off(self, number: int) -> None:
        """Wait longer after each round, but not when what kept a service down has changed."""
        try:
            self._wait_for_change(min(2.0**number, LONGEST_BACK_OFF_S))
        finally:
            self._absent.close()

    def _wait_for_change(self, within: float) -> None:
        before = self._obstacles()

        def changed() -> bool | None:
            return True if self._obstacles() != before else None

        try:
            until(changed, within=within, clock=self._clock, every=0.5, stop=self._why_not_now)
        except TimedOut:
            return

    def _obstacles(self) -> list[object]:
        """Who holds the ports, and which of the files are there."""
        seen: list[object] = []
        for one in self._owed.due(self._services):
            seen.append(bool(proc.claimants(one.host, one.port)))
            seen.append(self._absent.of([str(said.get("path") or "") for said in one.inputs]))
        return seen


def _memory(state_dir: Path, known: Json) -> state.StateFile | None:
    try:
        memory = state.StateFile(state_dir)
        if not known:
            memory.begin({})  # what another run left there is not this one's
    except OSError:
        return None
    return memory
