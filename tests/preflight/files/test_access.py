"""May another user read what it is started from: by modes, access lists, and for real."""

import os
import shutil
import stat
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from preflight.box import TIMEOUT, Readable
from preflight.files.access import MayRead
from preflight.linux.box import LinuxBox
from preflight.linux.reader_access import Entry, access_list, allowed
from preflight.rings import look
from preflight.verdict import State, Verdict
from tests.fakes import FakeBox
from tests.preflight.unprivileged import NOBODY, look_as_nobody

OWNER, GROUP = 1000, 100


@pytest.fixture(scope="module")
def box() -> Iterator[LinuxBox]:
    """This machine."""
    with LinuxBox() as here:
        yield here


def ask(box: FakeBox | LinuxBox, *paths: Path | str, uid: int = NOBODY, **more: Any) -> Verdict:
    """The answer about these files, for a user."""
    check = MayRead(service="llm", paths=tuple(map(str, paths)), uid=uid, **more)
    return look([check], box).verdicts[0]


def test_what_the_user_may_read_passes() -> None:
    """Each path was walked."""
    verdict = ask(FakeBox(), "/m/a.gguf", "/m/b.gguf")
    assert verdict.state is State.PASS
    assert verdict.found == f"uid {NOBODY} may read all 2"


def test_what_keeps_the_user_out_is_named() -> None:
    """The directory, its mode and its owner: what somebody has to change."""
    kept = Readable("/m/b.gguf", may=False, blocked="/m (drwx------ anna)")
    verdict = ask(FakeBox(kept_out={"/m/b.gguf": kept}), "/m/a.gguf", "/m/b.gguf")
    assert verdict.state is State.FAIL
    assert "may not read /m/b.gguf: /m (drwx------ anna) keeps it out" in verdict.found


@pytest.mark.parametrize("fault", ["EACCES", TIMEOUT])
def test_what_cannot_be_walked_is_unknown(fault: str) -> None:
    """Not readable, as far as anybody knows; and never accepted, since a restart depends on it."""
    box = FakeBox(kept_out={"/m/a": Readable("/m/a", fault=fault, said="denied")})
    verdict = ask(box, "/m/a")
    assert verdict.state is State.UNKNOWN
    check = MayRead(service="llm", paths=("/m/a",), uid=1)
    assert look([check], box, accept={"file.access": "I know"}).passed is None


def test_a_file_that_only_a_group_lets_in_is_a_warning() -> None:
    """A membership is changed by somebody who thinks of something else."""
    lent = Readable("/m/b.gguf", may=True, group="models")
    verdict = ask(FakeBox(kept_out={"/m/b.gguf": lent}), "/m/a.gguf", "/m/b.gguf")
    assert verdict.state is State.WARN
    assert "may read /m/b.gguf only by group models, which may change" in verdict.found


def test_a_missing_file_is_left_to_the_check_that_looks_for_it() -> None:
    """Told once."""
    gone = Readable("/m/a", fault="ENOENT", said="No such file")
    assert ask(FakeBox(kept_out={"/m/a": gone}), "/m/a", "/m/b").state is State.PASS


# as the kernel decides it


def seen(mode: int) -> os.stat_result:
    """A file of OWNER and GROUP with this mode."""
    return os.stat_result((stat.S_IFREG | mode, 0, 0, 0, OWNER, GROUP, 0, 0, 0, 0))


MODES = [
    (0o400, OWNER, set(), True),
    (0o044, OWNER, {GROUP}, False),  # the owner's own bits count, whatever others may
    (0o040, 7, {GROUP}, True),
    (0o004, 7, {GROUP}, False),  # and so do the group's
    (0o004, 7, set(), True),
    (0o000, 0, set(), True),
]


@pytest.mark.parametrize(("mode", "uid", "groups", "may"), MODES)
def test_modes_are_read_as_the_kernel_reads_them(
    mode: int, uid: int, groups: set[int], may: bool
) -> None:
    """The first class that fits decides, and no other is asked."""
    assert allowed(4, uid, groups, seen(mode), []) is may


LISTED = [
    # somebody named, and a mask that may take it away again
    ([Entry(0x02, 4, 7), Entry(0x10, 7, 0)], 7, set(), True),
    ([Entry(0x02, 4, 7), Entry(0x10, 1, 0)], 7, set(), False),
    ([Entry(0x02, 0, 7), Entry(0x20, 4, 0)], 7, set(), False),
    ([Entry(0x08, 4, 55), Entry(0x10, 7, 0)], 7, {55}, True),
    ([Entry(0x08, 0, 55), Entry(0x08, 4, 56)], 7, {55, 56}, True),
    ([Entry(0x08, 0, 55), Entry(0x20, 4, 0)], 7, {55}, False),
    ([Entry(0x01, 4, 0), Entry(0x10, 0, 0)], OWNER, set(), True),
]


@pytest.mark.parametrize(("entries", "uid", "groups", "may"), LISTED)
def test_access_lists_are_read_as_the_kernel_reads_them(
    entries: list[Entry], uid: int, groups: set[int], may: bool
) -> None:
    """acl(5): the owner, a named user, any group that grants, all others."""
    assert allowed(4, uid, groups, seen(0o000), entries) is may


