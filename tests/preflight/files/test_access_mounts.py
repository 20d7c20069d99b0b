"""Production in mounts of its own, as in a container or a sandboxed unit: what is its path there?"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from preflight.box import Readable
from preflight.files.access import MayRead
from preflight.linux.box import LinuxBox
from preflight.linux.reader_access import may_read_in
from preflight.linux.reader_base import Mount, mounted_on
from preflight.linux.reader_view import View
from preflight.rings import look
from preflight.verdict import State, Verdict
from tests.fakes import FakeBox, a_process
from tests.preflight.unprivileged import NOBODY, look_as_nobody

Apart = Callable[[str], int]


@pytest.fixture(scope="module")
def box() -> Iterator[LinuxBox]:
    """This machine."""
    with LinuxBox() as here:
        yield here


@pytest.fixture
def models(open_room: Path) -> Path:
    """A directory that everybody may enter, with one model."""
    directory = open_room / "models"
    directory.mkdir()
    (directory / "model.gguf").write_bytes(b"GGUF here")
    return directory


@contextmanager
def _child(*command: str) -> Iterator[int]:
    """A process that has said that it is there, until the block ends."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            if child.stdout.readline().strip() != b"up":
                pytest.skip("this machine allows no mounts of one's own")
            yield child.pid
        finally:
            child.kill()


@pytest.fixture
def apart(models: Path) -> Iterator[Apart]:
    """Start a process in mounts of its own, in which a shell has first done something to DIR."""
    unshare = shutil.which("unshare")
    if os.geteuid() != 0 or unshare is None:
        pytest.skip("mounts of one's own need root and unshare")
    with ExitStack() as all_of_them:

        def start(does: str) -> int:
            script = f"DIR={models}; {does} && echo up && exec cat"
            return all_of_them.enter_context(_child(unshare, "--mount", "sh", "-c", script))

        yield start


def ask(box: FakeBox | LinuxBox, path: Path | str, pid: int, uid: int = NOBODY) -> Verdict:
    """The answer about one file of production that runs as this process."""
    check = MayRead(service="llm", paths=(str(path),), uid=uid, pid=pid)
    return look([check], box).verdicts[0]


def test_the_same_mounts_somewhere_else_are_no_difference(
    box: LinuxBox, models: Path, apart: Apart
) -> None:
    """A namespace alone, and a directory that is mounted there once more."""
    for does in ("true", "mount --bind $DIR $DIR"):
        verdict = ask(box, models / "model.gguf", apart(does))
        assert verdict.state is State.PASS, verdict.message()


def test_a_directory_that_is_not_mounted_there_fails(
    box: LinuxBox, models: Path, apart: Apart
) -> None:
    """An empty file system lies over it, as with TemporaryFileSystem= or a forgotten volume."""
    pid = apart("mount -t tmpfs none $DIR")
    verdict = ask(box, models / "model.gguf", pid)
    assert verdict.state is State.FAIL
    assert "model.gguf is not mounted where it runs" in verdict.found
    assert verdict.who.startswith(f"pid {pid}")


def test_another_file_under_the_same_name_fails_with_both_sizes(
    box: LinuxBox, models: Path, apart: Apart
) -> None:
    """What was looked at here is not what production reads there."""
    pid = apart("mount -t tmpfs none $DIR && printf 'GGUF there, and longer' > $DIR/model.gguf")
    verdict = ask(box, models / "model.gguf", pid)
    assert verdict.state is State.FAIL
    assert "is another file where it runs" in verdict.found
    inode = (models / "model.gguf").stat().st_ino
    assert "(22 bytes, inode" in verdict.found
    assert f"here 9 bytes, inode {inode})" in verdict.found


def test_a_file_that_only_production_sees_fails(box: LinuxBox, models: Path, apart: Apart) -> None:
    """A private /tmp goes with its unit: a restart would not find it, and we never saw it."""
    pid = apart("mount -t tmpfs none $DIR && echo GGUF > $DIR/private.gguf")
    verdict = ask(box, models / "private.gguf", pid)
    assert verdict.state is State.FAIL
    assert "is only where it runs" in verdict.found


def test_a_directory_that_is_closed_there_keeps_its_user_out(
    box: LinuxBox, models: Path, apart: Apart
) -> None:
    """InaccessiblePaths= and ProtectHome= mount a directory that nobody may enter."""
    pid = apart("mount -t tmpfs -o mode=000 none $DIR")
    verdict = ask(box, models / "model.gguf", pid)
    assert verdict.state is State.FAIL
    assert f"{models} (d--------- root) keeps it out" in verdict.found
    assert "/proc/" not in verdict.message()
    assert "not mounted" in ask(box, models / "model.gguf", pid, uid=0).found


def test_a_file_that_is_missing_on_both_sides_is_left_to_the_check_that_looks_for_it(
    box: LinuxBox, models: Path, apart: Apart
) -> None:
    """Told once."""
    pid = apart("mount --bind $DIR $DIR")
    (told,) = box.readable([str(models / "gone.gguf")], uid=0, pid=pid, within=10)
    assert (told.fault, told.there) == ("ENOENT", "")


