"""Fixtures of the runner's tests: a small box, and the guardian that keeps what is brought up."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.recovery.keeper import Keeper
from tests.runner.recovery.site import Site, summoned


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A small box of its own, all of it ended with the test."""
    made = Site(tmp_path)
    try:
        yield made
    finally:
        made.end()


@pytest.fixture
def keeper(site: Site) -> Iterator[Keeper]:
    """A live guardian."""
    with summoned(site) as made:
        yield made
