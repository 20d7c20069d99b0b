"""Commands of ours beside the daemon: their answer is read, and what hangs is ended."""

from pathlib import Path

import pytest

from runner.schedule.children import Children, Done
from runner.until import RealClock
from tests.servers import soon


@pytest.fixture
def children(tmp_path: Path) -> Children:
    """Children of a box with nothing on it."""
    config = tmp_path / "runner.toml"
    config.write_text(f'timezone = "UTC"\nstate_dir = "{tmp_path}/state"\n')
    (tmp_path / "spool").mkdir()
    return Children(lambda: config, tmp_path / "spool", RealClock())


def end_of(children: Children, name: str) -> Done:
    """How it ended."""
    return soon(lambda: children.ended().get(name), within=30)


def test_the_answer_of_a_child_is_read(children: Children) -> None:
    """And nothing of it is left lying about."""
    assert children.start("a", ["list", "--json"], within=30) is None
    assert list(children.fds())
    done = end_of(children, "a")
    assert done.code == 0
    assert "jobs" in done.answer
    assert list(children.room.iterdir()) == []
    assert list(children.fds()) == []


def test_one_of_a_name_runs_at_a_time(children: Children) -> None:
    """A look that takes long is not doubled."""
    children.start("a", ["list"], within=30)
    assert children.start("a", ["list"], within=30) == "it runs already"
    end_of(children, "a")


def test_an_error_of_a_child_is_one_sentence(children: Children) -> None:
    """As the child itself has put it."""
    children.start("a", ["check", "nosuch", "--json"], within=30)
    done = end_of(children, "a")
    assert done.code == 2
    assert "nosuch" in done.error


def test_a_child_that_takes_too_long_is_ended(children: Children) -> None:
    """A look that hangs on a dead mount does not stay."""
    children.start("a", ["serve"], within=3.0)
    done = end_of(children, "a")
    assert done.code is None
    assert done.error == "it took too long and was ended"


def test_a_child_that_cannot_be_started_says_why(children: Children) -> None:
    """No room for its output, say."""
    children.room.rmdir()
    why = children.start("a", ["list"], within=3.0)
    assert why is not None
    assert why.startswith("cannot be started")
