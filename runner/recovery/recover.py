"""`runner recover`: bring production back if a dead run owes it, and tell.

One path, used by the guardian, the boot, a timer and a person. It needs `recovery.json` and nothing
else: a journal that is locked, corrupt, full or of another version is told about and passed by. It
never runs a job again, and it starts nothing that this obligation did not stop.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from runner.journal import Journal
from runner.recovery import limbo, lock, recipe, state, words
from runner.recovery.account import Scale
from runner.recovery.attempt import Residency
from runner.recovery.leftovers import end_hung_holder, end_leftovers
from runner.recovery.recipe import Owed, Unreadable
from runner.recovery.restore import Say, residency_by_tool
from runner.recovery.settle import Recovered, quietly, settle
from runner.recovery.tell import deliver, post
from runner.until import Clock, RealClock

__all__ = ["Recovered", "end_leftovers", "quietly", "recover", "release", "settle"]

Json = dict[str, Any]


def recover(
    state_dir: Path,
    *,
    clock: Clock,
    say: Say = quietly,
    rounds: int | None = 1,
    residency: Residency = residency_by_tool,
    remembered: Owed | None = None,
) -> Recovered:
    """Look whether something is owed, and if so end what the dead run left and restore.

    Runs that died owing nothing get their outcome here too. `rounds` limits the tries (None: until
    it serves or the machine goes down). `remembered` is what a guardian knows to be owed, should
    the files be gone. Raises OSError only when the lock cannot be asked for at all; a fault of ours
    is told before it is raised.
    """
    owed = _owed(state_dir, remembered)
    limbo.close_dead(state_dir, clock, owing=owed.run if owed else None)
    if owed is None:
        return Recovered("nothing", "nothing is owed")
    try:
        return _pay(
            state_dir,
            owed,
            clock=clock,
            say=say,
            rounds=rounds,
            residency=residency,
            remembered=remembered,
        )
    except Exception as error:  # whatever it is, production is still owed
        alert = words.fault(owed, error, Scale.of(clock, owed.timezone))
        post(state_dir, owed, alert, clock=clock)
        raise


def _pay(
    state_dir: Path,
    owed: Owed,
    *,
    clock: Clock,
    say: Say,
    rounds: int | None,
    residency: Residency,
    remembered: Owed | None,
) -> Recovered:
    """Take the lock, once whoever hangs on it has been ended, and settle what is still owed then."""
    if hung := end_hung_holder(state_dir, owed, clock):
        post(
            state_dir,
            owed,
            words.unkillable(owed, hung, Scale.of(clock, owed.timezone)),
            clock=clock,
        )
    since = Scale.of(clock, owed.timezone).iso(clock.now()) or ""
    label = lock.recovery_of(owed.run)
    try:
        with lock.hold(state_dir, run=label, since=since, name=owed.lock_name, file_needed=False):
            still = _owed(state_dir, remembered)  # whoever had the lock may have paid
            if still is None:
                return Recovered("nothing", "nothing is owed any more")
            done = settle(
                state_dir, still, clock=clock, say=say, rounds=rounds, residency=residency
            )
    except lock.Busy as busy:
        if _waits_for_a_stranger(state_dir, owed, busy.holder):
            scale = Scale.of(clock, owed.timezone)
            post(state_dir, owed, words.held(owed, f"{busy}", scale), clock=clock)
        return Recovered("held", f"{busy}", owed.run)
    if done.state != "shutdown":
        deliver(state_dir, still)
    return done


def _waits_for_a_stranger(state_dir: Path, owed: Owed, holder: lock.Holder) -> bool:
    """Whether what is down stays down for a run of another state directory, for as long as it likes.

    Who has the lock on behalf of this debt restores by itself.
    """
    if holder.run is None or holder.run in {owed.run, lock.recovery_of(owed.run)}:
        return False
    return state.read(state_dir).get("phase") != "armed"


def _owed(state_dir: Path, remembered: Owed | None = None) -> Owed | None:
    """What is owed; of a file that cannot be read, at least that everything last seen is."""
    try:
        owed = recipe.read(state_dir)
    except Unreadable as error:
        return _unreadable(state_dir, error)
    if owed is None and remembered is not None and not _let_go(state_dir, remembered.run):
        return remembered
    return owed


def _let_go(state_dir: Path, run: str) -> bool:
    """Whether a recovery file that is gone was removed by one who may, and not by a clean-up."""
    if recipe.is_released(state_dir, run):
        return True
    return state.read(state_dir).get("phase") in {"closed", "armed"}


def _unreadable(state_dir: Path, error: Unreadable) -> Owed:
    """Every service as it was last seen serving; run, job and channels as the state has them."""
    try:
        since = int(os.stat(state_dir / recipe.NAME).st_mtime)
    except OSError:
        since = 0
    services = list(recipe.last_good(state_dir).values())
    known = state.read(state_dir)

    def word(name: str, otherwise: str) -> str:
        said = known.get(name)
        return said if isinstance(said, str) else otherwise

    channels = known.get("tell")
    return Owed(
        run=word("run", f"unreadable-{since}"),
        job=word("job", f"a job that is not known ({error})"),
        boot="",
        since="",
        lock_name=word("lock_name", lock.BOX),
        services=services,
        stops=[one.name for one in services],
        tell=channels if isinstance(channels, list) else [],
        timezone=word("timezone", "UTC"),
    )


def release(state_dir: Path, reason: str, *, clock: Clock | None = None) -> bool:
    """A person takes production over: nothing of ours will start it any more for this debt.

    False when nothing is owed. Raises lock.Busy while the run itself lives: cancel that instead.
    A recovery that is trying stops at its next look. Raises OSError, and JournalError after the
    debt is gone where the reason could not be written down.
    """
    owed = _owed(state_dir)
    if owed is None:
        return False
    holder = lock.holder(state_dir)
    if holder is not None and holder.run == owed.run:
        raise lock.Busy(holder)
    # first, so that nobody takes the missing file for the work of a clean-up
    recipe.mark_released(state_dir, owed.run)
    recipe.close(state_dir, owed.services)  # as they were seen serving, before they were stopped
    with Journal.open(state_dir) as journal:
        journal.event(owed.run, "released", reason=reason)
    limbo.close_dead(state_dir, clock or RealClock())
    deliver(state_dir, owed)
    return True
