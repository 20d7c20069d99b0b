"""The alert and the result of a run that could not write its own. Pure: it reads and writes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from alerts.message import Alert
from runner.outcome import Outcome, exit_code
from runner.recovery import account
from runner.recovery.account import Scale
from runner.recovery.recipe import Owed
from runner.words import at_epoch, duration
from runner.words import clock as hour

AGAIN_AFTER_S = (60, 300, 900, 3600)
"""A production that stays down is told again after these seconds, then every hour."""

_DOING = {
    "armed": "it was about to stop production",
    "stopping": "it was stopping production",
    "candidate": "its candidate had the box",
    "restoring": "it was bringing production back",
    "restored": "it had brought production back",
    "closed": "it had brought production back",
}

Json = dict[str, Any]


def _doing(phase: object) -> str:
    return _DOING.get(str(phase), f"it was {phase}" if phase else "nobody knows what it was doing")


def news(whole: Json, scale: Scale, *, shutdown: bool = False) -> str:
    """What there is to tell, as a word: the same word need not be told twice."""
    if shutdown:
        return "shutdown"
    if whole["state"] != "down":
        return "back"
    since = account.down_for(whole, scale)
    passed = sum(since >= limit for limit in AGAIN_AFTER_S)
    hours = int(since // 3600) if passed == len(AGAIN_AFTER_S) else 0
    return f"down:{passed}:{hours}"


def reasons(whole: Json) -> str:
    """Why the services that are down are down."""
    return "; ".join(
        f"{one['name']}: {one['why']}" for one in whole["services"] if one["state"] == "down"
    )


def first_line(owed: Owed, phase: str | None, whole: Json, *, shutdown: bool) -> str:
    """Whether production serves now; a phone shows no more."""
    job = owed.job
    if shutdown:
        return f"DOWN · the machine is going down during {job} · boot restores"
    if not whole["services"] and whole["state"] == "down":
        return "PRODUCTION UNKNOWN · what a dead run owes cannot be read · look at once"
    if whole["state"] == "none":
        return f"NO PRODUCTION on this box · {job} INTERRUPTED"
    if phase == "armed":
        word = "SERVING" if whole["state"] == "serving" else "DOWN, and not by us"
        return f"{word}, never touched · {job} INTERRUPTED before the stop"
    if whole["state"] == "down":
        down = ", ".join(one["name"] for one in whole["services"] if one["state"] == "down")
        return f"DOWN{_since(whole['stopped_at'])} · {down} does not start"
    word = "DEGRADED" if whole["state"] == "degraded" else "SERVING"
    took = f" · down {duration(whole['downtime_s'])}" if whole["downtime_s"] else ""
    return f"{word}{_since(whole['serving_at'])} · {job} INTERRUPTED{took}"


def _since(moment: str | None) -> str:
    return f" since {hour(moment)}" if moment else ""


def alert(
    owed: Owed, known: Json, whole: Json, *, notes: list[str], scale: Scale, shutdown: bool = False
) -> Alert:
    """What a person is told of a dead run."""
    phase = known["died"] if "died" in known else known.get("phase")
    first = first_line(owed, phase, whole, shutdown=shutdown)
    lines = [f"the run died while {_doing(phase)}; run {owed.run}"]
    lines += [f"{one['name']}: {one['why']}" for one in whole["services"] if one["why"]]
    lines += [note for one in whole["services"] for note in one["notes"]]
    lines += notes
    if whole["state"] == "down":
        lines.append("no job fires until you act; on the box: runner recover")
    bad = whole["state"] in {"down", "degraded"}
    return Alert(
        key=f"{owed.run}:{news(whole, scale, shutdown=shutdown)}",
        first_line=first,
        text="\n".join(lines),
        at=scale.iso(scale.now) or "",
        kind=str(Outcome.PRODUCTION_DOWN if bad else Outcome.INTERRUPTED),
    )


def heard(event: str, detail: Mapping[str, Any]) -> str:
    """What happens in a restore, as a line for whoever watches it."""
    name = detail.get("service")
    if event == "starting":
        again = f", try {detail['attempt']}" if detail.get("attempt", 1) > 1 else ""
        return f"starting {name}{again}"
    if event == "serving":
        load = detail.get("load")
        loaded = f", it loaded in {duration(load)}" if load is not None else ""
        how = "serves again" if detail.get("state") == "serving" else f"is {detail.get('state')}"
        return f"{name} {how}{loaded}"
    if event == "failed":
        return f"{name} did not start: {detail.get('why')}"
    if event == "recovering":
        return f"run {detail.get('run')} died while {_doing(detail.get('phase'))}"
    return event


def trying(owed: Owed, failed: Mapping[str, Any], known: Json, scale: Scale) -> Alert:
    """What a person is told when a start has failed that took its time, and others are tried."""
    name, why = failed.get("service"), failed.get("why")
    stopped = (known.get("services") or {}).get(name, {}).get("stopped")
    since = f" since {hour(at_epoch(stopped, scale.zone))}" if stopped else ""
    return incident(
        owed,
        f"down:{name}:trying",
        f"DOWN{since} · {name} did not start at once · trying on",
        f"{name}: {why}\nrun {owed.run} of {owed.job} died; nothing needs to be done yet",
        scale,
    )


def incident(owed: Owed, what: str, first: str, text: str, scale: Scale) -> Alert:
    """Something that keeps production from coming back, and that a person must see to."""
    return Alert(
        key=f"{owed.run}:{what}",
        first_line=first,
        text=text,
        at=scale.iso(scale.now) or "",
        kind=str(Outcome.PRODUCTION_DOWN),
    )


def held(owed: Owed, by: str, scale: Scale) -> Alert:
    """Somebody else has the box, for long: production waits for it."""
    return incident(
        owed,
        "held",
        f"DOWN? · run {owed.run} died, and production waits for the box",
        f"{by}; production is restored when it lets go",
        scale,
    )


def stopped(owed: Owed, who: str, left: float | None, scale: Scale) -> Alert:
    """Somebody has stopped a run (SIGSTOP, a debugger), and it keeps the box meanwhile."""
    lease = f"; it is ended by itself in {duration(left)}" if left is not None else ""
    return incident(
        owed,
        "stopped",
        f"DOWN? · run {owed.run} was stopped by somebody, and keeps the box",
        f"{who} does nothing any more{lease}\n"
        "to let it go on: kill -CONT its pid; to have production back at once: kill -9 its pid",
        scale,
    )


def unkillable(owed: Owed, who: str, scale: Scale) -> Alert:
    """A run that hangs in the kernel keeps the box, and nobody here can end it."""
    return incident(
        owed,
        "unkillable",
        f"DOWN? · run {owed.run} hangs in the kernel and cannot be killed · reboot the box",
        f"production is not restored while its process, {who}, holds the box",
        scale,
    )


def fault(owed: Owed, error: Exception, scale: Scale) -> Alert:
    """Recovery itself has failed, by a fault of ours or by a record that nobody can follow."""
    return incident(
        owed,
        "fault",
        f"DOWN? · what run {owed.run} owes cannot be brought back · look at once",
        f"recovery failed: {type(error).__name__}: {error}\n"
        "it is tried again; bring production back by hand, and then: runner release --reason …",
        scale,
    )


def result(owed: Owed, known: Json, whole: Json, told: Alert, scale: Scale) -> Json:
    """The result object of a run that could not write its own."""
    bad = whole["state"] in {"down", "degraded"}
    outcome = Outcome.PRODUCTION_DOWN if bad else Outcome.INTERRUPTED
    return {
        "run": owed.run,
        "job": owed.job,
        "outcome": str(outcome),
        "exit_code": exit_code(outcome, "KILL"),
        "headline": told.first_line,
        "trigger": owed.trigger,
        "started": owed.since,
        "ended": scale.iso(scale.now),
        "production": whole,
        "checks": known.get("checks") or [],
        "claims": [],
        "measurements": {},
        "artifacts": known.get("artifacts") or {},
        "alert": told.whole,
        "recovered": True,
        "news": told.key.removeprefix(f"{owed.run}:"),
    }
