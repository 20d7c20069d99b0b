"""Opening the journal's file: its shape, its age, its damage. Standard library only.

Must not know what the rows mean. Settings and why: WAL with synchronous=FULL loses no commit that
was acknowledged before a power cut (NORMAL does), and BEGIN IMMEDIATE waits for its turn where a
read that turns into a write fails at once.
"""

import os
import pwd
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

from runner import __version__
from runner.files import make_state_dir
from runner.recovery.files import FULL
from runner.until import RealClock, TimedOut, until

NAME = "journal.db"
BUSY_S = 5.0
_ALWAYS_CHECKED_BYTES = 64 * 1024 * 1024
_DAMAGED = ("SQLITE_CORRUPT", "SQLITE_NOTADB")
_NO_ROOM = "the disk is full → free some space, then try again"

_STEPS = (
    """
    CREATE TABLE runs (
        n INTEGER PRIMARY KEY,
        run TEXT NOT NULL UNIQUE,
        job TEXT NOT NULL,
        trigger TEXT NOT NULL,
        started TEXT NOT NULL,
        ident TEXT NOT NULL,
        ended TEXT,
        outcome TEXT,
        exit_code INTEGER,
        headline TEXT,
        summary TEXT
    );
    CREATE INDEX runs_of_job ON runs (job, n);
    CREATE INDEX runs_open ON runs (n) WHERE outcome IS NULL;
    CREATE TABLE results (run TEXT PRIMARY KEY, body TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE events (
        n INTEGER PRIMARY KEY,
        run TEXT NOT NULL,
        at TEXT NOT NULL,
        name TEXT NOT NULL,
        detail TEXT NOT NULL
    );
    CREATE INDEX events_of_run ON events (run, n);
    CREATE TABLE verdicts (
        n INTEGER PRIMARY KEY,
        run TEXT NOT NULL,
        id TEXT NOT NULL,
        state TEXT NOT NULL,
        body TEXT NOT NULL
    );
    CREATE INDEX verdicts_of_run ON verdicts (run, n);
    CREATE TABLE outbox (
        n INTEGER PRIMARY KEY,
        key TEXT NOT NULL UNIQUE,
        run TEXT,
        created REAL NOT NULL,
        body TEXT NOT NULL,
        tries INTEGER NOT NULL DEFAULT 0,
        next_at REAL NOT NULL DEFAULT 0,
        last_error TEXT,
        sent_at REAL,
        note TEXT
    );
    CREATE INDEX outbox_unsent ON outbox (n) WHERE sent_at IS NULL;
    CREATE TABLE incidents (
        n INTEGER PRIMARY KEY,
        key TEXT NOT NULL,
        text TEXT NOT NULL,
        run TEXT,
        opened TEXT NOT NULL,
        resolved TEXT
    );
    CREATE UNIQUE INDEX incidents_open ON incidents (key) WHERE resolved IS NULL;
    CREATE TABLE drained (one INTEGER PRIMARY KEY CHECK (one = 1), reason TEXT, since TEXT);
    CREATE TABLE loads (n INTEGER PRIMARY KEY, service TEXT NOT NULL, seconds REAL NOT NULL);
    CREATE INDEX loads_of_service ON loads (service, n);
    """,
    """
    CREATE TABLE slots (
        job TEXT NOT NULL,
        at INTEGER NOT NULL,
        due TEXT NOT NULL,
        state TEXT NOT NULL,
        reason TEXT NOT NULL,
        run TEXT,
        trigger TEXT NOT NULL,
        back_by REAL,
        changed REAL NOT NULL,
        story TEXT,
        PRIMARY KEY (job, at)
    ) WITHOUT ROWID;
    CREATE INDEX slots_open ON slots (at)
        WHERE state IN ('due', 'waiting', 'starting', 'running');
    CREATE TABLE pauses (
        job TEXT PRIMARY KEY,
        until REAL,
        reason TEXT NOT NULL,
        since REAL NOT NULL,
        by TEXT NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE planned (
        job TEXT NOT NULL,
        at INTEGER NOT NULL,
        since REAL NOT NULL,
        by TEXT NOT NULL,
        PRIMARY KEY (job, at)
    ) WITHOUT ROWID;
    CREATE TABLE pins (
        owner TEXT NOT NULL,
        path TEXT NOT NULL,
        pin TEXT NOT NULL,
        how TEXT NOT NULL,
        inode INTEGER NOT NULL,
        size INTEGER NOT NULL,
        mtime_ns INTEGER NOT NULL,
        since REAL NOT NULL,
        by TEXT NOT NULL,
        PRIMARY KEY (owner, path)
    ) WITHOUT ROWID;
    CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
    """,
)
SCHEMA = len(_STEPS)


class JournalError(Exception):
    """The journal cannot be read or written."""


class JournalTooNew(JournalError):
    """The journal was written by a newer runner."""


class JournalBusy(JournalError):
    """Another process holds the journal; it may let go of it later."""


class JournalFull(JournalError):
    """The disk has no room for what is to be written."""


def connect(state_dir: Path) -> tuple[sqlite3.Connection, str | None]:
    """Open the journal for writing, made or migrated as needed; a damaged one is moved aside.

    Returns the connection, and the sentence about the damage if there was one. Raises
    JournalError and JournalTooNew.
    """
    path = state_dir / NAME
    try:
        make_state_dir(state_dir)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        if error.errno in FULL:
            raise JournalFull(f"{path}: {_NO_ROOM}") from error
        raise JournalError(f"{path}: {error.strerror}{whose(state_dir)}") from error
    try:
        return _prepared(path), None
    except sqlite3.DatabaseError as error:
        if not _is_damage(error):
            raise failure(error, path) from error
        suspect = _move_aside(path, str(error))
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        return _prepared(path), suspect
    except (OSError, sqlite3.Error) as error:
        raise JournalError(f"{suspect}; a new one cannot be made: {error}") from error


