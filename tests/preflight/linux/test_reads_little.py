"""Of a model of many gigabytes only its header and a few windows are ever read."""

import os
from pathlib import Path

import pytest

from preflight.files.exists import FileExists
from preflight.files.recorded import KnownFile, Record
from preflight.files.unchanged import Unchanged, Watched
from preflight.linux import proc
from preflight.linux.box import LinuxBox
from preflight.models.gguf import Header, read_header
from preflight.models.roles import Roles
from preflight.models.shards import Shards
from preflight.rings import look
from tests.preflight import giants

MIB = 1 << 20
WINDOWS = 17 * (64 << 10)
BESIDE = 2 * MIB
"""For what is no model: /proc, the pipes, and one piece of a megabyte too much."""


def bytes_read(before: set[int]) -> int:
    """What the children that were started since have read so far, whatever from."""
    found = 0
    for pid in proc.descendants(os.getpid()) - before:
        try:
            text = Path(f"/proc/{pid}/io").read_text()
        except OSError as error:
            pytest.skip(f"this machine does not tell what a process reads: {error}")
        found += int(text.split("rchar:")[1].split()[0])
    return found


def test_a_model_of_many_gigabytes_is_read_as_far_as_its_header(tmp_path: Path) -> None:
    """Once for all checks together; and 17 windows of it where its metadata has changed."""
    path = giants.write(tmp_path / "giant.gguf")
    header = read_header(str(path))
    assert isinstance(header, Header)
    assert header.file_size > 8 << 30
    job = {"path": str(path), "role": "weights"}
    before = proc.descendants(os.getpid())
    with LinuxBox() as box:
        box.files(["/"], within=10)  # the child is up, with all that it imports
        begun = bytes_read(before)
        look([FileExists(gguf=True, **job), Shards(path=str(path)), Roles(model=str(path))], box)
        headers = bytes_read(before) - begun
        (seen,) = box.sampled([str(path)], within=30)
        sampled = bytes_read(before) - begun - headers
        record = Record(job="night", at=0.0, files=(KnownFile.of(seen, "weights"),))
        os.utime(path, ns=(1, 1))
        unchanged = Unchanged(job="night", files=(Watched(**job),), record=record)
        (verdict,) = look([unchanged], box).verdicts
        changed = bytes_read(before) - begun - headers - sampled
    assert "its content is equal" in verdict.found
    assert header.data_start <= headers <= header.data_start + BESIDE
    assert sampled <= header.data_start + WINDOWS + BESIDE
    assert changed <= 2 * header.data_start + WINDOWS + BESIDE
