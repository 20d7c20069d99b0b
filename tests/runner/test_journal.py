"""The journal: one outcome a run, durable before the act, readable by whoever comes later."""

import multiprocessing
import os
import re
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from runner.journal import Journal, JournalError, JournalTooNew
from runner.journal_file import NAME, SCHEMA, whose

AT = datetime(2026, 11, 2, 23, 0, tzinfo=UTC)
IDENT = {"boot": "b", "pid": 4711, "start": 99}


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state directory that is not there yet."""
    return tmp_path / "state"


@pytest.fixture
def journal(state: Path) -> Iterator[Journal]:
    """An open journal, with Berlin's clock."""
    with Journal.open(state, zone=ZoneInfo("Europe/Berlin")) as journal:
        yield journal


def result(run: str = "r1", outcome: str = "proven") -> dict[str, Any]:
    """A finished run as `run --json` gives it."""
    return {
        "run": run,
        "job": "200k-mtp",
        "outcome": outcome,
        "exit_code": 0,
        "headline": "SERVING",
        "checks": [{"id": "file.exists", "state": "pass"}],
        "claims": [{"kind": "context", "state": "proven", "evidence": [{"said": "n_ctx"}]}],
    }


def begin(journal: Journal, run: str = "r1", job: str = "200k-mtp") -> None:
    """A run that has begun."""
    journal.begin(run, job, "manual", IDENT, AT)


def close(journal: Journal, run: str = "r1", outcome: str = "proven", **alert: object) -> bool:
    """The end of a run, with an alert where one is given."""
    return journal.close(
        run, outcome, 0, "SERVING", result=result(run, outcome), alert=alert or None, ended=AT
    )


def test_a_run_is_known_from_its_first_moment(journal: Journal) -> None:
    """A crash later on leaves a row that says what was interrupted."""
    begin(journal)
    assert journal.open_runs() == [
        {
            "run": "r1",
            "job": "200k-mtp",
            "trigger": "manual",
            "started": "2026-11-03T00:00:00.000+01:00",
            "ident": IDENT,
        }
    ]
    assert (journal.run() or {})["outcome"] is None


def test_a_closed_run_gives_its_whole_result(journal: Journal) -> None:
    """`show --json` prints what `run --json` printed."""
    begin(journal)
    assert close(journal)
    assert journal.run() == journal.run("r1") == result()
    assert journal.open_runs() == []


def test_a_run_has_exactly_one_outcome(journal: Journal) -> None:
    """The run's end and its recovery may both come to close it; the first one counts (P4)."""
    begin(journal)
    assert close(journal, outcome="interrupted", text="first")
    assert not close(journal, outcome="proven", text="second")
    assert (journal.run("r1") or {})["outcome"] == "interrupted"
    assert [row.body["text"] for row in journal.outbox()] == ["first"]


def test_the_outcome_and_its_alert_are_one_transaction(journal: Journal, state: Path) -> None:
    """An outcome without its alert would be a silent failure (P5)."""
    begin(journal)
    with sqlite3.connect(state / NAME) as other:
        other.execute(
            "CREATE TRIGGER no_alerts BEFORE INSERT ON outbox BEGIN SELECT RAISE(ABORT, 'no'); END"
        )
    other.close()
    with pytest.raises(JournalError):
        close(journal, outcome="broken", text="x")
    assert [run["run"] for run in journal.open_runs()] == ["r1"]


def test_events_come_back_in_order_with_their_details(journal: Journal) -> None:
    """`runner logs` tells the story from them; paths are written as text."""
    begin(journal)
    journal.event("r1", "stopping", service="llm", unit=Path("/x"))
    journal.event("r1", "stopped")
    events = journal.events("r1")
    assert [event["name"] for event in events] == ["stopping", "stopped"]
    assert events[0]["detail"] == {"service": "llm", "unit": "/x"}
    assert events[0]["at"].endswith(("+01:00", "+02:00"))


def test_history_is_newest_first_and_leaves_out_checks_and_evidence(journal: Journal) -> None:
    """A list of runs is for finding one, `show` is for reading it."""
    for run, job in (("r1", "a"), ("r2", "b"), ("r3", "a")):
        begin(journal, run, job)
    close(journal, "r3")
    assert [row["run"] for row in journal.history()] == ["r3", "r2", "r1"]
    assert [row["run"] for row in journal.history("a", 1)] == ["r3"]
    newest = journal.history()[0]
    assert "checks" not in newest
    assert newest["claims"] == [{"kind": "context", "state": "proven"}]


def test_a_run_may_be_named_by_the_beginning_of_its_id(journal: Journal) -> None:
    """As with commits: a beginning that names two names none."""
    for run in ("20261103-0001", "20261103-0002", "20261104-0001"):
        begin(journal, run)
    assert (journal.run("20261104") or {})["run"] == "20261104-0001"
    assert journal.run("20261103") is None
    assert journal.run("nope") is None


