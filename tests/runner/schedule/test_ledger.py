"""The pages of the journal about time: a slot is one daemon's, and one run's."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.journal import Journal
from runner.schedule.ledger import Ledger, Pause
from runner.schedule.slots import Slot, State


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """The pages of an empty journal."""
    with Journal.open(tmp_path / "state") as journal:
        yield Ledger(journal)


def slot(state: State = State.DUE, at: int = 1000, **more: object) -> Slot:
    """A slot of the job `night`."""
    fields = {"job": "night", "at": at, "due": "1970-01-01T00:16:40+00:00", "state": state}
    return Slot(**{**fields, **more})


def test_a_slot_is_claimed_by_one(tmp_path: Path) -> None:
    """Two processes with a connection each: the row goes to whoever was first."""
    with Journal.open(tmp_path / "s") as one, Journal.open(tmp_path / "s") as two:
        assert len(Ledger(one).claim([slot()])) == 1
        assert Ledger(two).claim([slot()]) == []


def test_a_decided_slot_cannot_be_decided_again(ledger: Ledger) -> None:
    """The first word counts."""
    ledger.claim([slot()])
    assert ledger.move(slot(State.PAUSED, reason="by anna"))
    assert not ledger.move(slot(State.MISSED, reason="late"))
    found = ledger.slot("night", 1000)
    assert found is not None
    assert (found.state, found.reason) == (State.PAUSED, "by anna")


def test_a_run_finds_the_slot_it_was_started_for(ledger: Ledger) -> None:
    """Once: a second run of the same job gets none."""
    ledger.claim([slot(State.STARTING, trigger="catch-up", back_by=2000.0, changed=time.time())])
    found = ledger.adopt("night", "r1")
    assert found is not None
    assert (found.trigger, found.back_by) == ("catch-up", 2000.0)
    assert ledger.adopt("night", "r2") is None
    now = ledger.slot("night", 1000)
    assert now is not None
    assert (now.state, now.run) == (State.RUNNING, "r1")


def test_a_run_of_another_job_or_much_later_adopts_nothing(ledger: Ledger) -> None:
    """A slot whose run never came is not the next one's."""
    ledger.claim([slot(State.STARTING, changed=time.time() - 3600)])
    assert ledger.adopt("night", "r1") is None
    assert ledger.adopt("other", "r2") is None


def test_the_story_of_a_slot_is_kept(ledger: Ledger) -> None:
    """Line by line."""
    ledger.claim([slot(story=("00:01 waits: a", "00:02 waits: b"))])
    (found,) = ledger.open()
    assert found.story == ("00:01 waits: a", "00:02 waits: b")


def test_a_pause_expires_by_itself(ledger: Ledger) -> None:
    """Nobody has to remember it."""
    ledger.pause(Pause("night", 500.0, "demo", 0.0, "anna"))
    assert [pause.job for pause in ledger.pauses(499.0)] == ["night"]
    assert ledger.pauses(500.0) == []


def test_facts_are_kept_and_forgotten(ledger: Ledger) -> None:
    """Also those that share a beginning."""
    ledger.remember(**{"seen:a": 1, "seen:b": {"x": [2]}, "alive": "yes"})
    assert ledger.facts("seen:") == {"a": 1, "b": {"x": [2]}}
    ledger.remember(**{"seen:a": None})
    assert ledger.fact("seen:a") is None
    assert ledger.fact("alive") == "yes"


def test_a_journal_of_the_version_before_gets_its_new_pages(tmp_path: Path) -> None:
    """Nothing in it is lost."""
    with Journal.open(tmp_path) as journal:
        journal.begin("r1", "night", "manual", {}, "2027-01-16T00:00:00+00:00")
        with journal._write() as db:
            for table in ("slots", "pauses", "planned", "pins", "facts"):
                db.execute(f"DROP TABLE {table}")
        journal._db.execute("PRAGMA user_version=1")
    with Journal.open(tmp_path) as journal:
        assert Ledger(journal).open() == []
        assert journal.run("r1") is not None
