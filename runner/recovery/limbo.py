"""Gives an outcome to runs that died while they owed nothing: before the stop, or after the debt.

What a run owed is told by `settle`; this is about the others, which nobody would ever hear of again.
It starts and ends no process.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from preflight.linux import proc
from preflight.linux.proc import Ident
from runner.journal import Journal, JournalError
from runner.outcome import MEANINGS, Outcome, exit_code
from runner.recovery import account, probe, recipe, state, words
from runner.recovery.attempt import Served
from runner.recovery.files import read_json
from runner.recovery.recipe import Owed
from runner.until import Clock

_WHY = "the run died while it owed nothing: before it stopped production, or when that was back"
_LATE = "production was brought back at a time when that could not be written down here"

Json = dict[str, Any]


def close_dead(state_dir: Path, clock: Clock, *, owing: str | None = None) -> list[str]:
    """Close every run that has neither an outcome nor a process; their ids. Never raises.

    `owing` is the run whose debt is open: it gets its outcome with its production. The alert
    stands in the outbox, since a run that owed nothing left no channels behind.
    """
    if not (state_dir / "journal.db").exists():
        return []
    closed: list[str] = []
    try:
        with Journal.open(state_dir, read_only=True) as journal:
            dead = [run for run in journal.open_runs() if run["run"] != owing and not _lives(run)]
        if dead:
            whole = _production(state_dir, clock)
            with Journal.open(state_dir) as journal:
                for run in dead:
                    taken, why = _taken_over(journal, run["run"]), _WHY
                    result = _own_result(state_dir, run)
                    if result is None and (result := _paid(state_dir, run, clock)):
                        why = _LATE
                    result = result or _interrupted(run, whole, taken)
                    if _close(journal, run, result, taken or why, clock):
                        closed.append(run["run"])
    except (JournalError, OSError):
        return closed  # the next look is not far
    return closed


def _lives(run: Json) -> bool:
    who = Ident.from_json(run["ident"])
    return who is not None and proc.alive(who)


def _own_result(state_dir: Path, run: Json) -> Json | None:
    """What the run wrote itself, where it came that far and only the journal could not be written."""
    said: Json = read_json(state_dir / "runs" / run["run"] / "result.json") or {}
    known = MEANINGS.get(said.get("exit_code", -1))
    whole = known is not None and known[0] == said.get("outcome") and said.get("headline")
    return said if whole else None


def _paid(state_dir: Path, run: Json, clock: Clock) -> Json | None:
    """What a recovery noted that brought production back while there was no journal to write to."""
    known = state.read(state_dir)
    whole = known.get("production")
    if known.get("run") != run["run"] or not isinstance(whole, dict):
        return None
    owed = Owed(
        run=run["run"],
        job=run["job"],
        boot="",
        since=run["started"],
        lock_name="",
        services=[],
        stops=[],
        trigger=run["trigger"],
    )
    scale = account.Scale.of(clock)
    try:
        alert = words.alert(owed, known, whole, notes=[], scale=scale)
        return words.result(owed, known, whole, alert, scale)
    except (KeyError, TypeError, ValueError, AttributeError):  # noted by another version
        return None


def _taken_over(journal: Journal, run: str) -> str | None:
    """That a person has taken over what this run owed, and why."""
    said = [one["detail"] for one in journal.events(run) if one["name"] == "released"]
    return f"a person has taken production over: {said[-1].get('reason')}" if said else None


def _production(state_dir: Path, clock: Clock) -> Json:
    """How the services stand that were last seen serving; nothing is waited for."""
    scale = account.Scale.of(clock)
    stands = []
    for one in recipe.last_good(state_dir).values():
        look = probe.identity(one.probe) if probe.health(one.probe).serving else None
        up = look is not None and look.serving
        served = Served(one.name, "serving" if up else "down-before", why=look.why if look else "")
        stands.append(account.service(one, served, stopped=None, scale=scale, untouched=True))
    return account.production(stands)


def _close(journal: Journal, run: Json, result: Json, why: str, clock: Clock) -> bool:
    headline, outcome = str(result["headline"]), str(result["outcome"])
    alert = {
        "first_line": headline,
        "text": f"{result.get('alert') or headline}\n{why}; run {run['run']}",
        "at": str(result.get("ended") or run["started"]),
        "kind": outcome,
    }
    return journal.close(
        run["run"],
        outcome,
        int(result["exit_code"]),
        headline,
        result=result,
        alert=None if outcome == Outcome.PROVEN else alert,
        ended=clock.wall(),
    )


def _interrupted(run: Json, whole: Json, taken: str | None) -> Json:
    down = "DOWN · " if taken else "DOWN, and not by us · "
    word = {"serving": "SERVING · ", "down-before": down}
    ended = "a person has taken production over" if taken else "it owed nothing"
    return {
        **{name: run[name] for name in ("run", "job", "trigger", "started")},
        "outcome": str(Outcome.INTERRUPTED),
        "exit_code": exit_code(Outcome.INTERRUPTED, "KILL"),
        "headline": f"{word.get(whole['state'], '')}{run['job']} INTERRUPTED, {ended}",
        "why": taken or _WHY,
        "production": whole,
        "checks": [],
        "claims": [],
        "measurements": {},
        "artifacts": {},
        "recovered": True,
    }
