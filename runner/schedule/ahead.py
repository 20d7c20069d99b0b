"""Looks ahead: each scheduled job's preflight before it is due, and at once when a file changes.

The look itself is a child, `runner check JOB --tell`: it touches nothing, and it may hang. While a
run has the box nobody looks, since production is down then on purpose.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import Any

from runner.schedule.children import Children, Done
from runner.schedule.incidents import Incidents
from runner.schedule.inputs import Changed, Inputs
from runner.schedule.ledger import Ledger
from runner.schedule.moments import Moment
from runner.schedule.reconcile import Row
from runner.settings import Settings
from runner.words import clock, iso

LOOK_WITHIN_S = 120.0
AT_ONCE = 1
"""Looks at one time: each is a process that reads the GPU."""

_FACT = "ahead:"
_BLIND = "inputs"
_FARTHEST_S = 30 * 86400.0
_AGAIN_S = 2.0
"""A file that is being written says so all the time; one look in so many seconds is enough."""


@dataclass(frozen=True, slots=True)
class Wish:
    """A job to look at, and what made us want to; not before `since` on the clock of boot."""

    job: str
    because: str
    since: float = 0.0


class Ahead:
    """The looks that are wanted and those that go on."""

    def __init__(
        self,
        ledger: Ledger,
        incidents: Incidents,
        looks: Children,
        inputs: Inputs,
        standing: Callable[[], str],
    ) -> None:
        """`standing` says in a word how production is, for the first line of what is told."""
        self._ledger, self._incidents, self._standing = ledger, incidents, standing
        self._looks, self._inputs = looks, inputs
        self._wishes: dict[str, Wish] = {}
        self._asked: dict[str, Wish] = {}
        self._rows: Sequence[Row] = ()
        self._settings: Settings | None = None
        self._early: dict[str, float] = {}
        self._last: dict[str, float] = {}
        self._more: tuple[str, ...] = ()
        self._watched: frozenset[str] = frozenset()

    def follow(self, settings: Settings, rows: Sequence[Row], more: Iterable[Path] = ()) -> None:
        """Look ahead by these settings; `more` are files whose change is the caller's to know."""
        self._settings, self._rows = settings, rows
        self._early = {}
        self._more = tuple(map(str, more))
        for job in dict.fromkeys(row.job for row in rows):
            self.wish(job, "")
        self._watch()

    def fds(self) -> list[int]:
        """Descriptors that have news when a file changes or a look ends."""
        return [self._inputs.fd, *self._looks.fds()]

    def wish(self, job: str, because: str, since: float = 0.0) -> None:
        """Have a job looked at soon; what made us look first is what is told."""
        before = self._wishes.get(job)
        if before is None or (because and not before.because):
            self._wishes[job] = Wish(job, because, since)

    def due(self, now: Moment) -> None:
        """Want a look at each job whose next run is one of its `early_checks` away."""
        for row in self._rows:
            at = self._early.get(row.name)
            if at is not None and now.wall < at <= now.wall + _FARTHEST_S:
                continue
            if at is not None and at <= now.wall:
                self.wish(row.job, "")
            self._early[row.name] = _next_look(row, now)

    def changed(self, now: Moment) -> list[Changed]:
        """Want a look at each job that needs a file which just changed; all that has changed."""
        changes = self._inputs.changed()
        needs = self.needs()
        zone = self._settings.zone if self._settings else None
        for change in changes:
            if change.blind:
                self._cannot_watch(change.what)
                continue
            for job, files in needs.items():
                hit = change.path in files or any(
                    one.startswith(f"{change.path}/") for one in files
                )
                if hit:
                    said = f"{change} at {clock(iso(now.at, zone))}"
                    # what appears or changes may go on doing so; what is gone is gone
                    settle = 0.0 if "deleted" in change.what else _AGAIN_S
                    since = max(now.boot, self._last.get(job, 0.0) + settle)
                    self.wish(job, said, since)
        return changes

    def needs(self) -> dict[str, frozenset[str]]:
        """The files that each scheduled job needs, as far as a look has found out."""
        facts: dict[str, Any] = self._ledger.facts(_FACT)
        jobs = {row.job for row in self._rows}
        return {
            job: frozenset((said.get("needs") or {}).get("files") or ())
            for job, said in facts.items()
            if job in jobs
        }

    def tick(self, now: Moment, *, busy: bool) -> bool:
        """Begin the looks that are wanted; True where one has ended, so that more is known."""
        ended = self._looks.ended()
        for name, done in ended.items():
            job = name.removeprefix("ahead-")
            asked = self._asked.pop(job, None)
            if done.answer.get("checks") is None:
                self._cannot_look(job, done, now)
            elif done.answer.get("told") == "busy" and asked is not None:
                self.wish(job, asked.because, now.boot + _AGAIN_S)
        if ended:
            self._watch()
        if busy:
            return bool(ended)
        for wish in list(self._wishes.values()):
            if len(self._looks.running) >= AT_ONCE:
                break
            if wish.since > now.boot:
                continue
            words = ["check", wish.job, "--tell", "--json", "--because", wish.because]
            if self._looks.start(f"ahead-{wish.job}", words, within=LOOK_WITHIN_S) is None:
                self._asked[wish.job] = self._wishes.pop(wish.job)
                self._last[wish.job] = now.boot
        return bool(ended)

    def _cannot_look(self, job: str, done: Done, now: Moment) -> None:
        """A job file that is broken, or a look that did not end: what runs then would not, either."""
        known: dict[str, Any] = self._ledger.fact(f"{_FACT}{job}") or {}
        refused = {"the job": done.error}
        self._ledger.remember(
            **{
                f"{_FACT}{job}": {
                    "state": "unknown",
                    "refused": refused,
                    "at": iso(now.at, self._settings.zone if self._settings else None),
                    "needs": known.get("needs"),
                }
            }
        )
        first = f"{self._standing()} · {job} WOULD BE REFUSED: it cannot be looked at"
        self._incidents.open(f"{_FACT}{job}", first, [done.error, f"runner check {job}"])

    def wake_within(self, now: Moment) -> float:
        """Seconds until a look that is wanted may begin."""
        waits = [max(0.05, wish.since - now.boot) for wish in self._wishes.values()]
        return min(waits, default=3600.0)

    def _cannot_watch(self, why: str) -> None:
        """The early checks go on; a person learns that it is only those."""
        first = f"{self._standing()} · a deleted file is found late: {why}"
        lines = ["the early checks go on, and it is tried again after each", "sysctl fs.inotify"]
        self._incidents.open(_BLIND, first, lines)

    def _watch(self) -> None:
        """Watch what the jobs need, and what the caller wants to know of."""
        if self._inputs.alive:
            self._incidents.resolve(_BLIND, f"{self._standing()} · files are watched again")
        needs = self.needs()
        files = {path for paths in needs.values() for path in paths}
        self._inputs.set([*sorted(files), *self._more])
        for job, paths in needs.items():
            if not paths <= self._watched:
                self.wish(
                    job, ""
                )  # what happened between that look and this watch was seen by none
        self._watched = frozenset(files)


def _next_look(row: Row, now: Moment) -> float:
    """When the next early check of a row is due, in seconds since 1970; far off where none is."""
    leads = row.schedule.early_checks
    if not leads:
        return now.wall + _FARTHEST_S
    farthest = datetime.fromtimestamp(now.wall + max(leads), UTC)
    found = inf
    for at in row.cron.from_(now.at):
        looks = [at.timestamp() - early for early in leads]
        found = min([found, *(look for look in looks if look > now.wall)])
        if at > farthest:
            break
    return min(found, now.wall + _FARTHEST_S)
