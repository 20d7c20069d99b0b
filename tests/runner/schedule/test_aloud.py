"""A daemon whose journal cannot be used tells so by itself, and what production does meanwhile."""

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from alerts.local import File
from runner.journal import JournalBusy, JournalError
from runner.recovery.told import Told
from runner.schedule.aloud import Aloud
from tests.runner.schedule.served import Served
from tests.runner.schedule.times import FakeTimes
from tests.servers import soon

BROKEN = JournalError("attempt to write a readonly database")


@pytest.fixture
def times() -> FakeTimes:
    """A clock."""
    return FakeTimes()


@pytest.fixture
def channel(tmp_path: Path) -> File:
    """A person, as a file."""
    return File(kind="file", path=str(tmp_path / "told"))


@pytest.fixture
def aloud(tmp_path: Path, times: FakeTimes) -> Iterator[Aloud]:
    """A daemon's voice."""
    yield Aloud(tmp_path / "state", times)
    for file in Told(tmp_path / "state").files:
        file.unlink(missing_ok=True)


def told(channel: File) -> list[str]:
    """The first lines so far."""
    path = Path(channel.path)
    return [
        line
        for line in (path.read_text().splitlines() if path.exists() else ())
        if " · runner serve " in line
    ]


def test_it_is_told_once_and_then_rarely(aloud: Aloud, channel: File, times: FakeTimes) -> None:
    """At each tick the journal fails; a person hears of it after an hour, and of news at once."""
    for seconds, count in ((0, 1), (1, 1), (3500, 1), (100, 2), (10, 2)):
        times.passes(seconds)
        aloud.say("SERVING", BROKEN, [channel])
        aloud.finish()
        assert len(told(channel)) == count
    aloud.say("DOWN: llm", BROKEN, [channel])
    aloud.finish()
    assert told(channel)[-1].startswith("DOWN: llm · runner serve cannot write its journal")
    assert "readonly" in Path(channel.path).read_text()


def test_the_next_daemon_knows_what_was_told(
    aloud: Aloud, channel: File, times: FakeTimes, tmp_path: Path
) -> None:
    """systemd starts it anew each five seconds: that is no news."""
    aloud.say("NOT WATCHED", BROKEN, [channel])
    aloud.finish()
    other = Aloud(tmp_path / "state", times)
    assert other.is_lost
    other.say("NOT WATCHED", BROKEN, [channel])
    other.finish()
    assert len(told(channel)) == 1
    other.works_again()
    assert not Aloud(tmp_path / "state", times).is_lost
    other.say("NOT WATCHED", BROKEN, [channel])
    other.finish()
    assert len(told(channel)) == 2


def test_a_journal_that_another_process_holds_is_waited_for(
    aloud: Aloud, channel: File, times: FakeTimes
) -> None:
    """A copy of the file for a backup wakes nobody."""
    busy = JournalBusy("another process has held it for 5 s")
    for seconds, count in ((0, 0), (59, 0), (1, 1)):
        times.passes(seconds)
        aloud.say("SERVING", busy, [channel])
        aloud.finish()
        assert len(told(channel)) == count


def test_one_channel_that_fails_silences_no_other(
    aloud: Aloud, channel: File, tmp_path: Path
) -> None:
    """And where nobody could be told it is tried again."""
    nowhere = File(kind="file", path=str(tmp_path / "no" / "such"))
    for _ in range(2):
        aloud.say("SERVING", BROKEN, [nowhere])
        aloud.finish()
    aloud.say("SERVING", BROKEN, [nowhere, channel])
    aloud.finish()
    assert len(told(channel)) == 1


@contextmanager
def failing(state: Path) -> Iterator[None]:
    """Each write of the journal fails for the while: a trigger refuses it, as a disk would."""
    with closing(sqlite3.connect(state / "journal.db")) as db:
        names = [
            name
            for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            if not name.startswith("sqlite_")
        ]
        for name in names:
            for verb in ("INSERT", "UPDATE"):
                db.execute(
                    f"CREATE TRIGGER no_{name}_{verb} BEFORE {verb} ON {name}"
                    " BEGIN SELECT RAISE(ABORT, 'the disk failed'); END"
                )
        db.commit()
        yield
        for name in names:
            for verb in ("INSERT", "UPDATE"):
                db.execute(f"DROP TRIGGER no_{name}_{verb}")
        db.commit()


@pytest.mark.slow
def test_a_daemon_without_a_journal_tells_and_tells_of_production(served: Served) -> None:
    """P5: the outbox cannot be written, so it says so itself, and what dies meanwhile, too."""
    night = served.night
    served.due_in(3000.0)
    served.serve()
    soon(lambda: night.call("status", "--json").json["production"]["services"] or None)
    with failing(night.state):
        served.told("SERVING · runner serve cannot write its journal", "the disk failed")
        said = night.call("status", "--json").json
        assert "the disk failed" in said["note"]
        os.kill(night.serving(), 9)
        served.told("DOWN: llm · runner serve cannot write its journal", within=90)
    served.told("runner serve can write its journal again", "DOWN since", within=90)
    assert "the disk failed" not in night.call("status", "--json").json["note"]


def test_a_daemon_whose_state_directory_is_taken_away_begins_anew(served: Served) -> None:
    """It would write on into a file that nobody can find any more."""
    night = served.night
    served.due_in(3000.0)
    served.serve()
    shutil.rmtree(night.state)
    served.told("runner's journal starts anew", "was removed or renamed while runner serve ran")
    assert served.process is not None
    assert served.process.poll() is None
    assert "starts anew" not in night.call("status", "--json").json["note"]
    assert "was removed or renamed" in night.call("status", "--json").json["note"]


def test_a_daemon_that_cannot_open_its_journal_tells_before_it_ends(served: Served) -> None:
    """Started again and again by systemd: told once."""
    night = served.night
    served.due_in(3000.0)
    night.call("status", "--json")
    night.state.mkdir(exist_ok=True)
    with closing(sqlite3.connect(night.state / "journal.db")) as db:
        db.execute("PRAGMA user_version=999")
    for _ in range(2):
        ran = night.call("serve", "--json")
        assert ran.code not in {0, 4}, str(ran)
    assert night.told().count("NOT WATCHED · runner serve cannot write its journal") == 1
    assert "newer" in night.told()
    for file in Told(night.state).files:
        file.unlink(missing_ok=True)
