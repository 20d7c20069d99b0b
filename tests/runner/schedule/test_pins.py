"""Pins: the bytes survive deleting and renaming, never by a copy, and a missing leave is named."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from preflight.files.pins import Pinned
from preflight.linux.box import LinuxBox
from preflight.verdict import State
from runner.recovery.pins import put_back
from runner.schedule import pins


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model of two shards; the first of them."""
    room = tmp_path / "models" / "mtp"
    room.mkdir(parents=True)
    for n in (1, 2):
        (room / f"model-0000{n}-of-00002.gguf").write_bytes(b"GGUF" + bytes([n]) * 100)
    return room / "model-00001-of-00002.gguf"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state directory on the same disk."""
    path = tmp_path / "state"
    path.mkdir()
    return path


@pytest.fixture
def open_room() -> Iterator[Path]:
    """A directory that every user may pass through, which pytest's own is not."""
    with tempfile.TemporaryDirectory() as room:
        Path(room).chmod(0o755)
        yield Path(room)


def row(made: pins.Made, owner: str = "job:night") -> dict[str, object]:
    """A pin as the journal holds it."""
    fields = {name: getattr(made, name) for name in made.__dataclass_fields__}
    return {**fields, "owner": owner, "since": 0.0, "by": "anna"}


def pinned(*made: pins.Made) -> Pinned:
    """The check of these pins."""
    return Pinned(owner="night", pins=pins.as_checks(row(one) for one in made))


def state_of(check: Pinned) -> State:
    """How it comes out on this machine."""
    with LinuxBox() as box:
        return check.look(box).state


def test_a_pin_survives_deleting_and_renaming(model: Path, state: Path) -> None:
    """The incident: the draft is deleted, and the bytes are still there."""
    made = pins.make(str(model), "job:night", state)
    model.unlink()
    assert Path(made.pin).read_bytes()[:4] == b"GGUF"
    assert made.how == "hard link"
    assert state_of(pinned(made)) is State.PASS
    stands = pins.stands(row(made))
    assert stands["state"] == "kept"
    assert "its file is gone; only the pin keeps" in stands["said"]


def test_shards_stay_together_under_their_own_names(model: Path, state: Path) -> None:
    """The server derives the others' names from the first."""
    other = model.with_name("model-00002-of-00002.gguf")
    made = [pins.make(str(path), "job:night", state) for path in (model, other)]
    assert {Path(one.pin).parent for one in made} == {Path(made[0].pin).parent}
    assert [Path(one.pin).name for one in made] == [model.name, other.name]


def test_overwriting_is_found_by_the_fingerprint(model: Path, state: Path) -> None:
    """A hard link is the same file: what is written in place changes both."""
    made = pins.make(str(model), "job:night", state)
    with model.open("r+b") as file:
        file.write(b"else")
    assert state_of(pinned(made)) is State.FAIL
    assert pins.stands(row(made))["state"] == "changed"


def test_a_pin_that_is_gone_is_found(model: Path, state: Path) -> None:
    """Somebody has cleaned up there, too."""
    made = pins.make(str(model), "job:night", state)
    Path(made.pin).unlink()
    assert state_of(pinned(made)) is State.FAIL


def test_a_file_behind_a_link_keeps_the_name_it_is_asked_for_by(
    model: Path, state: Path, tmp_path: Path
) -> None:
    """A cache shows its blobs under other names."""
    link = tmp_path / "cache.gguf"
    link.symlink_to(model)
    made = pins.make(str(link), "job:night", state)
    assert Path(made.pin).name == "cache.gguf"
    assert made.inode == model.stat().st_ino


def test_pinning_again_changes_nothing(model: Path, state: Path) -> None:
    """And after the file was replaced it keeps the new one."""
    first = pins.make(str(model), "job:night", state)
    assert pins.make(str(model), "job:night", state) == first
    model.unlink()
    model.write_bytes(b"GGUFnew")
    assert pins.make(str(model), "job:night", state).inode == model.stat().st_ino


def test_it_is_kept_on_the_model_s_own_disk(model: Path) -> None:
    """The state directory is on another one: never below the directory that gets deleted."""
    rooms = list(pins._rooms(str(model), Path("/proc")))
    assert rooms
    assert all(not room.is_relative_to(model.parent) for room in rooms)
    assert all(room.name == pins.NAME for room in rooms)


def test_another_disk_is_refused_and_never_copied_to(model: Path, state: Path) -> None:
    """A silent copy of 20 GB would be no pin."""
    other = Path("/dev/shm")  # noqa: S108 - another file system that every machine has
    if not other.is_dir() or other.stat().st_dev == model.stat().st_dev:
        pytest.skip("there is no other file system here")
    with pytest.raises(pins.CannotPin) as caught:
        pins.make(str(model), "job:night", state, room=other / f"pins-{os.getpid()}")
    assert "on another disk, and a pin is never a copy" in caught.value.message
    assert caught.value.remedy.startswith("name a directory on the disk")
    shutil.rmtree(other / f"pins-{os.getpid()}", ignore_errors=True)


def test_a_missing_leave_is_named(open_room: Path) -> None:
    """Another user's file: the kernel's protected_hardlinks, in words."""
    if os.geteuid() != 0:
        pytest.skip("becoming another user needs root")
    if Path("/proc/sys/fs/protected_hardlinks").read_text().strip() != "1":
        pytest.skip("this machine lets anybody link anything")
    model = open_room / "model.gguf"
    model.write_bytes(b"GGUF")
    model.chmod(0o600)
    room = open_room / "nobody"
    room.mkdir()
    os.chown(room, 65534, 65534)
    code = f"""
import os
from pathlib import Path
from runner.schedule import pins
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
try:
    pins.make({str(model)!r}, "job:night", Path("/proc"), room=Path({str(room)!r}))
except pins.CannotPin as error:
    print(error.message, "->", error.remedy)
"""
    ran = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True
    )
    assert "it belongs to root, and nobody may not link it here -> sudo runner pin" in ran.stdout


def test_released_pins_leave_nothing_behind(model: Path, state: Path) -> None:
    """And never touch the file at its own path."""
    made = pins.make(str(model), "job:night", state)
    pins.release(row(made))
    assert not (state / "pins").exists()
    assert model.exists()
    pins.release(row(made))


def test_a_restore_puts_production_s_file_back(model: Path, state: Path) -> None:
    """The way back is always there: a link to the same bytes, at the same path."""
    made = pins.make(str(model), "service:llm", state)
    inode = model.stat().st_ino
    asked = [{"path": made.path, "pin": made.pin, "size": made.size}]
    assert list(put_back(asked)) == []
    shutil.rmtree(model.parent)
    assert list(put_back(asked)) == [f"{model} was gone; its pinned bytes were put back"]
    assert model.stat().st_ino == inode


def test_a_restore_puts_nothing_over_another_file(model: Path, state: Path) -> None:
    """Somebody's new model stays; a pin that was cut stays away."""
    made = pins.make(str(model), "service:llm", state)
    model.unlink()
    model.write_bytes(b"new")
    asked = [{"path": made.path, "pin": made.pin, "size": made.size}]
    assert list(put_back(asked)) == []
    assert model.read_bytes() == b"new"
    model.unlink()
    Path(made.pin).write_bytes(b"cut")
    assert list(put_back(asked)) == [
        f"{model} is gone, and its pin could not be put back: it is not what was pinned"
    ]
