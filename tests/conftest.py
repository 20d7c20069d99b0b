"""Fixtures that tests of several rooms share."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.night import Night


@pytest.fixture
def night(tmp_path: Path) -> Iterator[Night]:
    """A box of its own, with nothing on it yet."""
    box = Night(tmp_path / "box")
    try:
        yield box
    finally:
        box.close()


@pytest.fixture
def open_room() -> Iterator[Path]:
    """A directory that every user may enter. Not among pytest's own, which each session closes."""
    room = Path(tempfile.mkdtemp(prefix="runner-test-", dir="/var/tmp"))
    room.chmod(0o755)
    try:
        yield room
    finally:
        shutil.rmtree(room)
