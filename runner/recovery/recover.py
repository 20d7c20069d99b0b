"""`runner recover`: bring production back if a dead run owes it, and tell.

One path, used by the guardian, the boot, a timer and a person. It needs `recovery.json` and nothing
else: a journal that is locked, corrupt, full or of another version is told about and passed by. It
never runs a job again, and it starts nothing that this obligation did not stop.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from preflight import proc
from preflight.proc import Ident
from runner.journal import Journal
from runner.recovery import account, lock, recipe, state, world
from runner.recovery.account import Scale
from runner.recovery.attempt import Past, Residency, Served
from runner.recovery.recipe import Owed, Unreadable
from runner.recovery.restore import Say, residency_by_tool, restore
from runner.recovery.stop import describe
from runner.recovery.tell import tell
from runner.until import Clock, Stopped, TimedOut, rest, until

KILL_HOLDER_S = 5.0
CLEAR_S = 10.0
LONGEST_BACK_OFF_S = 60.0

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a recovery found and did.

    `state` is "nothing" (nothing is owed), "held" (a live run has the box; it restores by itself),
    "closed" (production serves, or was never stopped), "owed" (it is still down) or "shutdown".
    """

    state: str
    said: str
    run: str | None = None
    production: Json = field(default_factory=dict)


def quietly(*_: object, **__: object) -> None:
    """Say nothing."""


def recover(
    state_dir: Path,
    *,
    clock: Clock,
    say: Say = quietly,
    rounds: int | None = 1,
    residency: Residency = residency_by_tool,
) -> Recovered:
    """Look whether something is owed, and if so end what the dead run left and restore.

    `rounds` limits the tries (None: until it serves or the machine goes down). Raises OSError only
    when the state directory itself cannot be used at all.
    """
    owed = _read(state_dir)
    if owed is None:
        return Recovered("nothing", "nothing is owed")
    _end_expired_holder(state_dir, owed, clock)
    since = Scale.of(clock, owed.timezone).iso(clock.now()) or ""
    try:
        with lock.hold(state_dir, run=f"recovery of {owed.run}", since=since, name=owed.lock_name):
            owed = _read(state_dir)  # whoever had the lock may have paid
            if owed is None:
                return Recovered("nothing", "nothing is owed any more")
            return settle(state_dir, owed, clock=clock, say=say, rounds=rounds, residency=residency)
    except lock.Busy as busy:
        return Recovered("held", f"{busy}", owed.run if owed else None)


def _read(state_dir: Path) -> Owed | None:
    """What is owed; of a file that cannot be read, at least that everything last seen is."""
    try:
        return recipe.read(state_dir)
    except Unreadable as error:
        services = list(recipe.last_good(state_dir).values())
        return Owed(
            run=f"unknown ({error})",
            job="unknown",
            boot="",
            since="",
            lock_name=lock.BOX,
            services=services,
            stops=[one.name for one in services],
        )


def _end_expired_holder(state_dir: Path, owed: Owed, clock: Clock) -> None:
    """A run past its lease is hung: kill it first, then its lock is free. Never the other way."""
    known = state.read(state_dir)
    holder = lock.holder(state_dir)
    if (
        holder is None
        or holder.who is None
        or holder.run != owed.run
        or owed.ends_at is None
        or owed.boot != proc.boot_id()
        or clock.now() < owed.ends_at
        or known.get("phase") == "restoring"
    ):
        return
    world.send(holder.who, signal.SIGKILL)
    who = holder.who
    try:
        until(lambda: None if proc.alive(who) else True, within=KILL_HOLDER_S, clock=clock)
    except TimedOut:
        return  # unkillable; the lock will say that it is held, and by whom


def end_leftovers(owed: Owed, known: Json, clock: Clock) -> list[str]:
    """End what is left of the dead run's candidate, and say what cannot be ended.

    By cgroup where it had one, else by its tag and its recorded process. Members of production's
    family are never touched, whatever tag they carry.
    """
    mine = known if known.get("run") == owed.run else {}
    candidate: Json = mine.get("candidate") or {}
    home = Path(candidate["cgroup"]) if candidate.get("cgroup") else None
    first = Ident.from_json(candidate.get("who"))
    spared = _production_pids(owed)

    def left() -> set[int]:
        members = proc.tagged(owed.run)
        if home is not None:
            members |= world.cgroup_members(home)
        if first is not None and proc.alive(first):
            members |= proc.family(first.pid)
        return members - spared

    def cleared() -> bool | None:
        remaining = left()
        if not remaining:
            return True
        if home is not None:
            world.kill_cgroup(home)
        world.send_all(remaining, signal.SIGKILL)
        return None

    try:
        until(cleared, within=CLEAR_S, clock=clock, every=0.02)
    except TimedOut:
        return [f"{describe(pid)} of the dead run does not end" for pid in sorted(left())]
    if home is not None:
        world.remove_cgroup(home)
    return []


