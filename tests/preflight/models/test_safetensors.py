"""Safetensors files and their index, from headers alone: whole, cut, hollow, and no such file at all."""

import json
import os
import random
import struct
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from preflight.box import TIMEOUT, SafetensorsFact
from preflight.linux.box import LinuxBox
from preflight.models.safetensors import MOST_FILES, Weights, read_index, read_weights
from preflight.models.safetensors_whole import SafetensorsWhole
from preflight.rings import look
from preflight.verdict import State, Verdict
from tests.fakes import FakeBox, a_file, missing


@pytest.fixture(scope="module")
def box() -> Iterator[LinuxBox]:
    """This machine."""
    with LinuxBox() as here:
        yield here


def weights(*sizes: int, **keys: str) -> bytes:
    """A whole file with so many tensors of so many bytes, as the format's own writer makes it."""
    said: dict[str, object] = {"__metadata__": {"format": "pt", **keys}}
    at = 0
    for number, size in enumerate(sizes):
        said[f"layer.{number}"] = {"dtype": "U8", "shape": [size], "data_offsets": [at, at + size]}
        at += size
    header = json.dumps(said).encode()
    header += b" " * (-len(header) % 8)
    return (
        struct.pack("<Q", len(header)) + header + bytes(range(256)) * (at // 256) + bytes(at % 256)
    )


def index(directory: Path, *names: str) -> Path:
    """An index of these files."""
    path = directory / "model.safetensors.index.json"
    tensors = {f"layer.{number}": name for number, name in enumerate(names)}
    path.write_text(json.dumps({"metadata": {"total_size": 7}, "weight_map": tensors}, indent=2))
    return path


def ask(box: FakeBox | LinuxBox, path: Path | str, **more: str) -> Verdict:
    """The answer about one file."""
    check = SafetensorsWhole.model_validate({"path": str(path), **more})
    return look([check], box).verdicts[0]


def test_a_whole_file_passes(box: LinuxBox, tmp_path: Path) -> None:
    """As long as its header says, to the byte."""
    path = tmp_path / "model.safetensors"
    path.write_bytes(weights(1000, 500))
    verdict = ask(box, path)
    assert verdict.state is State.PASS, verdict.message()
    assert verdict.found.startswith("it is whole, 1.")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda raw: raw[:-1], "is short by 1 bytes (has "),
        (lambda raw: raw + b"\0", "is 1 bytes too long"),
        (lambda raw: raw[:60], "its header is cut off (it needs "),
        (lambda raw: raw[:5], "it is 5 bytes long, too short for a header"),
        (lambda raw: raw[:8] + b"[" + raw[9:], "its header is no JSON"),
        (lambda _: b"<!DOCTYPE html><html>", "is a web page"),
        (lambda _: b"version https://git-lfs.github.com/spec/v1\noid sha256:1", "is a Git LFS pointer"),
        (lambda _: b'{"error": "Entry not found"}', "is a JSON text"),
        (lambda _: b"\xff" * 4000, "it has no header of that format"),
    ],
)  # fmt: skip
def test_a_file_that_is_not_whole_fails_with_what_it_is(
    box: LinuxBox, tmp_path: Path, change: object, said: str
) -> None:
    """A download that stopped, a page instead of a model, a file written over a longer one."""
    assert callable(change)
    path = tmp_path / "model.safetensors"
    path.write_bytes(change(weights(1000, 500)))
    verdict = ask(box, path)
    assert verdict.state is State.FAIL
    assert said in verdict.found
    assert verdict.remedy.startswith("fetch it again")


def test_a_file_with_a_hole_fails(box: LinuxBox, tmp_path: Path) -> None:
    """Of the right length, and never written."""
    path = tmp_path / "model.safetensors"
    raw = weights(4 << 20)
    path.write_bytes(raw[: -(4 << 20)])
    with path.open("r+b") as file:
        file.truncate(len(raw))
    if path.stat().st_blocks * 512 >= len(raw):
        pytest.skip("this file system makes no holes")
    verdict = ask(box, path)
    assert verdict.state is State.FAIL
    assert "has a hole of 4.0 MiB" in verdict.found


def test_a_download_that_goes_on_fails(box: LinuxBox, tmp_path: Path) -> None:
    """aria2 reserves all space, and leaves a note beside it."""
    path = tmp_path / "model.safetensors"
    path.write_bytes(weights(1000))
    (tmp_path / "model.safetensors.aria2").write_bytes(b"x")
    assert "is being downloaded" in ask(box, path).found


def test_every_file_of_an_index_is_looked_at(box: LinuxBox, tmp_path: Path) -> None:
    """Each once, however many tensors it holds."""
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    for name in names:
        (tmp_path / name).write_bytes(weights(1000))
    path = index(tmp_path, *names, names[0])
    assert ask(box, path).found.startswith("all 2 files are whole")
    (tmp_path / names[1]).unlink()
    verdict = ask(box, path)
    assert verdict.state is State.FAIL
    assert f"{names[1]} does not exist" in verdict.found
    (tmp_path / names[1]).write_bytes(weights(1000)[:-3])
    (tmp_path / names[0]).write_bytes(b"")
    verdict = ask(box, path)
    assert f"{names[0]} is empty (0 bytes); also wrong: {names[1]}" in verdict.found
    assert len(verdict.evidence) == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<html>", "is a web page"),
        ("{}", "is no index: it names no .safetensors file"),
        ('{"weight_map": {"a": "../../etc/x.safetensors"}}', "is no index"),
        ('{"weight_map": {"a": "x.bin"}}', "is no index"),
        (
            json.dumps({str(n): f"{n}.safetensors" for n in range(MOST_FILES + 1)}),
            f"it names more than {MOST_FILES} files",
        ),
    ],
)
def test_an_index_that_is_none_fails(box: LinuxBox, tmp_path: Path, text: str, said: str) -> None:
    """A page, an empty object, names outside of its directory."""
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(text)
    verdict = ask(box, path)
    assert verdict.state is State.FAIL
    assert said in verdict.found