def test_links_lead_where_they_lead_there(box: LinuxBox, models: Path, tmp_path: Path) -> None:
    """With RootDirectory= an absolute link starts at that root, and `..` does not leave it."""
    if os.geteuid() != 0:
        pytest.skip("only root can change a root directory")
    root = tmp_path / "root"
    inner = root / str(models).lstrip("/")
    inner.mkdir(parents=True)
    (inner / "blob").write_bytes(b"GGUF inside")
    (inner / "model.gguf").symlink_to(f"/../..{models}/blob")
    enter = (
        "import os, sys; os.chroot(sys.argv[1]); os.chdir('/'); print('up', flush=True); "
        "sys.stdin.read()"
    )
    with _child(sys.executable, "-c", enter, str(root)) as pid:
        verdict = ask(box, models / "model.gguf", pid)
        assert f"(11 bytes, inode {(inner / 'blob').stat().st_ino};" in verdict.found
        (inner / "model.gguf").unlink()
        (inner / "model.gguf").symlink_to("model.gguf")
        (told,) = box.readable([str(models / "model.gguf")], uid=0, pid=pid, within=10)
        assert told.fault == "ELOOP"


LOOK = (
    "import json, sys\n"
    "from preflight.linux.box import LinuxBox\n"
    "with LinuxBox() as box:\n"
    "    told = box.readable(sys.argv[2:], uid=0, pid=int(sys.argv[1]), within=10)\n"
    "print(json.dumps([[one.may, one.there] for one in told]))"
)


def test_who_may_not_look_into_it_knows_by_its_mounts(models: Path, apart: Apart) -> None:
    """Another user's process: what lies on the same mounts is the same file, the rest is unknown."""
    beside = models.parent / "beside.gguf"
    beside.write_bytes(b"GGUF")
    pid = apart("mount -t tmpfs none $DIR")
    told = look_as_nobody(LOOK, str(pid), str(beside), str(models / "model.gguf"))
    assert told == [[True, ""], [None, "hidden"]]
    told = look_as_nobody(
        LOOK,
        str(pid),
        str(beside),
        str(models / "model.gguf"),
        rights="+sys_ptrace,+dac_read_search",
    )
    assert told == [[True, ""], [False, "missing"]]  # as the units of a run look
    assert look_as_nobody(LOOK, str(os.getpid()), str(models / "model.gguf")) == [[True, ""]]


def test_a_process_that_is_gone_has_no_mounts(box: LinuxBox, models: Path) -> None:
    """It vanished while we looked; that production is down is told elsewhere."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    (told,) = box.readable([str(models / "model.gguf")], uid=0, pid=gone.pid, within=10)
    assert (told.may, told.there) == (True, "")


def test_a_process_that_goes_while_its_mounts_are_looked_at_is_no_missing_file(
    models: Path,
) -> None:
    """Its root is there when it is asked for, and leads nowhere a moment later."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    asked = {"path": str(models / "model.gguf"), "uid": 0, "pid": gone.pid}
    for view in (View(f"/proc/{gone.pid}/root"), View(hidden=True)):
        assert may_read_in(view, asked)["may"] is True


@pytest.mark.parametrize(
    ("there", "state", "said"),
    [
        ("missing", State.FAIL, "is not mounted where it runs"),
        ("another", State.FAIL, "is another file where it runs"),
        ("only", State.FAIL, "is only where it runs"),
        ("hidden", State.UNKNOWN, "cannot be looked at where it runs"),
    ],
)
def test_each_difference_has_its_words_and_whose_mounts_they_are(
    there: str, state: State, said: str
) -> None:
    """The file, the difference, the container; and never accepted, since a restart depends on it."""
    may = None if state is State.UNKNOWN else False
    fake = FakeBox(
        kept_out={"/m/a.gguf": Readable("/m/a.gguf", may=may, there=there)},
        processes={7: a_process(7, unit="docker container 0123456789ab")},
    )
    verdict = ask(fake, "/m/a.gguf", 7)
    assert verdict.state is state
    assert f"/m/a.gguf {said}" in verdict.message()[:100]
    assert verdict.who == "pid 7, docker container 0123456789ab"
    check = MayRead(service="llm", paths=("/m/a.gguf",), uid=1)
    assert look([check], fake, accept={"file.access": "I know"}).passed is None


def test_a_container_engine_is_not_what_it_starts() -> None:
    """`docker run` is a client: the paths of its command line are those of the container."""
    check = MayRead(service="llm", paths=("/m/a.gguf",), uid=0, pid=7, engine="docker")
    verdict = look([check], FakeBox()).verdicts[0]
    assert verdict.state is State.UNKNOWN
    assert "docker runs it" in verdict.found


def test_the_deepest_and_latest_mount_is_the_one_that_counts() -> None:
    """Mounts lie in each other and over each other."""
    rows = [
        Mount(str(number), "8:1", "/", point, "ext4", "")
        for number, point in enumerate(["/", "/models", "/models/a", "/models"])
    ]
    assert mounted_on("/models/x", rows) == rows[3]
    assert mounted_on("/models/a/x", rows) == rows[2]
    assert mounted_on("/modelsx", rows) == rows[0]
    assert mounted_on("/models", []) is None
