"""Files are watched by explicit path: what happens to them is said at once."""

import json
import os
import shutil
import subprocess
import sys
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


def test_a_directory_far_above_that_goes_away_is_told(inputs: Inputs, model: Path) -> None:
    """Renamed as a whole, so that nothing happens in the file's own directory."""
    model.parents[1].rename(model.parents[1].with_name("old-models"))
    assert "models was deleted" in said(inputs)


def test_a_path_without_a_directory_is_told_when_that_appears(
    inputs: Inputs, tmp_path: Path
) -> None:
    """A disk that is not mounted yet; until then the early checks tell."""
    inputs.set([str(tmp_path / "no" / "such" / "place" / "x.gguf")])
    assert str(tmp_path) in inputs.places
    assert inputs.changed() == []
    (tmp_path / "no").mkdir()
    assert "no appeared" in said(inputs)
    inputs.set(["/nonexistent/x.gguf"])
    assert inputs.places == ()
    inputs.set([str(tmp_path / "no" / "bin" / "llama-server")])
    assert inputs.places == (str(tmp_path / "no"),), "what lies above a program is opened all day"


LIMITED = """
import json, sys
from pathlib import Path
from runner.schedule.inputs import Inputs
from tests.servers import soon
def said(inputs):
    return soon(lambda: inputs.changed() or None)
limit, model = Path("/proc/sys/user") / sys.argv[1], Path(sys.argv[2])
before = limit.read_text()
limit.write_text(sys.argv[3])
inputs = Inputs()
inputs.set([str(model)])
(change,) = said(inputs)
soon(lambda: None if inputs.alive else True)
limit.write_text(before)
inputs.set([str(model)])
model.unlink()
print(json.dumps([change.blind, change.what, inputs.alive, list(map(str, said(inputs)))]))
"""


@pytest.mark.parametrize(
    ("limit", "to"), [("max_inotify_watches", "1"), ("max_inotify_instances", "0")]
)
def test_a_limit_of_the_kernel_is_said_and_it_is_tried_again(
    tmp_path: Path, limit: str, to: str
) -> None:
    """Other programs watch whole trees: then nothing would be seen, and nobody would know."""
    unshare = shutil.which("unshare") or "unshare"
    probe = [unshare, "--user", "--map-root-user", "true"]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("the kernel's limit was not tried: this needs user namespaces")
    model = tmp_path / "models" / "draft.gguf"
    model.parent.mkdir()
    model.write_bytes(b"GGUF")
    ran = subprocess.run(
        [*probe[:-1], sys.executable, "-c", LIMITED, limit, str(model), to],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )
    assert ran.returncode == 0, ran
    blind, what, alive, changes = json.loads(ran.stdout)
    assert blind
    assert what.startswith("files cannot be watched: ")
    assert alive
    assert changes == ["draft.gguf was deleted"]
