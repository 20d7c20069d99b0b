"""Real boxes, real servers and the real runner: what the end-to-end tests are made of."""

from pathlib import Path

import pytest

from runner.demo import models, parts
from tests.e2e.night import Night


@pytest.fixture
def serving(night: Night) -> Night:
    """The box with its one service up, and a job whose candidate behaves."""
    night.service()
    night.job()
    night.start()
    return night


@pytest.fixture(scope="session")
def gemma(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small real model, put together once."""
    found = parts.find()
    if found.assemble is None:
        pytest.skip(found.missing)
    path = tmp_path_factory.mktemp("gemma") / "gemma.gguf"
    found.assemble(path)
    return path


@pytest.fixture(scope="session")
def mtp(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ...]:
    """The tiny model with a real MTP layer, in four shards."""
    return models.write("mtp", tmp_path_factory.mktemp("mtp") / "model.gguf", shards=4)