def test_a_file_that_is_missing_is_left_to_the_check_that_looks_for_it(box: LinuxBox) -> None:
    """Told once."""
    assert ask(box, "/nowhere/model.safetensors").state is State.SKIPPED
    assert ask(box, "/nowhere/model.safetensors.index.json").state is State.SKIPPED


@pytest.mark.parametrize("fault", [TIMEOUT, "EIO"])
def test_a_header_that_cannot_be_read_is_unknown(fault: str) -> None:
    """Of a file, of an index, and of a file that it names."""
    said = SafetensorsFact("", fault=fault, said="no answer")
    for path, bad in (
        ("/m/a.safetensors", "/m/a.safetensors"),
        ("/m/a.safetensors.index.json", "/m/a.safetensors.index.json"),
        ("/m/a.safetensors.index.json", "/m/b.safetensors"),
    ):
        fake = FakeBox().has(a_file(path), a_file("/m/b.safetensors"))
        fake.tensors[path] = SafetensorsFact(path, names=("b.safetensors",))
        fake.tensors[bad] = said
        verdict = ask(fake, path)
        assert verdict.state is State.UNKNOWN, verdict.message()
        assert "cannot be read: no answer" in verdict.found
        check = SafetensorsWhole(path=path, owner="production")
        assert look([check], fake, accept={"file.safetensors": "I know"}).passed is None


@pytest.mark.parametrize(("owner", "state"), [("job", State.FAIL), ("production", State.WARN)])
def test_parts_that_only_production_may_read_are_its_own_business(owner: str, state: State) -> None:
    """They are there, and the user that has to read them is another one."""
    path = "/m/a.safetensors.index.json"
    fake = FakeBox().has(a_file(path), a_file("/m/b.safetensors", read_fault="EACCES"))
    fake.tensors[path] = SafetensorsFact(path, names=("b.safetensors",))
    assert ask(fake, path, owner=owner).state is state


def test_a_change_is_seen_at_the_gate() -> None:
    """Of any file that the index names."""
    path = "/m/a.safetensors.index.json"
    fake = FakeBox().has(a_file(path), a_file("/m/b.safetensors"))
    fake.tensors[path] = SafetensorsFact(path, names=("b.safetensors",))
    before = ask(fake, path).seen
    fake.has(a_file("/m/b.safetensors", inode=99))
    assert ask(fake, path).seen != before
    fake.has(missing("/m/b.safetensors"))
    assert ask(fake, path).state is State.FAIL


# hostile


def test_what_a_text_says_of_offsets_is_not_believed(tmp_path: Path) -> None:
    """Metadata may hold anything, quoted."""
    path = tmp_path / "model.safetensors"
    path.write_bytes(weights(1000, note='{"data_offsets": [0, 99999999]}'))
    with path.open("rb") as file:
        found = read_weights(file, path.stat().st_size)
    assert isinstance(found, Weights)
    assert (found.tensors, found.needed) == (1, path.stat().st_size)


def test_a_long_header_is_read_in_pieces(tmp_path: Path) -> None:
    """Offsets that lie across the border of two pieces are found, and found once."""
    path = tmp_path / "model.safetensors"
    path.write_bytes(weights(*[3] * 60_000))
    tracemalloc.start()
    try:
        with path.open("rb") as file:
            found = read_weights(file, path.stat().st_size)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert isinstance(found, Weights)
    assert (found.tensors, found.needed) == (60_000, path.stat().st_size)
    assert most < 16 << 20


def test_an_index_longer_than_a_piece_is_read_whole(tmp_path: Path) -> None:
    """Tens of thousands of tensors in a few files."""
    names = [f"model-{number:05d}-of-00004.safetensors" for number in range(1, 5)]
    path = index(tmp_path, *(names[number % 4] for number in range(40_000)))
    assert path.stat().st_size > 2 << 20
    assert read_index(str(path)) == tuple(names)


def test_every_cut_and_every_flipped_byte_gives_an_answer(tmp_path: Path) -> None:
    """A verdict, never a crash."""
    raw = weights(300, 200)
    path = tmp_path / "model.safetensors"
    rng = random.Random(4)  # noqa: S311 - the same bytes each time
    broken = [raw[:end] for end in range(len(raw))]
    broken += [
        raw[:at] + bytes([rng.randrange(256)]) + raw[at + 1 :] for at in range(len(raw) - 500)
    ]
    broken += [
        struct.pack("<Q", length) + raw[8:] for length in (0, 1, 1 << 63, sys.maxsize, 100_000_000)
    ]
    for one in broken:
        path.write_bytes(one)
        with path.open("rb") as file:
            found = read_weights(file, len(one))
        assert isinstance(found, (Weights, str))
        if len(one) < len(raw):
            assert isinstance(found, str) or found.needed != len(one)


def test_an_absurd_header_takes_no_memory_and_no_time(tmp_path: Path) -> None:
    """A hundred megabytes of nothing, which are really there."""
    path = tmp_path / "model.safetensors"
    with path.open("wb") as file:
        file.write(struct.pack("<Q", 100_000_000) + b"{")
        file.truncate(100_000_008)
    began = os.times().user
    tracemalloc.start()
    try:
        with path.open("rb") as file:
            found = read_weights(file, path.stat().st_size)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert isinstance(found, (Weights, str))
    assert most < 16 << 20
    assert os.times().user - began < 1.0