def test_verdicts_of_an_open_run_can_be_shown(journal: Journal) -> None:
    """A refusal is explained even when the runner dies right after it."""
    begin(journal)
    journal.verdicts("r1", [{"id": "file.exists", "state": "fail", "subject": "/m.gguf"}])
    assert (journal.run("r1") or {})["checks"][0]["subject"] == "/m.gguf"


def test_an_alert_is_in_the_outbox_once_and_leaves_when_delivered(journal: Journal) -> None:
    """At least once, by key; marked only after the delivery."""
    assert journal.post("k", {"text": "DOWN"})
    assert not journal.post("k", {"text": "again"})
    (row,) = journal.outbox(unsent=True)
    journal.failed(row.id, "502", 123.0)
    (row,) = journal.outbox(unsent=True)
    assert (row.tries, row.last_error, row.next_at) == (1, "502", 123.0)
    journal.sent(row.id, "telegram")
    assert journal.outbox(unsent=True) == []
    (row,) = journal.outbox()
    assert (row.tries, row.note) == (2, "telegram")
    assert row.sent_at is not None


def test_an_incident_opens_once_until_it_is_resolved(journal: Journal) -> None:
    """A second recovery opens no new incident (P7)."""
    assert journal.incident("down:llm", "llm does not start", "r1")
    assert not journal.incident("down:llm", "llm does not start")
    assert [i["key"] for i in journal.incidents()] == ["down:llm"]
    assert journal.resolve("down:llm")
    assert not journal.resolve("down:llm")
    assert journal.incident("down:llm", "again")


def test_a_drained_box_keeps_the_first_reason(journal: Journal) -> None:
    """Who drained it first knew why."""
    assert journal.drained() is None
    journal.drain("restore failed")
    journal.drain("later")
    assert (journal.drained() or {})["reason"] == "restore failed"
    assert journal.undrain()
    assert not journal.undrain()
    assert journal.drained() is None


def test_load_times_are_remembered_by_service(journal: Journal) -> None:
    """Restore deadlines are learned from the slowest, not guessed."""
    assert journal.slowest_load_seconds("llm") is None
    for seconds in (41.0, 12.5):
        journal.note_load("llm", seconds)
    assert journal.slowest_load_seconds("llm") == 41.0


def test_the_slowest_of_its_last_stops_is_known(journal: Journal) -> None:
    """A stop that took long once may do so again."""
    assert journal.slowest_stop_seconds("llm") is None
    journal.begin("r1", "night", "manual", {}, None)
    for took in (3.5, 41.0, 2.0):
        journal.event("r1", "stopped", took={"llm": took, "embed": 1.0})
    journal.event("r1", "stopped")
    assert journal.slowest_stop_seconds("llm") == 41.0
    assert journal.slowest_stop_seconds("embed") == 1.0


def test_no_secret_is_written(journal: Journal, state: Path) -> None:
    """Neither by an event, nor by an error of a delivery (P10)."""
    begin(journal)
    token = "123456789:AAabcdefghijklmnopqrstuvwxyz012345678"
    journal.event("r1", "starting", argv=["--api-key=c4n4ry", f"bot{token}"])
    journal.post("k", {"text": f"https://api.telegram.org/bot{token}/"})
    journal.failed(1, f"POST https://api.telegram.org/bot{token}/sendMessage", 0)
    journal.incident("i", "--api-key c4n4ry")
    journal.shut()
    content = b"".join(path.read_bytes() for path in state.iterdir() if path.is_file())
    assert token.encode() not in content
    assert b"c4n4ry" not in content


def test_only_the_owner_can_read_the_journal(state: Path) -> None:
    """The state directory is 0711: others reach public/ and nothing else."""
    before = os.umask(0)
    try:
        with Journal.open(state) as journal:
            begin(journal)
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in state.iterdir()}
    finally:
        os.umask(before)
    assert stat.S_IMODE(state.stat().st_mode) == 0o711
    assert modes["public"] == 0o755
    assert {modes[name] for name in modes if name.startswith(NAME)} == {0o600}


def test_a_damaged_journal_is_moved_aside_and_said(state: Path) -> None:
    """Damage must never keep production down: history starts anew, the old file stays."""
    state.mkdir()
    (state / NAME).write_bytes(b"this is no database, " * 500)
    with Journal.open(state) as journal:
        assert journal.suspect is not None
        assert "damaged" in journal.suspect
        assert [incident["key"] for incident in journal.incidents()] == ["journal"]
        begin(journal)
    (aside,) = [path for path in state.iterdir() if ".damaged-" in path.name]
    assert aside.read_bytes().startswith(b"this is no database")
    with Journal.open(state) as journal:
        assert journal.suspect is None


