"""Tells what a look ahead has found: an incident when a coming run would be refused, and its end.

It is told what the look saw, and looks at nothing itself.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from preflight.linux import proc
from runner.closing import deliver
from runner.journal import Journal
from runner.schedule.held import is_held
from runner.schedule.incidents import Incidents
from runner.schedule.ledger import Ledger
from runner.schedule.reconcile import rows
from runner.settings import Settings
from runner.words import clock, duration, iso, parsed

_FACT = "ahead:"
_MOST = 8

Json = dict[str, Any]


def next_slot(job: str, settings: Settings, now: datetime) -> datetime | None:
    """When this job is due next by its schedule."""
    times = (row.cron.after(now) for row in rows(settings) if row.job == job)
    return min((at for at in times if at is not None), default=None)


def tell(
    found: Json, journal: Journal, settings: Settings, *, now: datetime, because: str = ""
) -> str:
    """Open, edit or resolve the incident about a job; what was done, in a word.

    `found` is what `check --json` answers. `because` says what made us look, such as a file that
    was deleted, and when.
    """
    job = str(found["job"])
    ledger, incidents = Ledger(journal), Incidents(journal)
    before: Json = ledger.fact(f"{_FACT}{job}") or {}
    was: Mapping[str, str] = before.get("refused") or {}
    refused = {f"{one['id']} {one['subject']}": one for one in _refusing(found)}
    said = {name: str(one["found"]) for name, one in refused.items()}
    at = iso(now, settings.zone)
    keep(found, ledger, now, settings)
    key, due = f"ahead:{job}", next_slot(job, settings, now)
    when = f" at {clock(iso(due, settings.zone))}" if due else ""
    soon = f" (in {duration((due - now).total_seconds())})" if due else ""
    standing = str(found.get("standing") or "")
    first = " · ".join(filter(None, (standing, f"{job}{when} WOULD BE REFUSED{soon}")))
    if not refused:
        mended = " · ".join(filter(None, (standing, f"{job}{when} would run again")))
        return "resolved" if incidents.resolve(key, mended, [because]) else "good"
    worse = set(said) - set(was)
    lines = list(_lines(list(refused.values()), because, at))
    new = incidents.open(key, first, lines, worse=bool(worse))
    return "opened" if new else "worse" if worse else "known"


def keep(found: Json, ledger: Ledger, now: datetime, settings: Settings) -> None:
    """Remember what a look has found, for `next`, `why` and the reservations."""
    refused = {f"{one['id']} {one['subject']}": str(one["found"]) for one in _refusing(found)}
    said = {
        "state": found["state"],
        "refused": refused,
        "at": iso(now, settings.zone),
        "needs": found.get("needs"),
    }
    ledger.remember(**{f"{_FACT}{found['job']}": said})


def tell_of(found: Json, settings: Settings, *, because: str = "") -> str:
    """As `tell`, with the journal of these settings, and deliver it; "busy" where a run had the box
    meanwhile, which explains whatever was found. Raises JournalError, OSError.
    """
    with Journal.open(Path(settings.state_dir), zone=settings.zone) as journal:
        if is_held(settings) or _ran_meanwhile(journal):
            return "busy"
        done = tell(found, journal, settings, now=datetime.now(UTC), because=because)
        if done in {"opened", "worse", "resolved"}:
            deliver(journal, settings)
    return done


def _ran_meanwhile(journal: Journal) -> bool:
    """Whether a run has ended since this process began, which is when it began to look."""
    began = proc.started_at(os.getpid()) or 0.0
    ended = (run.get("ended") for run in journal.history(limit=1))
    return any(parsed(str(at)).timestamp() >= began for at in ended if at)


def _refusing(found: Json) -> Iterator[Json]:
    for one in found["checks"]:
        accepted = any(str(line).startswith("accepted: ") for line in one.get("evidence") or ())
        if one["state"] == "fail" or (one["state"] == "unknown" and not accepted):
            yield one


def _lines(wrong: Sequence[Json], because: str, at: str) -> Iterator[str]:
    """What changed, what is wrong and who is behind it, and what to do."""
    if because:
        yield f"{because}, seen at {clock(at)}"
    for one in wrong[:_MOST]:
        who = f" [{one['who']}]" if one.get("who") else ""
        yield f"{one['subject']}: {one['found']}{who}"
    if len(wrong) > _MOST:
        yield f"and {len(wrong) - _MOST} more"
    remedies = dict.fromkeys(str(one["remedy"]) for one in wrong if one.get("remedy"))
    if remedies:
        yield f"To fix: {'; '.join(list(remedies)[:3])}"
