"""End a run orderly from elsewhere: the wish goes to whoever holds the lock, and is waited for."""

import signal
from pathlib import Path
from typing import Any

from jobs.errors import ConfigError, Problem
from runner.journal import Journal
from runner.recovery import lock, world
from runner.settings import Settings
from runner.until import Clock, RealClock, TimedOut, until

WITHIN_S = 3600.0
"""How long a cancelled run may take to bring production back: a restore is never cut."""

Json = dict[str, Any]


def cancel(settings: Settings, run_id: str | None = None, *, clock: Clock | None = None) -> Json:
    """Ask the run that holds the box to end, wait until it has, and give back its result.

    Raises ConfigError when nothing runs, when another run does than the one named, or when its
    process is not ours to signal.
    """
    state_dir = Path(settings.state_dir)
    holder = lock.holder(state_dir)
    if holder is None or holder.who is None or holder.run is None:
        raise _cannot("no run holds the box", "see: runner status")
    if run_id is not None and not holder.run.startswith(run_id):
        raise _cannot(f"run {run_id} does not hold the box; {holder.run} does", "name that one")
    who = holder.who
    if not world.send(who, signal.SIGINT):
        raise _cannot(
            f"run {holder.run} (pid {who.pid}) cannot be signalled",
            "cancel as the user it runs as",
        )

    def over() -> bool | None:
        now = lock.holder(state_dir)
        return True if now is None or now.who != who else None

    try:
        until(over, within=WITHIN_S, clock=clock or RealClock(), every=0.1)
    except TimedOut as error:
        raise _cannot(
            f"run {holder.run} has not ended within an hour", "see: runner status"
        ) from error
    with Journal.open(state_dir, read_only=True, zone=settings.zone) as journal:
        return journal.run(holder.run) or {"run": holder.run, "outcome": None}


def _cannot(message: str, remedy: str) -> ConfigError:
    return ConfigError(Problem("", None, "cancel", message, remedy))
