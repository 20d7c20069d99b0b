"""Work in a thread: its answer is fetched, and so is what went wrong in it."""

import threading

import pytest

from runner.background import Background
from runner.until import RealClock, until


def test_an_answer_is_there_when_the_work_is_done() -> None:
    """None is an answer, too."""
    go = threading.Event()
    work = Background(lambda: None if go.wait(30) else "never")
    assert work.answer() is None
    go.set()
    assert until(work.answer, within=30, clock=RealClock()) == (None,)


def test_what_the_work_raised_is_raised_where_its_answer_is_asked_for() -> None:
    """Nothing is lost in a thread."""

    def fails() -> int:
        raise ZeroDivisionError("division")

    work = Background(fails)
    with pytest.raises(ZeroDivisionError, match="division"):
        until(work.answer, within=30, clock=RealClock())
