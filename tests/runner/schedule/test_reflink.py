"""Pins on file systems that share extents: a reflink where a hard link is refused, never a copy."""

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

NOBODY = 65534
MIB = 1 << 20
CALL = """
import os, sys
from pathlib import Path
from runner.schedule import pins
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
try:
    made = pins.make(sys.argv[1], "job:night", Path("/proc"), room=Path(sys.argv[2]))
except pins.CannotPin as error:
    print("refused:", error.message)
else:
    print(made.how, made.pin)
"""


def mounted(kind: str, room: Path) -> Path:
    """A small file system of this kind in a file, mounted; skips, and says what is missing."""
    if os.geteuid() != 0:
        pytest.skip("reflinks were not tried: mounting a file system needs root")
    make = shutil.which(f"mkfs.{kind}", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if make is None:
        pytest.skip(
            f"reflinks were not tried: mkfs.{kind} is not installed (btrfs-progs, xfsprogs)"
        )
    image, place = room / f"{kind}.img", room / kind
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(320 * MIB)
    subprocess.run([make, "-q", str(image)], check=True, capture_output=True)
    mount = ["mount", "-o", "loop", str(image), str(place)]
    ran = subprocess.run(mount, check=False, capture_output=True, text=True)
    if ran.returncode != 0:
        pytest.skip(f"reflinks were not tried: {kind} cannot be mounted here: {ran.stderr.strip()}")
    return place


def unmount(place: Path) -> None:
    """Take it away again."""
    away = ["umount", str(place)]
    subprocess.run(away, check=True)


@pytest.fixture(params=["btrfs", "xfs"])
def disk(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A disk with reflinks that every user may pass through, which pytest's own room is not."""
    with tempfile.TemporaryDirectory() as room:
        Path(room).chmod(0o755)
        place = mounted(request.param, Path(room))
        try:
            place.chmod(0o755)
            yield place
        finally:
            unmount(place)


@pytest.fixture
def model(disk: Path) -> Path:
    """Another user's model of 8 MiB, which everybody may read and only root may link."""
    path = disk / "models" / "model.gguf"
    path.parent.mkdir()
    path.write_bytes(b"GGUF" + os.urandom(8 * MIB))
    path.chmod(0o644)
    if Path("/proc/sys/fs/protected_hardlinks").read_text().strip() != "1":
        pytest.skip("reflinks were not tried: this machine lets anybody link anything")
    return path


@pytest.fixture
def room(disk: Path) -> Path:
    """Where nobody may keep pins."""
    path = disk / "kept"
    path.mkdir()
    os.chown(path, NOBODY, NOBODY)
    return path


def as_nobody(model: Path, room: Path) -> tuple[str, Path]:
    """Pin a file as a user who may not link it: how it was kept, and where."""
    ran = subprocess.run(
        [sys.executable, "-I", "-c", CALL, str(model), str(room)],
        capture_output=True,
        text=True,
        check=True,
    )
    how, _, pin = ran.stdout.strip().rpartition(" ")
    return how, Path(pin)


def used(disk: Path) -> int:
    """Bytes of a disk that are taken, once everything is written."""
    os.sync()
    found = os.statvfs(disk)
    return (found.f_blocks - found.f_bfree) * found.f_frsize


def row(made: pins.Made) -> dict[str, object]:
    """A pin as the journal holds it."""
    fields = {name: getattr(made, name) for name in made.__dataclass_fields__}
    return {**fields, "owner": "service:llm", "since": 0.0, "by": "anna"}


def made_of(model: Path, pin: Path) -> pins.Made:
    """What `make` gave back to somebody else's process."""
    found = pin.stat()
    return pins.Made(
        str(model), str(pin), "reflink", found.st_ino, found.st_size, found.st_mtime_ns
    )


def test_where_a_link_is_refused_the_bytes_are_shared(disk: Path, model: Path, room: Path) -> None:
    """Another user's file: no hard link, and no copy either: the disk is as full as before."""
    before = used(disk)
    how, pin = as_nobody(model, room)
    assert how == "reflink"
    assert pin.read_bytes() == model.read_bytes()
    assert (pin.stat().st_ino, pin.stat().st_uid) != (model.stat().st_ino, 0)
    assert pin.stat().st_mtime_ns == model.stat().st_mtime_ns
    assert used(disk) - before < MIB


def test_it_survives_deleting_and_even_overwriting(model: Path, room: Path) -> None:
    """What a hard link cannot: the pin is a file of its own."""
    content = model.read_bytes()
    _, pin = as_nobody(model, room)
    made = made_of(model, pin)
    assert pins.stands(row(made))["said"] == "its file is there"
    with model.open("r+b") as file:
        file.write(b"else")
    assert pins.stands(row(made))["said"] == "the file at its path is not what was pinned now"
    model.unlink()
    assert pin.read_bytes() == content
    with LinuxBox() as box:
        check = Pinned(owner="night", pins=pins.as_checks([row(made)]))
        assert check.look(box).state is State.PASS


def test_pinning_again_keeps_what_is_kept(model: Path, room: Path) -> None:
    """The second time there is a pin of that name; it is there at every moment, and whole."""
    as_nobody(model, room)
    how, pin = as_nobody(model, room)
    assert how == "reflink"
    assert pin.read_bytes() == model.read_bytes()
    assert [one.name for one in pin.parent.iterdir()] == ["model.gguf"]


def test_nobody_reads_through_a_pin_what_he_could_not_read_before(disk: Path, model: Path) -> None:
    """The mode and, for root, the owner come along."""
    model.chmod(0o640)
    os.chown(model, 1, 2)
    target = disk / "clone"
    pins._reflink(str(model), target)
    found = target.stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (1, 2, 0o640)


def test_a_restore_puts_a_reflink_back(model: Path, room: Path) -> None:
    """Production gets the bytes under its own path."""
    content = model.read_bytes()
    _, pin = as_nobody(model, room)
    made = made_of(model, pin)
    model.unlink()
    asked = [{"path": made.path, "pin": made.pin, "size": made.size}]
    assert list(put_back(asked)) == [f"{model} was gone; its pinned bytes were put back"]
    assert model.read_bytes() == content


def test_between_subvolumes_the_bytes_are_shared(tmp_path: Path) -> None:
    """btrfs refuses a hard link from one to another as if they were two disks."""
    place = mounted("btrfs", tmp_path)
    try:
        for name in ("models", "kept"):
            create = ["btrfs", "subvolume", "create", str(place / name)]
            subprocess.run(create, check=True, capture_output=True)
        model = place / "models" / "model.gguf"
        model.write_bytes(b"GGUF" + os.urandom(MIB))
        made = pins.make(str(model), "service:llm", Path("/proc"), room=place / "kept")
        assert made.how == "reflink"
        assert Path(made.pin).read_bytes() == model.read_bytes()
        pins.release(row(made))
        assert (place / "kept").is_dir(), "a directory that a person named is not ours to remove"
    finally:
        unmount(place)
