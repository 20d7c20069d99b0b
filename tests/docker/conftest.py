"""One real Docker engine for these tests; skipped aloud where none can be started.

Where they are asked for by name (make test-docker), that is a failure.
"""

import os
from collections.abc import Iterator
from typing import NoReturn

import pytest

from runner.until import TimedOut
from tests.docker.engine import Engine, cannot


@pytest.fixture(scope="session")
def running() -> Iterator[Engine]:
    """The engine, started once."""
    if why := cannot():
        _not_here(why)
    engine = Engine()
    try:
        try:
            engine.ready()
        except (RuntimeError, AssertionError, TimedOut) as error:
            _not_here(str(error))
        yield engine
    finally:
        engine.close()


@pytest.fixture
def engine(running: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """The engine without any container; whoever asks `docker` asks this one."""
    monkeypatch.setenv("DOCKER_HOST", running.host)
    yield running
    running.empty()


def _not_here(why: str) -> NoReturn:
    said = f"no Docker engine can be started here: {why}"
    if os.environ.get("RUNNER_TEST_DOCKER"):
        pytest.exit(said, returncode=1)
    pytest.skip(said)
