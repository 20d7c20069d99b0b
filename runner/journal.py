"""What happened, written before it happens. Standard library only; knows no server and no check.

Recovery must work without it (a WAL database on a full disk cannot even be read), so nothing that
brings production back may depend on what stands here.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from pathlib import Path
from typing import Any

from runner.journal_file import (
    NAME,
    JournalBusy,
    JournalError,
    JournalTooNew,
    connect,
    connect_read_only,
)
from runner.journal_rows import Moment, Rows, dumps, loads, now, without
from runner.secrets import redact

__all__ = ["Journal", "JournalBusy", "JournalError", "JournalTooNew", "OutboxRow", "summary"]


ANEW = "journal"
"""The incident of a journal that took the place of another."""

_LAST_STOPS = 20


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """One alert to be delivered; `body` is the alert as JSON, times are seconds since 1970."""

    id: int
    key: str
    run: str | None
    created: float
    body: dict[str, Any]
    tries: int
    next_at: float
    last_error: str | None
    sent_at: float | None
    note: str | None


class Journal(Rows):
    """The journal of one state directory. Every write is one durable transaction.

    All methods raise JournalError when the file cannot be read or written.
    """

    @classmethod
    def open(
        cls, state_dir: Path, *, read_only: bool = False, zone: tzinfo | None = None
    ) -> "Journal":
        """Open the journal in `state_dir`; writing makes the directory too. Times go to `zone`.

        Raises JournalError, and JournalTooNew for a file of a newer runner.
        """
        path = state_dir / NAME
        if read_only:
            return cls(connect_read_only(state_dir), path, zone=zone)
        db, suspect = connect(state_dir)
        journal = cls(db, path, zone=zone, suspect=suspect)
        if suspect:
            journal.starts_anew(suspect)
        return journal

    def starts_anew(self, why: str) -> None:
        """This file is a new one in the place of another: a person hears why, and sees it for a while."""
        self.incident(ANEW, why)
        first = (
            "runner's journal starts anew; its history is gone or lies elsewhere · runner status"
        )
        body = {"first_line": first, "text": why, "at": self._at(None), "kind": "incident"}
        self.post(f"{ANEW}:{now():.0f}", body)

    # Runs

    def begin(
        self, run_id: str, job: str, trigger: str, ident: Mapping[str, Any], at: Moment
    ) -> None:
        """A run begins; `ident` is how its process can be recognised (boot, pid, start)."""
        with self._write() as db:
            db.execute(
                "INSERT INTO runs (run, job, trigger, started, ident) VALUES (?, ?, ?, ?, ?)",
                (run_id, job, trigger, self._at(at), dumps(ident)),
            )

    def event(self, run_id: str, name: str, /, **detail: object) -> None:
        """Something is about to happen, or has happened, in a run."""
        with self._write() as db:
            self._event(db, run_id, name, detail)

    def verdicts(self, run_id: str, verdicts: Sequence[Mapping[str, Any]]) -> None:
        """What preflight said, one JSON object a verdict (with `id` and `state`)."""
        with self._write() as db:
            db.executemany(
                "INSERT INTO verdicts (run, id, state, body) VALUES (?, ?, ?, ?)",
                [(run_id, str(v["id"]), str(v["state"]), dumps(v)) for v in verdicts],
            )

    def close(
        self,
        run_id: str,
        outcome: str,
        exit_code: int,
        headline: str,
        *,
        result: Mapping[str, Any],
        alert: Mapping[str, Any] | None,
        ended: Moment,
    ) -> bool:
        """End a run: outcome, result and the alert about it, in one transaction.

        A run has one outcome: if it has one already nothing is written and False returned.
        """
        with self._write() as db:
            changed = db.execute(
                "UPDATE runs SET outcome = ?, exit_code = ?, headline = ?, ended = ?, summary = ?"
                " WHERE run = ? AND outcome IS NULL",
                (
                    str(outcome),
                    exit_code,
                    redact(headline),
                    self._at(ended),
                    dumps(summary(result)),
                    run_id,
                ),
            ).rowcount
            if not changed:
                return False
            db.execute("INSERT INTO results (run, body) VALUES (?, ?)", (run_id, dumps(result)))
            if alert is not None:
                self._post(db, f"{run_id}:{outcome}", alert, run_id)
            self._event(db, run_id, "ended", {"outcome": str(outcome), "exit_code": exit_code})
        return True

    def open_runs(self) -> list[dict[str, Any]]:
        """Runs without an outcome, oldest first: run, job, trigger, started, ident."""
        rows = self._read(
            "SELECT run, job, trigger, started, ident FROM runs WHERE outcome IS NULL ORDER BY n"
        )
        return [{**dict(row), "ident": loads(row["ident"])} for row in rows]

    def run(self, run_id: str | None = None) -> dict[str, Any] | None:
        """The whole result of a run, the latest where none is named; of an open run what is known.

        A run may be named by the beginning of its id where that names only one.
        """
        if run_id is None:
            rows = self._read("SELECT * FROM runs ORDER BY n DESC LIMIT 1")
        else:
            rows = self._read("SELECT * FROM runs WHERE run = ?", run_id) or self._read(
                "SELECT * FROM runs WHERE substr(run, 1, ?) = ? LIMIT 2", len(run_id), run_id
            )
        if len(rows) != 1:
            return None
        row = rows[0]
        body = self._read("SELECT body FROM results WHERE run = ?", row["run"])
        if body:
            return loads(body[0]["body"])
        return {**_open_summary(row), "checks": self._verdicts_of(row["run"])}

    def history(self, job: str | None = None, limit: int = 50) -> list[dict[str, Any]]:
        """Results without checks and evidence, newest first; open runs have outcome None."""
        where = "" if job is None else " WHERE job = ?"
        given = () if job is None else (job,)
        rows = self._read(f"SELECT * FROM runs{where} ORDER BY n DESC LIMIT ?", *given, limit)  # noqa: S608 - `where` is one of two texts above
        return [loads(row["summary"]) if row["summary"] else _open_summary(row) for row in rows]

    def events(self, run_id: str) -> list[dict[str, Any]]:
        """What happened in a run, in order: at, name, detail."""
        rows = self._read("SELECT at, name, detail FROM events WHERE run = ? ORDER BY n", run_id)
        return [{**dict(row), "detail": loads(row["detail"])} for row in rows]

    # What a person must know

    def post(self, key: str, body: Mapping[str, Any], run: str | None = None) -> bool:
        """Put an alert into the outbox, once a key; False where it was there already."""
        with self._write() as db:
            return self._post(db, key, body, run)

    def outbox(self, *, unsent: bool = False) -> list[OutboxRow]:
        """The alerts, oldest first; only those not delivered yet if `unsent`."""
        where = " WHERE sent_at IS NULL" if unsent else ""
        rows = self._read(f"SELECT * FROM outbox{where} ORDER BY n")  # noqa: S608 - as in history
        return [
            OutboxRow(id=row["n"], **without(row, "n", "body"), body=loads(row["body"]))
            for row in rows
        ]

    def sent(self, row_id: int, note: str = "") -> None:
        """An alert was delivered; `note` says by which channel. Call it after, never before."""
        with self._write() as db:
            db.execute(
                "UPDATE outbox SET sent_at = ?, note = ?, tries = tries + 1"
                " WHERE n = ? AND sent_at IS NULL",
                (now(), note, row_id),
            )

    def failed(self, row_id: int, error: str, next_at: float) -> None:
        """An alert could not be delivered; it is tried again from `next_at` on."""
        with self._write() as db:
            db.execute(
                "UPDATE outbox SET tries = tries + 1, last_error = ?, next_at = ?"
                " WHERE n = ? AND sent_at IS NULL",
                (redact(error), next_at, row_id),
            )

    def last_delivery(self) -> float | None:
        """When an alert last reached somebody, in seconds since 1970; None if none ever did."""
        rows = self._read("SELECT max(sent_at) AS last FROM outbox WHERE note != ''")
        return None if rows[0]["last"] is None else float(rows[0]["last"])

    def incident(self, key: str, text: str, run: str | None = None) -> bool:
        """Open an incident; False where it is open already."""
        with self._write() as db:
            return bool(
                db.execute(
                    "INSERT OR IGNORE INTO incidents (key, text, run, opened) VALUES (?, ?, ?, ?)",
                    (key, redact(text), run, self._at(None)),
                ).rowcount
            )

    def resolve(self, key: str) -> bool:
        """Close an incident; False where none was open."""
        with self._write() as db:
            return bool(
                db.execute(
                    "UPDATE incidents SET resolved = ? WHERE key = ? AND resolved IS NULL",
                    (self._at(None), key),
                ).rowcount
            )

    def incidents(self) -> list[dict[str, Any]]:
        """The open incidents, oldest first: key, text, run, opened."""
        rows = self._read(
            "SELECT key, text, run, opened FROM incidents WHERE resolved IS NULL ORDER BY n"
        )
        return [dict(row) for row in rows]

    # The box

    def drain(self, reason: str) -> None:
        """No job fires until a person says so; the first reason stays."""
        with self._write() as db:
            db.execute(
                "INSERT OR IGNORE INTO drained (one, reason, since) VALUES (1, ?, ?)",
                (redact(reason), self._at(None)),
            )

    def undrain(self) -> bool:
        """Jobs may fire again; False where the box was not drained."""
        with self._write() as db:
            return bool(db.execute("DELETE FROM drained").rowcount)

    def drained(self) -> dict[str, str] | None:
        """Why and since when the box is drained, None if it is not: reason, since."""
        rows = self._read("SELECT reason, since FROM drained")
        return dict(rows[0]) if rows else None

    def note_load(self, service: str, seconds: float) -> None:
        """A service took this long to serve again after a candidate."""
        with self._write() as db:
            db.execute("INSERT INTO loads (service, seconds) VALUES (?, ?)", (service, seconds))

    def slowest_load_seconds(self, service: str) -> float | None:
        """The slowest load ever seen, None before the first: restore deadlines start from it."""
        rows = self._read("SELECT max(seconds) AS most FROM loads WHERE service = ?", service)
        return None if rows[0]["most"] is None else float(rows[0]["most"])

    def slowest_stop_seconds(self, service: str) -> float | None:
        """The slowest of its last stops, None before the first."""
        rows = self._read(
            "SELECT detail FROM events WHERE name = 'stopped' ORDER BY n DESC LIMIT ?", _LAST_STOPS
        )
        took = [(loads(row["detail"]).get("took") or {}).get(service) for row in rows]
        known = [float(one) for one in took if isinstance(one, int | float)]
        return max(known, default=None)

    def _event(
        self, db: sqlite3.Connection, run_id: str, name: str, detail: Mapping[str, object]
    ) -> None:
        db.execute(
            "INSERT INTO events (run, at, name, detail) VALUES (?, ?, ?, ?)",
            (run_id, self._at(None), name, dumps(detail)),
        )

    def _post(
        self, db: sqlite3.Connection, key: str, body: Mapping[str, Any], run: str | None
    ) -> bool:
        return bool(
            db.execute(
                "INSERT OR IGNORE INTO outbox (key, run, created, body) VALUES (?, ?, ?, ?)",
                (key, run, now(), dumps(body)),
            ).rowcount
        )

    def _verdicts_of(self, run_id: str) -> list[dict[str, Any]]:
        rows = self._read("SELECT body FROM verdicts WHERE run = ? ORDER BY n", run_id)
        return [loads(row["body"]) for row in rows]


def summary(result: Mapping[str, Any]) -> dict[str, Any]:
    """A result without its checks and evidence: what a list of runs shows."""
    short = {key: value for key, value in result.items() if key != "checks"}
    if "claims" in short:
        short["claims"] = [
            {key: value for key, value in claim.items() if key != "evidence"}
            for claim in short["claims"]
        ]
    return short


def _open_summary(row: sqlite3.Row) -> dict[str, Any]:
    named = ("run", "job", "outcome", "exit_code", "headline", "trigger", "started", "ended")
    return {name: row[name] for name in named}
