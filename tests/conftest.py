"""Fixtures that tests of several rooms share."""

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