@pytest.mark.parametrize("raw", [b"", b"\x02", b"\x02\0\0\0", b"\x02\0\0\0\x01", bytes(1000)])
def test_a_broken_access_list_is_survived(raw: bytes) -> None:
    """Whatever a file system hands out."""
    assert all(isinstance(one, Entry) for one in access_list(raw))


def test_an_access_list_is_read_from_its_bytes() -> None:
    """Version 2, then tag, permission and id of each entry."""
    raw = struct.pack("<I", 2) + struct.pack("<HHI", 0x02, 4, 1001)
    assert access_list(raw) == [Entry(0x02, 4, 1001)]


# for real: root makes the files, and the user nobody really tries


@pytest.fixture
def room(open_room: Path) -> Path:
    """A directory that everybody may enter."""
    return open_room


def test_the_answer_is_what_really_happens(box: LinuxBox, room: Path) -> None:
    """Every mode of a directory and a file, tried by a real unprivileged user."""
    if os.geteuid() != 0:
        pytest.skip("only root can look as another user")
    paths = []
    for number, (directory, file) in enumerate(
        [(0o755, 0o644), (0o755, 0o600), (0o711, 0o604), (0o700, 0o644), (0o744, 0o644)]
    ):
        inner = room / str(number)
        inner.mkdir()
        (inner / "model.gguf").write_bytes(b"GGUF")
        (inner / "model.gguf").chmod(file)
        inner.chmod(directory)
        paths.append(inner / "model.gguf")
    (room / "link").symlink_to(paths[3])
    paths.append(room / "link")
    really = look_as_nobody(
        "import json, os, sys\n"
        "print(json.dumps([os.access(path, os.R_OK) for path in sys.argv[1:]]))",
        *map(str, paths),
    )
    told = box.readable(list(map(str, paths)), uid=NOBODY, pid=None, within=10)
    assert [one.may for one in told] == really == [True, False, True, False, False, False]
    assert str(paths[3].parent) in told[3].blocked


def test_a_real_access_list_lets_a_named_user_in(box: LinuxBox, room: Path) -> None:
    """Where the tools and the file system have them."""
    setfacl = shutil.which("setfacl")
    path = room / "model.gguf"
    path.write_bytes(b"GGUF")
    path.chmod(0o600)
    if setfacl is None:
        entries = [(1, 6, 0xFFFFFFFF), (2, 4, NOBODY), (4, 0, 0xFFFFFFFF), (16, 4, 0xFFFFFFFF)]
        entries.append((32, 0, 0xFFFFFFFF))
        raw = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *one) for one in entries)
        try:
            os.setxattr(path, "system.posix_acl_access", raw)
        except OSError as error:
            pytest.skip(f"no access lists here: {error}")
    elif subprocess.run([setfacl, "-m", f"u:{NOBODY}:r", path], check=False).returncode:
        pytest.skip("no access lists on this file system")
    (told,) = box.readable([str(path)], uid=NOBODY, pid=None, within=10)
    assert told.may is True
    assert ask(box, path).state is State.PASS


def test_the_groups_of_a_running_process_count(box: LinuxBox, room: Path) -> None:
    """Those of the user database may be older or newer than what really runs."""
    path = room / "model.gguf"
    path.write_bytes(b"GGUF")
    path.chmod(0o040)
    (told,) = box.readable([str(path)], uid=4242, pid=os.getpid(), within=10)
    assert told.may is (path.stat().st_gid in {os.getegid(), *os.getgroups()})
    (unknown,) = box.readable([str(path)], uid=4242, pid=None, within=10)
    assert unknown.may is False


def test_a_group_beside_its_own_is_named_where_nothing_else_lets_a_process_in(
    box: LinuxBox, room: Path
) -> None:
    """A directory or a file; its own group, its own bits and those of others need no membership."""
    setpriv = shutil.which("setpriv")
    if os.geteuid() != 0 or setpriv is None:
        pytest.skip("another user with groups of its own needs root and setpriv")
    paths = []
    for number, (directory, file, group) in enumerate(
        [(0o750, 0o644, 4343), (0o755, 0o640, 4343), (0o755, 0o640, 4242), (0o755, 0o644, 4343)]
    ):
        inner = room / str(number)
        inner.mkdir()
        (inner / "model.gguf").write_bytes(b"GGUF")
        for place, mode in ((inner, directory), (inner / "model.gguf", file)):
            os.chown(place, 0, group)
            place.chmod(mode)
        paths.append(str(inner / "model.gguf"))
    who = [setpriv, "--reuid=4242", "--regid=4242", "--groups=4141,4343"]
    with subprocess.Popen(
        [*who, "sh", "-c", "echo up; exec cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == b"up\n"
            told = box.readable(paths, uid=4242, pid=child.pid, within=10)
        finally:
            child.kill()
    assert [one.may for one in told] == [True] * 4
    assert [one.group for one in told] == ["gid 4343", "gid 4343", "", ""]
