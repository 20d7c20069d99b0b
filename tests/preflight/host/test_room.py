"""The host: room on disk, a state directory of our own, programs that run."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from preflight.box import TIMEOUT, Disk, FileFact, Me, Ran
from preflight.check import Check
from preflight.files.recorded import Record
from preflight.host.room import Binary, DiskSpace, StateDir, over_the_network
from preflight.linux.box import LinuxBox
from preflight.rings import look
from preflight.verdict import State, Verdict
from tests.fakes import FakeBox, a_directory, a_file, a_program
from tests.preflight.unprivileged import look_as_nobody

DIRECTORY = "/var/lib/runner"
SERVER = "/opt/llama/llama-server"


@pytest.fixture(scope="module")
def box() -> Iterator[LinuxBox]:
    """This machine."""
    with LinuxBox() as here:
        yield here


def ask(box: FakeBox | LinuxBox, check: Check) -> Verdict:
    """One answer."""
    return look([check], box).verdicts[0]


def disk(**facts: object) -> FakeBox:
    """A box whose state directory lies on this disk."""
    box = FakeBox().has(a_directory(DIRECTORY))
    fact = {"path": DIRECTORY, "kind": "ext4", "free_mib": 100_000, "written": True, **facts}
    box.disks[DIRECTORY] = Disk(**fact)
    return box


@pytest.mark.parametrize(
    ("facts", "state", "said"),
    [
        ({"free_mib": 5000}, State.PASS, "4.9 GiB free"),
        ({"free_mib": 3000}, State.WARN, "less than twice"),
        ({"free_mib": 1999}, State.FAIL, "2.0 GiB free"),
        ({"free_inodes": 3}, State.FAIL, "only 3 more files"),
        ({"free_inodes": None}, State.PASS, "free"),
        ({"writing": "Disk quota exceeded"}, State.FAIL, "Disk quota exceeded"),
        ({"writing": "Read-only file system"}, State.FAIL, "Read-only file system"),
        ({"fault": TIMEOUT, "said": "no answer within 5 s"}, State.UNKNOWN, "timeout"),
        ({"fault": "EACCES", "said": "Permission denied"}, State.UNKNOWN, "Permission denied"),
        ({"fault": "ENOTDIR", "said": "is no directory"}, State.FAIL, "is no directory"),
    ],
)
def test_room_on_disk(facts: dict[str, object], state: State, said: str) -> None:
    """Bytes, inodes, quota and a read-only mount; the last two show only when one writes."""
    verdict = ask(disk(**facts), DiskSpace(path=DIRECTORY, need_mib=2000))
    assert verdict.state is state
    assert said in verdict.found


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "fuse.sshfs", "fuse.rclone", "9p", "ceph"])
def test_a_state_directory_on_the_network_is_refused(kind: str) -> None:
    """Locks and fsync lie there, and all promises rest on them."""
    verdict = ask(disk(kind=kind), StateDir(path=DIRECTORY))
    assert verdict.state is State.FAIL
    assert kind in verdict.found


@pytest.mark.parametrize(
    "kind", ["ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "fuse.mergerfs"]
)
def test_local_file_systems_are_local(kind: str) -> None:
    """Not every FUSE is a network."""
    assert not over_the_network(kind)


def test_a_state_directory_of_somebody_else_is_refused() -> None:
    """One owner: two users would each keep half of the truth."""
    box = disk()
    box.who = Me(1002, "bob", None, None)
    verdict = ask(box, StateDir(path=DIRECTORY))
    assert verdict.state is State.FAIL
    assert "belongs to uid 1000, and this is bob" in verdict.found


def test_a_state_directory_that_is_a_file_or_cannot_be_written_is_refused() -> None:
    """Both are found before anything needs them."""
    assert ask(FakeBox().has(a_file(DIRECTORY)), StateDir(path=DIRECTORY)).state is State.FAIL
    assert ask(disk(writing="No space left"), StateDir(path=DIRECTORY)).state is State.FAIL
    assert (
        ask(disk(fault=TIMEOUT, said="no answer"), StateDir(path=DIRECTORY)).state is State.UNKNOWN
    )


def test_a_real_directory_is_written_to_and_left_as_it_was(box: LinuxBox, tmp_path: Path) -> None:
    """The probe has no name: whatever happens to us, it leaves nothing behind."""
    assert ask(box, StateDir(path=str(tmp_path))).state is State.PASS
    assert ask(box, DiskSpace(path=str(tmp_path), need_mib=1)).state is State.PASS
    assert list(tmp_path.iterdir()) == []
    (fact,) = [box.disk(str(tmp_path), within=5, write=True)]
    assert fact.written
    assert fact.kind


def test_a_directory_that_is_not_there_yet_is_judged_by_the_one_above(
    box: LinuxBox, tmp_path: Path
) -> None:
    """It can be made: nothing is written above it to prove that."""
    verdict = ask(box, StateDir(path=f"{tmp_path}/state/runner"))
    assert verdict.state is State.PASS
    assert "not there yet" in verdict.found
    assert not box.disk(f"{tmp_path}/state/runner", within=5, write=True).written
    (tmp_path / "file").touch()
    below = ask(box, StateDir(path=f"{tmp_path}/file"))
    assert below.state is State.FAIL


def test_a_full_disk_is_found_by_writing(box: LinuxBox) -> None:
    """/dev/full and friends cannot stand for a disk; /proc can: nothing can be created there."""
    verdict = ask(box, DiskSpace(path="/proc/self", need_mib=0))
    assert verdict.state is State.FAIL


def test_in_a_directory_of_others_nothing_is_written() -> None:
    """Where production logs, room is looked at and no file is tried."""
    tried: list[bool] = []

    class Watching(FakeBox):
        def disk(self, path: str, *, within: float, write: bool) -> Disk:
            tried.append(write)
            return super().disk(path, within=within, write=write)

    assert ask(Watching(), DiskSpace(path="/var/log/llm", own=False)).state is State.PASS
    assert ask(Watching(), DiskSpace(path=DIRECTORY)).state is State.PASS
    assert tried == [False, True]


def test_a_directory_of_root_cannot_be_written_by_nobody(open_room: Path) -> None:
    """As a real unprivileged user."""
    code = """
