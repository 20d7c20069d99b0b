"""Writes down how a dead run ended, and tells a person; each step goes on without the one before.

With a journal the alert is an outbox row, written with the outcome in one transaction. Without one
(full disk, corrupt, newer, locked) it is sent straight away: twice is allowed, never is not.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from alerts import plain
from alerts.deliver import deliver_all
from alerts.message import Alert, DeliveryError
from runner.journal import Journal, JournalError
from runner.outcome import Outcome, exit_code
from runner.recovery import account
from runner.recovery.account import Scale
from runner.recovery.attempt import Served
from runner.recovery.recipe import Owed
from runner.until import Clock
from runner.words import clock as hour
from runner.words import duration

DELIVER_WITHIN_S = 20.0
AGAIN_AFTER_S = (60, 300, 900, 3600)
"""A production that stays down is told again after these seconds, then every hour."""

Json = dict[str, Any]


def tell(
    state_dir: Path,
    owed: Owed,
    known: Json,
    served: list[Served] | None,
    *,
    clock: Clock,
    notes: list[str],
    production: Json | None = None,
) -> None:
    """Record and deliver what became of `owed`. `served` None: the machine is going down."""
    scale = Scale.of(clock, owed.timezone)
    whole = production or account.production([])
    alert = _alert(owed, known, served=served, whole=whole, notes=notes, scale=scale)
    result = _result(owed, known, whole, alert, scale)
    try:
        journal = Journal.open(state_dir, zone=scale.zone)
    except (JournalError, OSError) as error:
        _send_now(owed, alert, f"the journal cannot be used: {error}")
        return
    try:
        with journal:
            _write(journal, owed=owed, result=result, alert=alert, clock=clock, scale=scale)
            flush(journal, owed.tell)
    except (JournalError, OSError) as error:
        _send_now(owed, alert, f"the journal cannot be written: {error}")


def _write(
    journal: Journal, *, owed: Owed, result: Json, alert: Alert, clock: Clock, scale: Scale
) -> None:
    whole = result["production"]
    if whole["state"] == "down":
        journal.drain(f"production was not restored after run {owed.run}: {_reasons(whole)}")
    outcome = result["outcome"]
    body = _body(alert)
    row = journal.run(owed.run)
    if row is None:
        journal.begin(owed.run, owed.job, owed.trigger, {}, clock.wall())
    if row is None or row.get("outcome") is None:
        journal.close(
            owed.run,
            outcome,
            result["exit_code"],
            result["headline"],
            result=result,
            alert=body,
            ended=clock.wall(),
        )
    else:
        # the run has its outcome; what may be new is only how production stands now
        key = _news_key(owed, whole, row, scale)
        if key is not None:
            journal.post(key, body, owed.run)


def _news_key(owed: Owed, whole: Json, row: Json, scale: Scale) -> str | None:
    """What a person has not been told of yet: that it is back, or that it is still down.

    None when the run itself saw production serving: then there is no news.
    """
    if whole["state"] != "down":
        was_up = (row.get("production") or {}).get("state") in {"serving", "degraded"}
        return None if was_up else f"{owed.run}:back"
    since = account.down_for(whole, scale)
    passed = sum(since >= limit for limit in AGAIN_AFTER_S)
    hours = int(since // 3600) if passed == len(AGAIN_AFTER_S) else 0
    return f"{owed.run}:down:{passed}:{hours}"


def _reasons(whole: Json) -> str:
    return "; ".join(
        f"{one['name']}: {one['why']}" for one in whole["services"] if one["state"] == "down"
    )


def _alert(
    owed: Owed,
    known: Json,
    *,
    served: list[Served] | None,
    whole: Json,
    notes: list[str],
    scale: Scale,
) -> Alert:
    """The first line says whether production serves now; a phone shows no more."""
    phase = known.get("phase") or "an unknown phase"
    down = [one for one in whole["services"] if one["state"] == "down"]
    at = scale.iso(scale.now) or ""
    if served is None:
        first = f"DOWN · the machine is going down during {owed.job} · boot restores"
    elif phase == "armed":
        first = f"never touched by {owed.job} · INTERRUPTED before the stop"
    elif down:
        names = ", ".join(one["name"] for one in down)
        first = f"DOWN since {hour(whole['stopped_at'])} · {names} does not start"
    else:
        word = "DEGRADED" if whole["state"] == "degraded" else "SERVING"
        took = f" · down {duration(whole['downtime_s'])}" if whole["downtime_s"] else ""
        first = f"{word} since {hour(whole['serving_at'])} · {owed.job} INTERRUPTED{took}"
    lines = [f"the run died while {phase}; run {owed.run}"]
    lines += [f"{one['name']}: {one['why']}" for one in whole["services"] if one["why"]]
    lines += [note for one in whole["services"] for note in one["notes"]]
    lines += notes
    if down:
        lines.append("no job fires until you act; on the box: runner recover")
    return Alert(
        key=f"{owed.run}:recovery",
        first_line=first,
        text="\n".join(lines),
        at=at,
        kind=str(
            Outcome.PRODUCTION_DOWN if down or whole["state"] == "degraded" else Outcome.INTERRUPTED
        ),
    )


def _body(alert: Alert) -> Json:
    return {
        "first_line": alert.first_line,
        "text": alert.text,
        "at": alert.at,
        "kind": alert.kind,
    }


def _result(owed: Owed, known: Json, whole: Json, alert: Alert, scale: Scale) -> Json:
    """The result object of a run that could not write its own."""
    bad = whole["state"] in {"down", "degraded"}
    outcome = Outcome.PRODUCTION_DOWN if bad else Outcome.INTERRUPTED
    return {
        "run": owed.run,
        "job": owed.job,
        "outcome": str(outcome),
        "exit_code": exit_code(outcome, "KILL"),
        "headline": alert.first_line,
        "trigger": owed.trigger,
        "started": owed.since,
        "ended": scale.iso(scale.now),
        "production": whole,
        "checks": known.get("checks") or [],
        "claims": [],
        "measurements": {},
        "artifacts": known.get("artifacts") or {},
        "alert": alert.whole,
        "recovered": True,
    }


def flush(journal: Journal, specs: list[Json]) -> None:
    """Deliver what is due in the outbox, over the channels that need no installed package."""
    deliver_all(
        journal.outbox(unsent=True),
        plain.channels(specs),
        mark_sent=journal.sent,
        mark_failed=journal.failed,
        within=DELIVER_WITHIN_S,
    )


def _send_now(owed: Owed, alert: Alert, because: str) -> None:
    """Without an outbox: every channel, at once, with the reason why nothing was written down."""
    told = Alert(
        alert.key, alert.first_line, f"{alert.text}\n{because}", at=alert.at, kind=alert.kind
    )
    for channel in plain.channels(owed.tell):
        with contextlib.suppress(DeliveryError):
            channel.deliver(told, within=DELIVER_WITHIN_S)
