"""How things stand now, for people and programs: production, obligation, run, outbox, drain.

It looks at the world and reads what it may; a database that cannot be opened takes nothing away
but the lines that stand in it.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

from preflight.linux import proc
from runner.files import publish
from runner.journal import ANEW, Journal, JournalError
from runner.recovery import lock, probe, recipe, state
from runner.recovery.account import production, worst
from runner.recovery.drivers import driver
from runner.recovery.files import read_json
from runner.recovery.recipe import Owed, Recipe, Unreadable
from runner.recovery.sameness import differences
from runner.recovery.told import Told
from runner.words import at_epoch, day_and_clock, parsed

Json = dict[str, Any]
_PATIENCE_S = 10.0
_SHOWN_S = 7 * 24 * 3600.0


def _service(one: Recipe, past: Json) -> Json:
    """One service as it answers now; asks for no completion, so it wakes and loads nothing.

    `past` is what the state says of its stop: one that is down is so since then, as far as we know.
    """
    look = probe.health(one.probe, within=_PATIENCE_S)
    who = probe.identity(one.probe, within=_PATIENCE_S) if look.serving else look
    answers = who.state in {"serving", "wrong", "locked"}
    differs = differences(one.identity.get("said") or {}, who.identity) if answers else None
    why = "; ".join(differs or ()) or who.why or look.why or look.state
    try:
        heads = sorted(head.pid for head in driver(one).standing().heads)
    except (KeyError, TypeError, ValueError, AttributeError) as error:  # of another version
        heads, why = [], why or f"its recipe cannot be read: {error!r}"
    started = proc.started_at(heads[0]) if heads else None
    state, identity = "down", "unknown"
    if answers:
        other = bool(differs) or who.state != "serving"
        state = "degraded" if other else "serving"
        identity = "different" if other else "same" if differs is not None else "unknown"
    since = past.get("stopped") if state == "down" else started
    return {
        "name": one.name,
        "state": state,
        "identity": identity,
        "since": at_epoch(since) if since else None,
        "pids": heads,
        "said": who.identity,
        "why": "" if state == "serving" else why,
        "stopped_at": None,
        "serving_at": None,
        "downtime_s": None,
    }


def _remembered(state_dir: Path, owed: Owed | None) -> list[Recipe]:
    return owed.services if owed else list(recipe.last_good(state_dir).values())


def status(state_dir: Path) -> Json:
    """The object of `status --json`."""
    known = state.read(state_dir)
    note, unread = "" if state_dir.exists() else f"there is no state directory {state_dir}", None
    try:
        owed = recipe.read(state_dir)
    except Unreadable as error:
        owed, note = None, f"what is owed cannot be read: {error}"
        unread = {"run": known.get("run"), "job": None, "since": None, "phase": known.get("phase")}
    past = known.get("services") if owed and known.get("run") == owed.run else None
    services = [
        _service(one, (past or {}).get(one.name) or {}) for one in _remembered(state_dir, owed)
    ]
    whole = production(services)
    whole["since"] = max((one["since"] for one in services if _decides(one, whole)), default=None)
    holder = lock.holder(state_dir)
    known = known if owed else {}
    said: Json = {
        "production": whole,
        "obligation": _obligation(owed, known) or unread,
        "run": {"run": holder.run, "pid": holder.pid, "since": holder.since} if holder else None,
        "guardian": known.get("guardian"),
        "drained": None,
        "next": _next(state_dir),
        "outbox": {"unsent": None, "oldest_s": None},
        "last": None,
        "note": note,
    }
    told = _from_journal(state_dir)
    notes = [one for one in (note, told.pop("note", ""), _past_the_journal(state_dir)) if one]
    return said | told | {"note": "; ".join(notes)}


def _decides(one: Json, whole: Json) -> bool:
    """Whether production is as it is because of this service."""
    return bool(one["since"]) and one["state"] == whole["state"]


def _next(state_dir: Path) -> Json | None:
    """The next fire, as the daemon has published it; None where none is known."""
    said = read_json(state_dir / "public" / "next.json") or {}
    slots = said.get("slots")
    for slot in slots if isinstance(slots, list) else ():
        with contextlib.suppress(KeyError, TypeError, ValueError):
            if parsed(str(slot["at"])).timestamp() > time.time():
                return {"job": slot["job"], "at": slot["at"], "would": slot.get("would")}
    return None


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
                "note": _what_was_lost(journal),
                "drained": journal.drained(),
                "outbox": {
                    "unsent": len(unsent),
                    "oldest_s": round(time.time() - oldest) if oldest else None,
                },
                "last": latest[0] if latest else None,
            }
    except (JournalError, OSError) as error:
        return {} if not (state_dir / "journal.db").exists() else {"note": str(error)}


def _what_was_lost(journal: Journal) -> str:
    """Why an older history is missing, for some days after it was."""
    lost = [one for one in journal.incidents() if one["key"] == ANEW]
    fresh = [one for one in lost if time.time() - parsed(one["opened"]).timestamp() < _SHOWN_S]
    return "; ".join(f"{one['text']} ({day_and_clock(one['opened'])})" for one in fresh)


def _past_the_journal(state_dir: Path) -> str:
    """What was told to people and could not be written down, as long as that is so."""
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    open_ = Told(state_dir).standing(now)
    reasons = dict.fromkeys(said["because"] for said in open_)
    if not reasons:
        return ""
    since = day_and_clock(at_epoch(time.time() - now + min(said["since"] for said in open_)))
    return f"alerts could not be written down since {since}, and went out without it: " + "; ".join(
        reasons
    )


def show(state_dir: Path, said: Json) -> None:
    """Publish it for the other users of the box; a disk that refuses keeps nobody from an answer."""
    with contextlib.suppress(OSError):
        publish(state_dir, "status", said | {"at": time.time()})


def published(state_dir: Path) -> Json | None:
    """What other users may read when the rest is closed to them."""
    with contextlib.suppress(OSError):
        return read_json(state_dir / "public" / "status.json")
    return None


def is_down(said: Json) -> bool:
    """Whether a person should worry: something that we know is not serving as it was."""
    states = [one["state"] for one in said["production"]["services"]]
    return worst(states, ("down", "degraded", "serving")) in {"down", "degraded"} and bool(states)
