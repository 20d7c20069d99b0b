"""Incidents from opening to resolution: told once, edited while they last, told when they end.

Standard library only. The journal keeps them; delivery is somebody else's.
"""

from collections.abc import Sequence

from runner.journal import Journal
from runner.journal_rows import Rows, dumps
from runner.secrets import redact
from runner.words import clock, duration, parsed, shown


class Incidents(Rows):
    """The incidents of an open journal. Every method may raise JournalError."""

    def __init__(self, journal: Journal) -> None:
        """The same file, over the same connection."""
        super().__init__(journal.connection, journal.path, zone=journal.zone)
        self._journal = journal

    def open(
        self,
        key: str,
        first_line: str,
        lines: Sequence[str] = (),
        *,
        run: str = "",
        told: bool = False,
        worse: bool = False,
    ) -> bool:
        """Open an incident and have it told, or edit the one that is open; True where it is new.

        What is not delivered yet is told as it stands now; what is delivered already is told again
        only if it got `worse`. `told` is for what somebody else has told already.
        """
        text = "\n".join(redact(shown(line)) for line in (first_line, *lines) if line)
        with self._write() as db:
            row = db.execute(
                "SELECT n, opened FROM incidents WHERE key = ? AND resolved IS NULL", (key,)
            ).fetchone()
            opened = row[1] if row else self._at(None)
            if row:
                db.execute("UPDATE incidents SET text = ? WHERE n = ?", (text, row[0]))
            else:
                db.execute(
                    "INSERT INTO incidents (key, text, run, opened) VALUES (?, ?, ?, ?)",
                    (key, text, run or None, opened),
                )
            body = dumps(_body(text, self._at(None), "incident"))
            db.execute(
                "UPDATE outbox SET body = ? WHERE key = ? AND sent_at IS NULL",
                (body, _told(key, opened)),
            )
        if told:
            return row is None
        again = f":{self._at(None)}" if row and worse and self._was_sent(key, opened) else ""
        if row is None or again:
            body_now = _body(text, self._at(None), "incident")
            self._journal.post(f"{_told(key, opened)}{again}", body_now, run or None)
        return row is None

    def _was_sent(self, key: str, opened: str) -> bool:
        return not self._read(
            "SELECT 1 FROM outbox WHERE key = ? AND sent_at IS NULL", _told(key, opened)
        )

    def note(self, key: str, first_line: str, lines: Sequence[str] = ()) -> None:
        """Tell something that is over already, such as a restart: opened and closed at once."""
        if self.open(key, first_line, lines):
            self._journal.resolve(key)

    def resolve(self, key: str, first_line: str, lines: Sequence[str] = ()) -> bool:
        """Close an incident and have that told; False where none was open."""
        found = self.text(key)
        if found is None or not self._journal.resolve(key):
            return False
        _, opened = found
        lasted = (parsed(self._at(None)) - parsed(opened)).total_seconds()
        more = (*lines, f"it lasted {duration(lasted)}, since {clock(opened)}")
        text = "\n".join(redact(shown(line)) for line in (first_line, *more) if line)
        self._journal.post(
            f"{_told(key, opened)}:resolved", _body(text, self._at(None), "resolved")
        )
        return True

    def text(self, key: str) -> tuple[str, str] | None:
        """What an open incident says, and since when; None where none is open."""
        rows = self._read(
            "SELECT text, opened FROM incidents WHERE key = ? AND resolved IS NULL", key
        )
        return (str(rows[0]["text"]), str(rows[0]["opened"])) if rows else None


def _told(key: str, opened: str) -> str:
    return f"incident:{key}:{opened}"


def _body(text: str, at: str, kind: str) -> dict[str, str]:
    return {"first_line": text.partition("\n")[0], "text": text, "at": at, "kind": kind}
