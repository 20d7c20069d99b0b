"""The end of a run on a full disk: the space that was kept back is given up for the last words."""

from pathlib import Path

import pytest

from runner.closing import _with_reserve
from runner.journal import JournalBusy, JournalError
from runner.journal_file import JournalFull
from runner.recovery.files import RESERVE, reserve


def full_until_freed(state_dir: Path, written: list[str]) -> None:
    """A write that has room only once the reserve is gone."""
    if (state_dir / RESERVE).exists():
        raise JournalFull("the disk is full")
    written.append("outcome")


def test_the_outcome_is_written_into_the_space_kept_back(tmp_path: Path) -> None:
    """A disk that filled up during the run does not take the outcome and its alert away."""
    reserve(tmp_path)
    written: list[str] = []
    _with_reserve(tmp_path, lambda: full_until_freed(tmp_path, written))
    assert written == ["outcome"]


def test_without_a_reserve_the_fault_is_told(tmp_path: Path) -> None:
    """There is nothing to give up: whoever closes the run tells without the journal."""

    def full() -> None:
        raise JournalFull("the disk is full")

    with pytest.raises(JournalFull):
        _with_reserve(tmp_path, full)


def test_a_journal_that_others_hold_keeps_the_reserve(tmp_path: Path) -> None:
    """Space helps nobody there, and a second try would wait as long again."""
    reserve(tmp_path)

    def busy() -> None:
        raise JournalBusy("another process has held it")

    with pytest.raises(JournalBusy):
        _with_reserve(tmp_path, busy)
    assert (tmp_path / RESERVE).exists()


def test_a_journal_that_may_not_be_written_keeps_the_reserve(tmp_path: Path) -> None:
    """A newer format, a lost permission: the disk has room, and space helps nobody there."""
    reserve(tmp_path)

    def refused() -> None:
        raise JournalError("attempt to write a readonly database")

    with pytest.raises(JournalError):
        _with_reserve(tmp_path, refused)
    assert (tmp_path / RESERVE).exists()


def test_a_journal_that_works_keeps_the_reserve(tmp_path: Path) -> None:
    """It is for one emergency, and stays for the next run."""
    reserve(tmp_path)
    _with_reserve(tmp_path, lambda: None)
    assert (tmp_path / RESERVE).exists()