def _production_pids(owed: Owed) -> set[int]:
    pids: set[int] = set()
    for one in owed.services:
        for pid in proc.owners(one.port):
            if proc.TAG not in (proc.environ(pid) or {}):
                pids |= proc.family(pid)
    return pids


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
    known = state.read(state_dir)
    known = known if known.get("run") == owed.run else {}
    say("recovering", run=owed.run, phase=known.get("phase"))
    notes = end_leftovers(owed, known, clock)
    if known.get("phase") == "armed" and owed.boot == proc.boot_id():
        return _never_stopped(state_dir, owed, clock)
    memory = _memory(state_dir)
    services: Json = dict(known.get("services") or {})

    def note(name: str, who: Ident | None) -> None:
        services[name] = {**services.get(name, {}), "started": who.to_json() if who else None}
        if memory is not None:
            memory.note(run=owed.run, phase="restoring", services=services)

    def stop() -> str | None:
        return _why_not_now(state_dir)

    number = 0
    while True:
        try:
            served = restore(
                owed.stopped,
                pasts={name: Past.from_json(said) for name, said in services.items()},
                last_good=recipe.last_good(state_dir),
                clock=clock,
                stop=stop,
                residency=residency,
                note=note,
                say=say,
            )
            number += 1
            paid = _finish(state_dir, owed, known, served, clock=clock, notes=notes)
            if paid.state == "closed" or (rounds is not None and number >= rounds):
                return paid
            rest(min(2.0**number, LONGEST_BACK_OFF_S), clock=clock, stop=stop)
        except Stopped as stopped:
            if not world.shutting_down():
                return Recovered("closed", stopped.reason, owed.run)
            tell(state_dir, owed, known, None, clock=clock, notes=[stopped.reason])
            return Recovered("shutdown", f"{stopped.reason}; it stays owed", owed.run)


def _why_not_now(state_dir: Path) -> str | None:
    """Why a restore must end: the machine goes down, or a person has taken the debt over."""
    if world.shutting_down():
        return "the machine is going down"
    return None if (state_dir / recipe.NAME).exists() else "a person has taken production over"


def _memory(state_dir: Path) -> state.StateFile | None:
    try:
        return state.StateFile(state_dir)
    except OSError:
        return None


def _never_stopped(state_dir: Path, owed: Owed, clock: Clock) -> Recovered:
    """The run died before it stopped anything: whoever is down now is not ours to start."""
    tell(state_dir, owed, {"phase": "armed"}, [], clock=clock, notes=[])
    recipe.close(state_dir, [])
    return Recovered("closed", f"run {owed.run} died before it stopped anything", owed.run)


def _finish(
    state_dir: Path,
    owed: Owed,
    known: Json,
    served: list[Served],
    *,
    clock: Clock,
    notes: list[str],
) -> Recovered:
    """Tell what became of production, and close the obligation when all of it answers."""
    scale = Scale.of(clock, owed.timezone)
    whole = account.restored(owed, served, account.stops(known, scale), scale)
    up = all(one.state != "down" for one in served)
    tell(state_dir, owed, known, served, clock=clock, notes=notes, production=whole)
    if up:
        recipe.close(
            state_dir,
            [one.recipe for one in served if one.recipe is not None and one.state == "serving"],
        )
        return Recovered("closed", f"production is {whole['state']}", owed.run, whole)
    down = "; ".join(f"{one.name}: {one.why}" for one in served if one.state == "down")
    return Recovered("owed", down, owed.run, whole)


def release(state_dir: Path, reason: str) -> bool:
    """A person takes production over: nothing of ours will start it any more for this debt.

    False when nothing is owed. Raises lock.Busy while the run itself lives: cancel that instead.
    A recovery that is trying stops at its next look. Raises OSError, and JournalError after the
    debt is gone where the reason could not be written down.
    """
    owed = _read(state_dir)
    if owed is None:
        return False
    holder = lock.holder(state_dir)
    if holder is not None and holder.run == owed.run:
        raise lock.Busy(holder)
    recipe.close(state_dir, [])
    with Journal.open(state_dir) as journal:
        journal.event(owed.run, "released", reason=reason)
        journal.incident(f"{owed.run}:released", f"production was taken over: {reason}", owed.run)
    return True