def connect_read_only(state_dir: Path) -> sqlite3.Connection:
    """Open the journal for reading; one that is not there yet reads as empty.

    Raises JournalError and JournalTooNew.
    """
    path = state_dir / NAME
    try:
        # stat, not exists(): a directory that may not be entered is no empty journal.
        path.stat()
    except FileNotFoundError:
        empty = sqlite3.connect(":memory:", isolation_level=None)
        _migrate(empty, path)
        return empty
    except OSError as error:
        raise JournalError(f"{path}: {error.strerror}{whose(state_dir)}") from error
    try:
        uri = f"{path.absolute().as_uri()}?mode=ro"
        db = sqlite3.connect(uri, uri=True, timeout=BUSY_S, isolation_level=None)
        if _version(db, path) == 0:  # made this instant by another process: nothing in it yet
            _migrate(db := sqlite3.connect(":memory:", isolation_level=None), path)
    except sqlite3.Error as error:
        raise failure(error, path) from error
    return db


def failure(error: sqlite3.Error, path: Path) -> JournalError:
    """A database error as ours, with a sentence that says what to do."""
    name = getattr(error, "sqlite_errorname", "") or ""
    kinds = {"SQLITE_BUSY": JournalBusy, "SQLITE_LOCKED": JournalBusy, "SQLITE_FULL": JournalFull}
    kind = next((kinds[one] for one in kinds if name.startswith(one)), JournalError)
    return kind(_said(error, path))


def _said(error: sqlite3.Error, path: Path) -> str:
    name = getattr(error, "sqlite_errorname", "") or ""
    if name.startswith("SQLITE_FULL"):
        return f"{path}: {_NO_ROOM}"
    if name.startswith("SQLITE_BUSY"):
        return f"{path}: another process has held it for {BUSY_S:g} s → see `runner status`"
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
        return f"{path}: {error}{whose(path.parent)}"
    if name.startswith("SQLITE_IOERR"):
        return f"{path}: {error} → look at the disk (full? failing?), then try again"
    return f"{path}: {error}"


def _prepared(path: Path) -> sqlite3.Connection:
    crashed = path.with_name(f"{NAME}-wal").exists()
    db = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
    try:
        _version(db, path)
        _use_wal(db)
        db.execute("PRAGMA synchronous=FULL")
        if crashed or path.stat().st_size <= _ALWAYS_CHECKED_BYTES:
            _check(db)
        _migrate(db, path)
    except BaseException:
        db.close()
        raise
    return db


def _check(db: sqlite3.Connection) -> None:
    verdict = db.execute("PRAGMA quick_check(1)").fetchone()[0]
    if verdict != "ok":
        raise sqlite3.DatabaseError(f"malformed: {verdict}")


def _use_wal(db: sqlite3.Connection) -> None:
    """Switch to WAL. Two processes making the journal at once: the switch itself never waits."""

    def switched() -> bool | None:
        try:
            return bool(db.execute("PRAGMA journal_mode=WAL").fetchone()[0] == "wal") or None
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorname", "").startswith("SQLITE_BUSY"):
                return None
            raise

    try:
        until(switched, within=BUSY_S, clock=RealClock(), every=0.01)
    except TimedOut as error:
        raise sqlite3.OperationalError("database is locked while it is being made") from error


def _version(db: sqlite3.Connection, path: Path) -> int:
    found = int(db.execute("PRAGMA user_version").fetchone()[0])
    if found > SCHEMA:
        raise JournalTooNew(
            f"{path}: written by a newer runner (format {found}); runner {__version__} knows "
            f"format {SCHEMA} → install that runner again, or use another state_dir"
        )
    return found


def _migrate(db: sqlite3.Connection, path: Path) -> None:
    if _version(db, path) == SCHEMA:
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        for step in _STEPS[_version(db, path) :]:
            for statement in step.split(";"):
                db.execute(statement)
        db.execute(f"PRAGMA user_version={SCHEMA}")
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    name = getattr(error, "sqlite_errorname", "") or ""
    return name.startswith(_DAMAGED) or str(error).startswith("malformed")


def _move_aside(path: Path, why: str) -> str:
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    aside = path.with_name(f"{NAME}.damaged-{stamp}")
    for ending in ("", "-wal", "-shm"):
        part = path.with_name(NAME + ending)
        if part.exists():
            part.replace(aside.with_name(aside.name + ending))
    return f"{path} was damaged ({why}) and lies at {aside} now; history starts anew"


def whose(state_dir: Path) -> str:
    """Who could write there, for the end of an error about a state directory."""
    there = state_dir
    while not there.exists() and there != there.parent:
        there = there.parent
    try:
        uid = there.stat().st_uid
    except OSError:
        return " → set state_dir in runner.toml to a directory you own"
    if not there.is_dir():
        return f" ({there} is a file) → set state_dir in runner.toml to a directory"
    if uid == os.geteuid():
        return " → set state_dir in runner.toml to a directory that can be made"
    try:
        owner = pwd.getpwuid(uid).pw_name
    except KeyError:
        owner = f"uid {uid}"
    return f" ({there} belongs to {owner}) → run as {owner}, or set state_dir in runner.toml"
