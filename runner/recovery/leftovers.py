"""Ends what a dead or hung run has left: its candidate, and a holder of the lock that hangs.

It never touches production's family, and says what it cannot end or cannot know.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from preflight.linux import proc
from preflight.linux.proc import Ident
from runner.recovery import cgroups, lock, state, world
from runner.recovery.attempt import Past
from runner.recovery.drivers import driver
from runner.recovery.recipe import Owed
from runner.recovery.stop import describe
from runner.until import Clock, TimedOut, until

CLEAR_S = 10.0
KILL_HOLDER_S = 5.0
STOPPED_S = 3.0
"""A recovery that somebody has stopped (SIGSTOP) this long restores nothing, and is ended."""

UNKNOWN = (
    "whether the candidate left processes behind cannot be known:"
    " it had no cgroup of its own, and its guardian died too"
)

Json = dict[str, Any]


def end_leftovers(owed: Owed, known: Mapping[str, Any], clock: Clock) -> list[str]:
    """End what is left of the dead run's candidate; what cannot be ended or known, in words.

    By cgroup where it had one, else by its tag, its recorded process, and as children of its
    guardian, which may hang. Members of production's family are never touched, whatever tag they
    carry.
    """
    mine = known if known.get("run") == owed.run else {}
    candidate: Json = mine.get("candidate") or {}
    home = _home(candidate, owed.run)
    first = Ident.from_json(candidate.get("who"))
    keeper = Ident.from_json(mine.get("guardian"))
    spared = _production(owed, mine)

    def left() -> set[int]:
        members = proc.tagged(owed.run)
        if keeper is not None and keeper.pid != os.getpid() and proc.alive(keeper):
            members |= proc.descendants(keeper.pid)
        members -= spared
        if home is not None:
            members |= cgroups.members(home)
        if first is not None and proc.alive(first):
            members |= {first.pid} | proc.descendants(first.pid)
        return members - {os.getpid()}

    def cleared() -> bool | None:
        remaining = world.identified(left)
        if not remaining:
            return True
        if home is not None:
            cgroups.kill(home)
        world.send_all(remaining, signal.SIGKILL)
        return None

    try:
        until(cleared, within=CLEAR_S, clock=clock, every=0.02)
    except TimedOut:
        return [f"{describe(pid)} of the dead run does not end" for pid in sorted(left())]
    if home is not None:
        cgroups.remove(home)
        return []
    unknown = keeper is not None and keeper.pid != os.getpid() and not proc.alive(keeper)
    return [UNKNOWN] if unknown and mine.get("phase") != "armed" else []


def _home(candidate: Json, run: str) -> Path | None:
    """The candidate's cgroup on record, which bears its run's name and no other."""
    said = candidate.get("cgroup")
    home = Path(said) if isinstance(said, str) else None
    return home if home is not None and home.name == cgroups.name_of(run) else None


def _production(owed: Owed, known: Mapping[str, Any]) -> set[int]:
    """The pids of every service, as its supervisor tells; a listener alone may be the candidate."""
    services: Json = known.get("services") or {}
    pids: set[int] = set()
    for one in owed.services:
        past = Past.from_json(services.get(one.name) or {})
        try:
            pids |= driver(one, past.started).standing().family
        except (KeyError, TypeError, ValueError, AttributeError):  # a recipe of another version
            continue
    return pids


def end_hung_holder(state_dir: Path, owed: Owed, clock: Clock) -> str | None:
    """End a holder of the lock that will never let go: first it, then its lock is free.

    A run past its lease hangs; so does whoever should be restoring and was stopped (SIGSTOP). A
    restore that goes on is never cut. Who hangs and cannot be ended, in words; else None.
    """
    holder = lock.holder(state_dir)
    if holder is None or holder.who is None:
        return None
    who, restoring = holder.who, state.read(state_dir).get("phase") == "restoring"
    if holder.run == owed.run and not restoring:
        hangs = _lease_is_over(owed, clock)
    elif holder.run in {owed.run, lock.recovery_of(owed.run)}:
        hangs = _stays_stopped(who, clock)
    else:
        return None
    if not hangs:
        return None
    world.send(who, signal.SIGKILL)
    try:
        until(lambda: None if proc.alive(who) else True, within=KILL_HOLDER_S, clock=clock)
    except TimedOut:
        return describe(who.pid)
    return None


def _lease_is_over(owed: Owed, clock: Clock) -> bool:
    return owed.ends_at is not None and owed.boot == proc.boot_id() and clock.now() >= owed.ends_at


def _stays_stopped(who: Ident, clock: Clock) -> bool:
    def runs() -> bool | None:
        return None if world.is_stopped(who) else True

    if runs():
        return False
    try:
        until(runs, within=STOPPED_S, clock=clock, every=0.1)
    except TimedOut:
        return True
    return False
