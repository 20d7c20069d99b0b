"""The journal's pages about time: slots, pauses, planned runs and what the daemon remembers.

Standard library only. A slot is claimed by inserting its row, so of two daemons one fires.
"""

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from runner.journal import Journal
from runner.journal_rows import Rows
from runner.schedule.slots import AT_WORK, OPEN, Slot, State
from runner.secrets import redact

EVERY_JOB = "*"

_MOVE = (
    "UPDATE slots SET state = ?, reason = ?, run = ?, trigger = ?, back_by = ?, changed = ?,"
    " story = ? WHERE job = ? AND at = ?"
)

_ADOPT_WITHIN_S = 300.0
"""A run that its slot waits for longer than this is not that slot's run."""


@dataclass(frozen=True, slots=True)
class Pause:
    """A person's decision that a job (or every job) does not fire; `until` None: until resumed."""

    job: str
    until: float | None
    reason: str
    since: float
    by: str


@dataclass(frozen=True, slots=True)
class Planned:
    """One run that a person asked for at a time, in seconds since 1970."""

    job: str
    at: int
    since: float
    by: str


class Ledger(Rows):
    """Slots and their kin in an open journal. Every method may raise JournalError."""

    def __init__(self, journal: Journal) -> None:
        """The same file, over the same connection."""
        super().__init__(journal.connection, journal.path, zone=journal.zone)
        self.journal = journal

    # Slots

    def claim(self, slots: Iterable[Slot]) -> list[Slot]:
        """Write rows for slots that have none, in one transaction; those that are now ours."""
        mine: list[Slot] = []
        with self._write() as db:
            for slot in slots:
                done = db.execute(
                    "INSERT OR IGNORE INTO slots (job, at, due, state, reason, run, trigger,"
                    " back_by, changed, story) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    _values(slot),
                ).rowcount
                if done:
                    mine.append(slot)
        return mine

    def move(self, slot: Slot, *, only_from: Sequence[State] = OPEN) -> bool:
        """Write how a slot stands now; False where it is no longer in one of these states."""
        marks = ", ".join("?" * len(only_from))
        with self._write() as db:
            return bool(
                db.execute(
                    _MOVE + f" AND state IN ({marks})",
                    (*_values(slot)[3:], slot.job, slot.at, *map(str, only_from)),
                ).rowcount
            )

    def open(self) -> list[Slot]:
        """The slots that are not decided yet, oldest first."""
        marks = ", ".join("?" * len(OPEN))
        return self._slots(f"WHERE state IN ({marks}) ORDER BY at, job", *map(str, OPEN))

    def slot(self, job: str, at: int) -> Slot | None:
        """The slot of this job at this time."""
        return next(iter(self._slots("WHERE job = ? AND at = ?", job, at)), None)

    def latest(self, job: str, *, before: float | None = None, limit: int = 1) -> list[Slot]:
        """The last slots of a job that were due at or before a time, newest first."""
        until = time.time() if before is None else before
        return self._slots(
            "WHERE job = ? AND at <= ? ORDER BY at DESC LIMIT ?", job, int(until), limit
        )

    def known(self, job: str, begin: float, end: float) -> set[int]:
        """The times of a job that have a row, within this span."""
        rows = self._read(
            "SELECT at FROM slots WHERE job = ? AND at > ? AND at <= ?", job, int(begin), int(end)
        )
        return {int(row["at"]) for row in rows}

    def forget_unrun_after(self, moment: float) -> int:
        """A clock that was set back makes these times come again: what did not run is due anew."""
        with self._write() as db:
            return db.execute(
                "DELETE FROM slots WHERE at > ? AND run IS NULL AND state NOT IN (?, ?)",
                (moment, *map(str, AT_WORK)),
            ).rowcount

    def adopt(self, job: str, run: str) -> Slot | None:
        """The slot that this run was started for, which from now on knows its run."""
        rows = self._slots(
            "WHERE job = ? AND state = ? AND changed > ? ORDER BY at DESC LIMIT 1",
            job,
            str(State.STARTING),
            time.time() - _ADOPT_WITHIN_S,
        )
        if not rows:
            return None
        with self._write() as db:
            done = db.execute(
                "UPDATE slots SET state = ?, run = ?, changed = ?"
                " WHERE job = ? AND at = ? AND state = ?",
                (str(State.RUNNING), run, time.time(), job, rows[0].at, str(State.STARTING)),
            ).rowcount
        return rows[0] if done else None

    def _slots(self, tail: str, *given: object) -> list[Slot]:
        rows = self._read(f"SELECT * FROM slots {tail}", *given)  # noqa: S608 - the tails are written on this page
        return [
            Slot.from_row(dict(row), tuple(json.loads(row["story"]) if row["story"] else ()))
            for row in rows
        ]

    # What a person decided

    def pause(self, pause: Pause) -> None:
        """Let a job (or every job) not fire; the latest word counts."""
        with self._write() as db:
            db.execute(
                "INSERT OR REPLACE INTO pauses (job, until, reason, since, by) VALUES"
                " (?, ?, ?, ?, ?)",
                (pause.job, pause.until, redact(pause.reason), pause.since, pause.by),
            )

    def resume(self, job: str) -> bool:
        """Let it fire again; False where it was not paused."""
        with self._write() as db:
            return bool(db.execute("DELETE FROM pauses WHERE job = ?", (job,)).rowcount)

    def pauses(self, now: float) -> list[Pause]:
        """The pauses that hold now; one that has expired is none."""
        rows = self._read(
            "SELECT job, until, reason, since, by FROM pauses"
            " WHERE until IS NULL OR until > ? ORDER BY since",
            now,
        )
        return [Pause(**dict(row)) for row in rows]

    def plan(self, planned: Planned) -> bool:
        """Ask for one run at a time; False where it is asked for already."""
        with self._write() as db:
            return bool(
                db.execute(
                    "INSERT OR IGNORE INTO planned (job, at, since, by) VALUES (?, ?, ?, ?)",
                    (planned.job, planned.at, planned.since, planned.by),
                ).rowcount
            )

    def unplan(self, job: str, at: int) -> bool:
        """Take back what was asked for, or forget it once its slot has a row."""
        with self._write() as db:
            return bool(
                db.execute("DELETE FROM planned WHERE job = ? AND at = ?", (job, at)).rowcount
            )

    def planned(self) -> list[Planned]:
        """What was asked for and is not due yet, soonest first."""
        rows = self._read("SELECT job, at, since, by FROM planned ORDER BY at, job")
        return [Planned(**dict(row)) for row in rows]

    # Pins

    def pin(self, **row: object) -> None:
        """Write a pin down: owner, path, pin, how, inode, size, mtime_ns, since, by."""
        names = ("owner", "path", "pin", "how", "inode", "size", "mtime_ns", "since", "by")
        with self._write() as db:
            db.execute(
                "INSERT OR REPLACE INTO pins (owner, path, pin, how, inode, size, mtime_ns, since,"
                " by) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                tuple(row[name] for name in names),
            )

    def unpin(self, owner: str, path: str) -> bool:
        """Forget a pin; the file itself is the caller's to remove."""
        with self._write() as db:
            return bool(
                db.execute("DELETE FROM pins WHERE owner = ? AND path = ?", (owner, path)).rowcount
            )

    def pins(self, owner: str | None = None) -> list[dict[str, Any]]:
        """The pins, of one owner where one is named, oldest first."""
        where = "" if owner is None else " WHERE owner = ?"
        given = () if owner is None else (owner,)
        return [
            dict(row)
            for row in self._read(f"SELECT * FROM pins{where} ORDER BY since, path", *given)  # noqa: S608 - one of two texts above
        ]

    # What the daemon remembers

    def remember(self, **facts: object) -> None:
        """Keep facts under their names, in one transaction; None forgets one."""
        with self._write() as db:
            for name, value in facts.items():
                if value is None:
                    db.execute("DELETE FROM facts WHERE name = ?", (name,))
                else:
                    db.execute(
                        "INSERT OR REPLACE INTO facts (name, value) VALUES (?, ?)",
                        (name, json.dumps(value)),
                    )

    def fact(self, name: str) -> Any:
        """What was kept under this name; None where nothing was."""
        rows = self._read("SELECT value FROM facts WHERE name = ?", name)
        return json.loads(rows[0]["value"]) if rows else None

    def facts(self, beginning: str) -> dict[str, Any]:
        """Everything whose name begins so, by the rest of its name."""
        rows = self._read(
            "SELECT name, value FROM facts WHERE substr(name, 1, ?) = ?", len(beginning), beginning
        )
        return {row["name"][len(beginning) :]: json.loads(row["value"]) for row in rows}


def _values(slot: Slot) -> tuple[object, ...]:
    return (
        slot.job,
        slot.at,
        slot.due,
        str(slot.state),
        redact(slot.reason),
        slot.run,
        slot.trigger,
        slot.back_by,
        slot.changed or time.time(),
        json.dumps([redact(line) for line in slot.story]) if slot.story else None,
    )
