"""How things stand now, for people and programs: production, obligation, run, outbox, drain.

It looks at the world and reads what it may; a database that cannot be opened takes nothing away
but the lines that stand in it.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

from preflight import proc
from runner.journal import Journal, JournalError
from runner.recovery import lock, probe, recipe, state
from runner.recovery.account import production, worst
from runner.recovery.drivers import driver
from runner.recovery.files import read_json
from runner.recovery.recipe import Owed, Recipe, Unreadable
from runner.words import at_epoch

Json = dict[str, Any]
_PATIENCE_S = 10.0


def _service(one: Recipe) -> Json:
    """One service as it answers now; asks for no completion, so it wakes and loads nothing."""
    look = probe.health(one.probe, within=_PATIENCE_S)
    who = probe.identity(one.probe, within=_PATIENCE_S) if look.serving else look
    known = one.identity.get("said") or {}
    same = bool(known) and all(who.identity.get(name) == said for name, said in known.items())
    heads = sorted(head.pid for head in driver(one).standing().heads)
    started = proc.started_at(heads[0]) if heads else None
    up = look.serving and who.serving
    return {
        "name": one.name,
        "state": ("serving" if same or not known else "degraded") if up else "down",
        "identity": ("same" if same else "different" if known else "unknown") if up else "unknown",
        "since": at_epoch(started) if started else None,
        "pids": heads,
        "said": who.identity,
        "why": "" if up else who.why or look.why,
        "stopped_at": None,
        "serving_at": None,
        "downtime_s": None,
    }


def _remembered(state_dir: Path, owed: Owed | None) -> list[Recipe]:
    return owed.services if owed else list(recipe.last_good(state_dir).values())


def status(state_dir: Path) -> Json:
    """The object of `status --json`."""
    note = ""
    try:
        owed = recipe.read(state_dir)
    except Unreadable as error:
        owed, note = None, str(error)
    services = [_service(one) for one in _remembered(state_dir, owed)]
    whole = production(services)
    whole["since"] = max((one["since"] for one in services if one["since"]), default=None)
    holder = lock.holder(state_dir)
    known = state.read(state_dir) if owed else {}
    said: Json = {
        "production": whole,
        "obligation": _obligation(owed, known),
        "run": {"run": holder.run, "pid": holder.pid, "since": holder.since} if holder else None,
        "guardian": known.get("guardian"),
        "drained": None,
        "next": None,
        "outbox": {"unsent": None, "oldest_s": None},
        "last": None,
        "note": note,
    }
    return said | _from_journal(state_dir)


def _obligation(owed: Owed | None, known: Json) -> Json | None:
    if owed is None:
        return None
    return {"run": owed.run, "job": owed.job, "since": owed.since, "phase": known.get("phase")}


def _from_journal(state_dir: Path) -> Json:
    try:
        with Journal.open(state_dir, read_only=True) as journal:
            unsent = journal.outbox(unsent=True)
            oldest = min((row.created for row in unsent), default=None)
            latest = journal.history(limit=1)
            return {
                "drained": journal.drained(),
                "outbox": {
                    "unsent": len(unsent),
                    "oldest_s": round(time.time() - oldest) if oldest else None,
                },
                "last": latest[0] if latest else None,
            }
    except (JournalError, OSError) as error:
        return {} if not (state_dir / "journal.db").exists() else {"note": str(error)}


def published(state_dir: Path) -> Json | None:
    """What other users may read when the rest is closed to them."""
    with contextlib.suppress(OSError):
        return read_json(state_dir / "public" / "status.json")
    return None


def is_down(said: Json) -> bool:
    """Whether a person should worry: something that we know is not serving as it was."""
    states = [one["state"] for one in said["production"]["services"]]
    return worst(states, ("down", "degraded", "serving")) in {"down", "degraded"} and bool(states)
