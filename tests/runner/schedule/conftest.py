"""Boxes with a daemon, for the tests that need real processes."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.night import Night
from tests.runner.schedule.served import Served


@pytest.fixture
def night(tmp_path: Path) -> Iterator[Night]:
    """A box with one service that serves, and the job `night`."""
    box = Night(tmp_path / "box")
    try:
        box.service()
        box.job()
        box.start()
        yield box
    finally:
        box.close()


@pytest.fixture
def served(night: Night) -> Iterator[Served]:
    """The same box; its daemon is not started yet."""
    box = Served(night)
    yield box
    box.close()
    if box.log.exists():
        assert "a fault of the runner" not in box.log.read_text()


@pytest.fixture
def open_night() -> Iterator[Night]:
    """A box that every user may pass through, which pytest's own room is not."""
    if os.geteuid() != 0:
        pytest.skip("only root can become other users")
    with tempfile.TemporaryDirectory() as room:
        Path(room).chmod(0o755)
        box = Night(Path(room) / "box")
        box.job()
        yield box
