"""What became of a job's slot, in one screen. It reads the ledger and decides nothing."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from runner.schedule import coming
from runner.schedule.firing import over
from runner.schedule.ledger import Ledger
from runner.schedule.reconcile import rows
from runner.schedule.slots import Slot, State
from runner.schedule.windows import paused
from runner.settings import Settings
from runner.words import clock, day_and_clock, iso

_MOST_EARLIER = 5
_MEANWHILE = {
    State.DUE: "the daemon is about to look at it",
    State.STARTING: "its run is being started",
    State.RUNNING: "its run goes on",
}

Json = dict[str, Any]


def explain(job: str, ledger: Ledger, settings: Settings, *, before: datetime) -> Json:
    """The slot at or before a moment with all that is known of it, and what comes next."""
    found = ledger.latest(job, before=before.timestamp(), limit=_MOST_EARLIER + 1)
    found = [_as_it_ended(one, ledger) for one in found]
    slot = found[0] if found else None
    scheduled = [row.schedule.cron for row in rows(settings) if row.job == job]
    ahead = ledger.fact(f"ahead:{job}") or {}
    pauses = ledger.pauses(before.timestamp())
    coming_ = coming.slots(settings, ledger, before, job=job, count=1) if scheduled else []
    return {
        "job": job,
        "slot": slot.to_json() if slot else None,
        "run": _run(slot, ledger),
        "runs": [run["run"] for run in ledger.journal.history(job, 3)],
        "earlier": [one.to_json() for one in found[1:]],
        "scheduled": scheduled,
        "since": _since(job, ledger, settings),
        "paused": paused(pauses, job, settings.zone),
        "drained": ledger.journal.drained(),
        "ahead": {key: ahead.get(key) for key in ("state", "at", "refused")} if ahead else None,
        "next": coming_[0] if coming_ else None,
    }


def _as_it_ended(slot: Slot, ledger: Ledger) -> Slot:
    """A slot whose run is over is over, also before the daemon has seen it."""
    result = ledger.journal.run(slot.run) if slot.state is State.RUNNING and slot.run else None
    if result is None or not result.get("outcome"):
        return slot
    return over(slot, result, slot.changed)


def _run(slot: Slot | None, ledger: Ledger) -> Json | None:
    run = ledger.journal.run(slot.run) if slot and slot.run else None
    if run is None:
        return None
    bad = [one for one in run.get("checks") or () if one["state"] in {"fail", "unknown"}]
    return {
        "run": run["run"],
        "outcome": run.get("outcome"),
        "headline": run.get("headline"),
        "started": run.get("started"),
        "ended": run.get("ended"),
        "refused": [one["message"] for one in bad],
    }


def _since(job: str, ledger: Ledger, settings: Settings) -> str | None:
    """Since when the daemon knows of this job's schedule."""
    names = [row.name for row in rows(settings) if row.job == job]
    times = [at for name in names if (at := ledger.fact(f"first-seen:{name}")) is not None]
    if not times:
        return None
    return iso(datetime.fromtimestamp(min(times), settings.zone), settings.zone)


def lines(said: Mapping[str, Any]) -> list[str]:
    """The same for people."""
    slot, run = said["slot"], said["run"]
    found: list[str] = []
    if slot is None:
        known = f"; the daemon knows its schedule since {day_and_clock(said['since'])}"
        found.append(
            f"{said['job']}: no slot was due until then"
            + (known if said["since"] else "; no daemon has seen its schedule yet: runner serve")
        )
    else:
        found.append(f"{said['job']} at {day_and_clock(slot['at'])}: {slot['state'].upper()}")
        found.append(f"  {slot['reason'] or _MEANWHILE.get(slot['state'], 'no reason is known')}")
        found += [f"  {line}" for line in slot["story"]]
    if run is not None:
        found.append(f"  run {run['run']}: {run['headline'] or 'goes on'}")
        found += [f"    {line}" for line in run["refused"]]
    if said["paused"]:
        found.append(f"now {said['paused']}")
    if said["drained"]:
        found.append(f"the box is drained: {said['drained']['reason']} → runner undrain")
    if said["ahead"] and said["ahead"]["refused"]:
        found.append(f"last look at {clock(said['ahead']['at'])}: would be refused")
        found += [f"  {name}: {why}" for name, why in said["ahead"]["refused"].items()]
    found += _earlier(said)
    if said["next"]:
        found.append(f"next: {day_and_clock(said['next']['at'])}, would {said['next']['would']}")
    elif not said["scheduled"]:
        found.append("it is not scheduled; runner.toml has no [[schedule]] for it")
    return found


def _earlier(said: Mapping[str, Any]) -> list[str]:
    if not said["earlier"]:
        return []
    rows_ = [
        f"  {day_and_clock(one['at'])} {one['state']}: {one['reason']}" for one in said["earlier"]
    ]
    return ["before that:", *rows_]
