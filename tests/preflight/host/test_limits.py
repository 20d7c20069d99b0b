"""How long a look may take when everything hangs, and how much of a large file it reads."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from preflight.check import Check
from preflight.files.access import MayRead
from preflight.files.exists import FileExists
from preflight.files.recorded import KnownFile, Record
from preflight.files.unchanged import Unchanged, Watched
from preflight.gpu.budget import GpuBudget
from preflight.host.flags import Flags
from preflight.host.room import Binary, DiskSpace, StateDir
from preflight.linux import probe
from preflight.linux.box import LinuxBox
from preflight.models.fit import Load
from preflight.models.roles import Roles
from preflight.models.shards import Shards
from preflight.rings import look
from preflight.verdict import State
from tests.preflight import giants

_HANGS = (sys.executable, "-I", "-S", "-c", "import time\nwhile True: time.sleep(60)")
_SLACK_S = 0.5
"""What it takes to kill a child that hangs, and to start the next one."""


@pytest.fixture
def hung() -> Iterator[LinuxBox]:
    """A machine on which every mount is dead: the child that looks never answers."""
    with LinuxBox() as box:
        box._reader.close()
        box._reader = probe.Helper(_HANGS)
        box._nvml = probe.Helper(_HANGS)
        yield box


def checks(path: str) -> list[Check]:
    """One of each kind that looks at files, with a short deadline."""
    known = Record(job="night", at=0.0, files=(KnownFile(path=path),))
    made: list[Check] = [
        StateDir(path="/state"),
        FileExists(path=path, role="weights", gguf=True, record=known),
        Shards(path="/nfs/big-00001-of-00033.gguf"),
        Unchanged(job="night", files=(Watched(path=path),) * 33, record=known),
        MayRead(service="llm", paths=(path,) * 33, uid=1),
        Roles(model="/nfs/big-00001-of-00033.gguf", draft=path, mmproj=path, mtp=True),
        GpuBudget(loads=(Load(model=path, draft=path),), asked=True),
        DiskSpace(path="/state"),
        Binary(path=path),
    ]
    return [check.model_copy(update={"deadline_s": 0.2}) for check in made]


def test_a_look_never_lasts_longer_than_its_deadlines(hung: LinuxBox) -> None:
    """Every check alone, so that no ring hides another: each is unknown, and none overstays."""
    for check in checks("/nfs/model.gguf"):
        began = time.monotonic()
        (verdict,) = look([check], hung).verdicts
        took = time.monotonic() - began
        assert took < check.deadline_s + _SLACK_S, verdict.message()
        assert verdict.state is State.UNKNOWN, verdict.message()
        assert "timeout" in verdict.found or "answer within" in verdict.found, verdict.message()


def test_a_program_that_hangs_on_help_takes_one_deadline(tmp_path: Path) -> None:
    """It is left alone after that."""
    program = tmp_path / "llama-server"
    program.write_text("#!/bin/sh\nexec tail -f /dev/null\n")
    program.chmod(0o755)
    with LinuxBox() as box:
        check = Flags(program=str(program), flags=(("-c", "1"),), deadline_s=0.3)
        began = time.monotonic()
        (verdict,) = look([check], box).verdicts
        assert time.monotonic() - began < 0.3 + _SLACK_S
        assert verdict.state is State.UNKNOWN


def test_of_a_large_file_only_header_and_samples_are_read(tmp_path: Path) -> None:
    """15 GB of model, looked at by every check that reads it, and recorded."""
    path = giants.write(tmp_path / "model.gguf")
    with LinuxBox() as box:
        assert box.files([str(path)], within=5)
        before = read_by_child(box)
        for check in (
            FileExists(path=str(path), role="weights", gguf=True),
            Shards(path=str(path)),
            Roles(model=str(path), mtp=True, context=200_000),
            GpuBudget(loads=(Load(model=str(path), mtp=True),)),
        ):
            look([check], box)
        header = read_by_child(box) - before
        box.sampled([str(path)], within=10)
        sampled = read_by_child(box) - before - header
    start = 4 << 20
    assert header < 2 * start
    assert sampled < 2 * start + 18 * (64 << 10)
    path.unlink()


def read_by_child(box: LinuxBox) -> int:
    """How many bytes the reading child has read so far."""
    child = box._reader._child
    assert child is not None
    said = Path(f"/proc/{child.pid}/io").read_text()
    return int(said.split("rchar:")[1].split()[0])
