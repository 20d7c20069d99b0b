"""Runs that died while they owed nothing: none of them stays without an outcome, or untold."""

import os
from pathlib import Path
from typing import Any

import pytest

from preflight.linux import proc
from runner.files import make_state_dir, write_json
from runner.journal import Journal
from runner.recovery.limbo import close_dead
from runner.recovery.recover import recover
from runner.until import RealClock
from tests.fakes_runner import FakeClock

DEAD = {"boot": "another boot", "pid": 4711, "start": 1}
AT = "2026-03-01T00:00:00+00:00"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state directory whose journal knows one run that has died."""
    make_state_dir(tmp_path)
    with Journal.open(tmp_path) as journal:
        journal.begin("one", "night", "manual", DEAD, AT)
    return tmp_path


def told(state: Path) -> list[dict[str, Any]]:
    """Every alert in the outbox."""
    with Journal.open(state, read_only=True) as journal:
        return [row.body for row in journal.outbox()]


def outcome(state: Path, run: str = "one") -> object:
    """How a run has ended."""
    with Journal.open(state, read_only=True) as journal:
        found = journal.run(run)
    assert found is not None
    return found["outcome"]


def test_a_run_that_died_before_it_owed_anything_is_told(state: Path) -> None:
    """A crash during preflight leaves no debt behind, and still ends as interrupted."""
    assert recover(state, clock=RealClock()).state == "nothing"
    assert outcome(state) == "interrupted"
    (alert,) = told(state)
    assert "night INTERRUPTED" in alert["first_line"]


def test_looking_twice_tells_once(state: Path) -> None:
    """A second look finds nothing to do."""
    assert close_dead(state, FakeClock()) == ["one"]
    assert close_dead(state, FakeClock()) == []
    assert len(told(state)) == 1


def test_a_run_that_lives_is_left_alone(state: Path) -> None:
    """Its outcome is its own to write."""
    me = proc.ident(os.getpid())
    assert me is not None
    with Journal.open(state) as journal:
        journal.begin("two", "night", "manual", me.to_json(), AT)
    assert close_dead(state, FakeClock()) == ["one"]
    assert outcome(state, "two") is None


def test_a_run_whose_debt_is_open_is_left_to_its_recovery(state: Path) -> None:
    """It is told together with what became of production."""
    assert close_dead(state, FakeClock(), owing="one") == []
    assert outcome(state) is None


def test_a_result_that_the_run_still_wrote_counts(state: Path) -> None:
    """A full disk may have kept the outcome from the journal and not from the run's directory."""
    (state / "runs" / "one").mkdir()
    write_json(
        state / "runs" / "one" / "result.json",
        {"outcome": "refuted", "exit_code": 6, "headline": "SERVING · REFUTED", "ended": AT},
    )
    assert close_dead(state, FakeClock()) == ["one"]
    assert outcome(state) == "refuted"
    assert told(state)[0]["first_line"] == "SERVING · REFUTED"


def test_a_proven_run_is_not_told(state: Path) -> None:
    """As if it had written its outcome itself."""
    (state / "runs" / "one").mkdir()
    write_json(
        state / "runs" / "one" / "result.json",
        {"outcome": "proven", "exit_code": 0, "headline": "SERVING · PROVEN", "ended": AT},
    )
    close_dead(state, FakeClock())
    assert outcome(state) == "proven"
    assert told(state) == []


def test_without_a_journal_there_is_nothing_to_do(tmp_path: Path) -> None:
    """Recovery may come before the first run ever did."""
    assert close_dead(tmp_path, FakeClock()) == []