import json, sys
from preflight.linux.box import LinuxBox
from preflight.host.room import DiskSpace, StateDir
from preflight.rings import look
with LinuxBox() as box:
    checks = [StateDir(path=sys.argv[1]), StateDir(path=sys.argv[1] + "/new"), DiskSpace(path=sys.argv[1])]
    print(json.dumps([look([check], box).verdicts[0].to_json() for check in checks]))
"""
    owned, below, space = look_as_nobody(code, str(open_room))
    assert "belongs to uid 0" in owned["found"]
    assert (below["state"], space["state"]) == ("fail", "fail")
    assert "cannot be written to" in below["found"]


# programs


@pytest.mark.parametrize(
    ("fact", "said"),
    [
        (None, "does not exist"),
        (a_file(SERVER), "is not executable"),
        (a_directory(SERVER, executable=True), "is a directory"),
    ],
)
def test_what_is_no_program(fact: FileFact | None, said: str) -> None:
    """Found by stat; nothing is run."""
    box = FakeBox().has(*([fact] if fact else []))
    verdict = ask(box, Binary(path=SERVER))
    assert verdict.state is State.FAIL
    assert said in verdict.found
    assert box.ran == []


@pytest.mark.parametrize(
    ("ran", "state", "said"),
    [
        (Ran(0, "", "load_backend: CPU\nversion: 10434 (abc)"), State.PASS, "version: 10434 (abc)"),
        (Ran(0, "tool 1.0\n"), State.PASS, "tool 1.0"),
        (Ran(0), State.PASS, "runs"),
        (
            Ran(127, "", "error while loading shared libraries: libcudart.so.12: cannot open"),
            State.FAIL,
            "libcudart.so.12",
        ),
        (Ran(-4), State.FAIL, "ended with -4"),
        (Ran(None, fault="ENOEXEC", said="Exec format error"), State.FAIL, "Exec format error"),
        (Ran(None, fault=TIMEOUT), State.UNKNOWN, "within 10 s (timeout)"),
    ],
)
def test_a_program_answers_with_its_version(ran: Ran, state: State, said: str) -> None:
    """A missing library or a wrong machine shows before midnight."""
    box = FakeBox().has(a_program(SERVER))
    box.commands[SERVER, "--version"] = ran
    verdict = ask(box, Binary(path=SERVER))
    assert verdict.state is state
    assert said in verdict.found


@pytest.mark.parametrize(
    ("before", "state"),
    [({}, State.PASS), ({SERVER: "version: 2"}, State.PASS), ({SERVER: "version: 1"}, State.WARN)],
)
def test_another_build_than_last_time_is_a_warning(before: dict[str, str], state: State) -> None:
    """What was proven was proven with the old one; what it says now is what is recorded next."""
    box = FakeBox().has(a_program(SERVER))
    box.commands[SERVER, "--version"] = Ran(0, "", "version: 2\n")
    verdict = ask(box, Binary(path=SERVER, record=Record(job="night", at=1.0, programs=before)))
    assert verdict.state is state
    assert verdict.evidence == ("--version: version: 2",)
    if state is State.WARN:
        assert verdict.found == "version: 2; was version: 1 when the job last passed"


def test_an_unknown_program_is_not_run() -> None:
    """A script could take --version for an order to begin."""
    box = FakeBox().has(a_program(SERVER))
    assert ask(box, Binary(path=SERVER, version=False)).state is State.PASS
    assert box.ran == []


def test_a_program_that_may_be_run_but_not_read_is_one() -> None:
    """Mode 0711 is enough."""
    box = FakeBox().has(a_program(SERVER, read_fault="EACCES"))
    assert ask(box, Binary(path=SERVER, version=False)).state is State.PASS


def test_real_programs(box: LinuxBox, tmp_path: Path) -> None:
    """One that runs, one for another machine, one whose interpreter is gone, one that hangs."""
    script = tmp_path / "server"
    assert ask(box, Binary(path="/bin/sh", version=False)).state is State.PASS
    cases = {
        "#!/bin/sh\necho version 7 >&2": (State.PASS, "version 7"),
        "#!/nonexistent/interpreter": (State.FAIL, "cannot be started"),
        "\x7fELF not for here": (State.FAIL, "cannot be started"),
        "#!/bin/sh\necho $ANSWER; exit $ANSWER": (State.FAIL, "ended with 42: 42"),
        "#!/bin/sh\nexec sleep 1000": (State.UNKNOWN, "did not answer --version within 0.3 s"),
    }
    for body, (state, said) in cases.items():
        script.write_text(body)
        script.chmod(0o755)
        check = Binary(path=str(script), env={"ANSWER": "42"})
        if "sleep" in body:
            check = check.model_copy(update={"deadline_s": 0.3})
        verdict = ask(box, check)
        assert verdict.state is state, verdict.message()
        assert said in verdict.found


def test_the_one_who_looks_is_told(box: LinuxBox) -> None:
    """Who we are, for every sentence about permissions."""
    assert box.me().uid == os.geteuid()
    assert box.me().user
