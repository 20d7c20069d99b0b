"""Fixtures of the recovery's tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runner.recovery.site import Site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A small box of its own, all of it ended with the test."""
    made = Site(tmp_path)
    try:
        yield made
    finally:
        made.end()