def test_a_flipped_page_is_noticed(state: Path) -> None:
    """quick_check at the opening finds what a query would stumble over at midnight."""
    with Journal.open(state) as journal:
        for n in range(200):
            begin(journal, f"r{n}")
    with (state / NAME).open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(4096 * 4))
    with Journal.open(state) as journal:
        assert journal.suspect is not None
        assert journal.history() == []


def test_a_journal_of_a_newer_runner_is_refused_by_name(state: Path) -> None:
    """A downgrade says what to do, and changes nothing."""
    with Journal.open(state) as journal:
        begin(journal)
    db = sqlite3.connect(state / NAME)
    db.execute(f"PRAGMA user_version={SCHEMA + 1}")
    db.close()
    for read_only in (False, True):
        with pytest.raises(JournalTooNew, match=f"newer runner .format {SCHEMA + 1}"):
            Journal.open(state, read_only=read_only)
    assert not [path for path in state.iterdir() if ".damaged-" in path.name]


def test_an_older_journal_is_migrated(state: Path) -> None:
    """An empty file is the oldest format there is."""
    state.mkdir()
    (state / NAME).touch()
    with Journal.open(state, read_only=True) as journal:
        assert journal.history() == []
    with Journal.open(state) as journal:
        begin(journal)
    db = sqlite3.connect(state / NAME)
    assert db.execute("PRAGMA user_version").fetchone() == (SCHEMA,)
    db.close()


def test_a_journal_that_is_not_there_reads_as_empty(state: Path) -> None:
    """`runner history` on a new box is no error, and makes no directory."""
    with Journal.open(state, read_only=True) as journal:
        assert journal.history() == []
        assert journal.run() is None
        assert journal.drained() is None
    assert not state.exists()


def test_reading_never_writes(state: Path) -> None:
    """A read-only journal refuses a write with a sentence."""
    Journal.open(state).shut()
    with Journal.open(state, read_only=True) as journal, pytest.raises(JournalError):
        begin(journal)


def test_a_file_in_the_place_of_the_state_directory_is_named(tmp_path: Path) -> None:
    """Not a traceback from sqlite3."""
    (tmp_path / "file").touch()
    with pytest.raises(JournalError, match=r"/file is a file\) → set state_dir in runner.toml"):
        Journal.open(tmp_path / "file" / "state")


def test_a_state_directory_of_somebody_else_names_its_owner(tmp_path: Path) -> None:
    """Whoever that is could do it."""
    theirs = Path("/")
    if os.geteuid() == 0:
        theirs = tmp_path
        os.chown(theirs, 65534, -1)
    assert re.search(r"belongs to \w+\) → run as \w+, or set state_dir", whose(theirs / "state"))


def test_a_full_disk_is_said_and_the_journal_goes_on_afterwards(journal: Journal) -> None:
    """A write that did not fit is an error before the stop, and forgotten when there is room."""
    begin(journal)
    pages = journal._db.execute("PRAGMA page_count").fetchone()[0]
    journal._db.execute(f"PRAGMA max_page_count={pages}")
    with pytest.raises(JournalError, match="disk is full → free some space"):
        journal.event("r1", "stopping", padding="x" * 100_000)
    journal._db.execute(f"PRAGMA max_page_count={pages + 1000}")
    journal.event("r1", "stopping", padding="x" * 100_000)
    assert len(journal.events("r1")) == 1


def test_a_journal_held_by_another_process_is_said(journal: Journal, state: Path) -> None:
    """The wait has an end, and the error says where to look."""
    other = sqlite3.connect(state / NAME, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    journal._db.execute("PRAGMA busy_timeout=20")
    with pytest.raises(JournalError, match="another process has held it"):
        begin(journal)
    other.close()
    begin(journal)


def _append(state: Path, name: str) -> None:
    with Journal.open(state) as journal:
        for _ in range(20):
            journal.event("r1", name)


def test_several_processes_may_make_and_write_it_at_once(state: Path) -> None:
    """The run, its guardian and a person's `runner release` share one file."""
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_append, args=(state, f"w{n}")) for n in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 4
    with Journal.open(state, read_only=True) as journal:
        assert len(journal.events("r1")) == 80


def test_a_locked_journal_hardly_holds_up_a_restore(journal: Journal, state: Path) -> None:
    """Somebody else's lock is waited for by whoever has the time, and not on the way back."""
    with closing(sqlite3.connect(state / NAME, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        with journal.hurried(), pytest.raises(JournalError):
            journal.event("r1", "restoring")
        assert time.monotonic() - began < 2.0
        assert journal._db.execute("PRAGMA busy_timeout").fetchone()[0] == 5000
