"""How the journal reads and writes its file. Standard library only; knows no table."""

import contextlib
import json
import sqlite3
from collections.abc import Generator
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Any, Self

from runner import words
from runner.journal_file import BUSY_S, failure
from runner.secrets import redact_tree

Moment = datetime | str

_HURRIED_MS = 50


class Rows:
    """An open file: transactions that are durable or did not happen, and plain reads."""

    def __init__(
        self,
        db: sqlite3.Connection,
        path: Path,
        *,
        zone: tzinfo | None = None,
        suspect: str | None = None,
    ) -> None:
        self._db = db
        self._path = path
        self._zone = zone
        self._file = _file(path)
        self.suspect = suspect
        """What was wrong with the file found, if it had to be moved aside."""

    @property
    def connection(self) -> sqlite3.Connection:
        """The open file, for another page of the same journal."""
        return self._db

    @property
    def path(self) -> Path:
        """Where the file lies."""
        return self._path

    @property
    def zone(self) -> tzinfo | None:
        """The timezone in which times are written; None: the box's own."""
        return self._zone

    @property
    def is_there(self) -> bool:
        """Whether the open file still lies at its place: one that was removed or renamed can be
        written for ever, and nobody will read it.
        """
        return self._file is None or _file(self._path) == self._file

    def __enter__(self) -> Self:
        """Nothing to do: it is open already."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file, without a word about what may have gone wrong in the block."""
        self.shut()

    def shut(self) -> None:
        """Close the file."""
        with contextlib.suppress(sqlite3.Error):
            self._db.close()

    @contextlib.contextmanager
    def _write(self) -> Generator[sqlite3.Connection]:
        try:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                # The disk may be full: SQLite has then rolled back by itself, and says so.
                with contextlib.suppress(sqlite3.Error):
                    self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            raise failure(error, self._path) from error

    @contextlib.contextmanager
    def hurried(self) -> Generator[None]:
        """In this block wait hardly at all for a file that another process holds: what happens in
        it matters more than what is written about it. Raises nothing of its own.
        """
        with contextlib.suppress(sqlite3.Error):
            self._db.execute(f"PRAGMA busy_timeout={_HURRIED_MS}")
        try:
            yield
        finally:
            with contextlib.suppress(sqlite3.Error):
                self._db.execute(f"PRAGMA busy_timeout={BUSY_S * 1000:.0f}")

    def _read(self, sql: str, *given: object) -> list[sqlite3.Row]:
        try:
            cursor = self._db.cursor()
            cursor.row_factory = sqlite3.Row
            return cursor.execute(sql, given).fetchall()
        except sqlite3.Error as error:
            raise failure(error, self._path) from error

    def _at(self, at: Moment | None) -> str:
        if at is None:
            return words.iso(datetime.now(UTC), self._zone)
        return at if isinstance(at, str) else words.iso(at, self._zone)


def without(row: sqlite3.Row, *names: str) -> dict[str, Any]:
    """A row as a dict, less the columns named."""
    return {name: row[name] for name in row.keys() if name not in names}  # noqa: SIM118 - a Row iterates over values


def dumps(value: object) -> str:
    """A JSON text, compact and without secrets; what JSON does not know is written as its text."""
    return json.dumps(redact_tree(value), ensure_ascii=False, separators=(",", ":"), default=str)


def loads(text: str) -> dict[str, Any]:
    """A JSON object from its text."""
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def now() -> float:
    """Seconds since 1970."""
    return datetime.now(UTC).timestamp()


def _file(path: Path) -> tuple[int, int] | None:
    """Which file lies there now."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
