"""Files are watched by explicit path: what happens to them is said at once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.schedule.inputs import Inputs
from tests.servers import soon


@pytest.fixture
def inputs() -> Iterator[Inputs]:
    """A watcher of nothing yet."""
    watching = Inputs()
    yield watching
    watching.close()


@pytest.fixture
def model(tmp_path: Path, inputs: Inputs) -> Path:
    """A model file that is watched."""
    path = tmp_path / "models" / "mtp" / "draft.gguf"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"GGUF")
    inputs.set([str(path)])
    return path


def said(inputs: Inputs) -> list[str]:
    """What happens next, in words."""
    return [str(change) for change in soon(lambda: inputs.changed() or None)]


def test_a_deleted_file_is_told(inputs: Inputs, model: Path) -> None:
    """The incident, hours before midnight."""
    model.unlink()
    assert "draft.gguf was deleted" in said(inputs)


def test_a_file_that_is_renamed_away_is_told(inputs: Inputs, model: Path) -> None:
    """It is gone from its path, wherever it went."""
    model.rename(model.with_name("old.gguf"))
    assert "draft.gguf was deleted" in said(inputs)


def test_a_directory_that_goes_away_is_told(inputs: Inputs, model: Path) -> None:
    """With everything in it."""
    model.parent.rename(model.parent.with_name("old"))
    assert "mtp was deleted" in said(inputs)


def test_a_file_that_is_written_to_is_told(inputs: Inputs, model: Path) -> None:
    """Overwritten in place."""
    model.write_bytes(b"other")
    assert "draft.gguf changed" in said(inputs)


def test_other_files_are_not_ours(inputs: Inputs, model: Path) -> None:
    """Somebody works beside it: nothing is said before our own file changes."""
    for n in range(5):
        (model.parent / f"other-{n}").write_text("x")
    model.unlink()
    assert said(inputs) == ["draft.gguf was deleted"]


def test_a_path_without_a_directory_is_no_error(inputs: Inputs, tmp_path: Path) -> None:
    """A disk that is not mounted; the early checks tell."""
    inputs.set([str(tmp_path / "no" / "such" / "place" / "x.gguf")])
    assert inputs.places == ()
    assert inputs.changed() == []
