"""The host as this machine tells it: texts, locks, terminals, logs, units, the table of processes."""

import fcntl
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from preflight.box import TIMEOUT
from preflight.linux.box import LinuxBox
from preflight.linux.probe import Lost
from preflight.ports.owner import PortOwner
from preflight.rings import look
from preflight.verdict import State
from tests.preflight.unprivileged import look_as_nobody

EVIL = "evil\nFAIL forged: line\x1b[31m\x07 name"


@pytest.fixture
def box() -> Iterator[LinuxBox]:
    """This machine."""
    with LinuxBox() as here:
        yield here


def tool(directory: Path, name: str, body: str) -> None:
    """A program of this name, first in PATH."""
    path = directory / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


# texts and locks


def test_texts_are_read_whole_or_say_why_not(box: LinuxBox, tmp_path: Path) -> None:
    """One question for all of them, in their order."""
    (tmp_path / "a").write_text("hello\n")
    (tmp_path / "b").write_bytes(b"\xff\x00" * 300_000)
    one, other, gone, place, bad = box.texts(
        [f"{tmp_path}/a", f"{tmp_path}/b", f"{tmp_path}/c", str(tmp_path), "\0"], within=5
    )
    assert one.text == "hello\n"
    assert 0 < len(other.text) <= 1 << 18
    assert (gone.fault, gone.absent) == ("ENOENT", True)
    assert place.fault == "EISDIR"
    assert bad.fault == "EINVAL"


def test_a_text_that_hangs_is_given_up(box: LinuxBox, tmp_path: Path) -> None:
    """Nobody writes into this queue; opening it does not wait, and nothing is read."""
    os.mkfifo(tmp_path / "queue")
    (text,) = box.texts([str(tmp_path / "queue")], within=5)
    assert text.text == ""


def test_a_lock_is_told_with_its_holder(box: LinuxBox, tmp_path: Path) -> None:
    """Without opening the file, which would drop a lock of our own."""
    path = tmp_path / "lock"
    with path.open("w") as file:
        assert box.locks([str(path)], within=5)[0].pids == ()
        fcntl.lockf(file, fcntl.LOCK_EX)
        held, gone = box.locks([str(path), f"{tmp_path}/none"], within=5)
        assert held.pids == (os.getpid(),)
        assert gone.fault == "ENOENT"


def test_a_package_lock_is_seen_by_nobody_too() -> None:
    """A real unprivileged user reads the same table of locks."""
    code = """
import json
from preflight.linux.box import LinuxBox
from preflight.host.others import OthersAtWork
from preflight.rings import look
with LinuxBox() as box:
    print(json.dumps(look([OthersAtWork()], box).verdicts[0].to_json()))
"""
    said = look_as_nobody(code)
    assert said["state"] in ("pass", "warn", "fail")
    assert "not told" not in said["found"]


# terminals, clock, log


def test_a_terminal_that_is_open_is_seen(box: LinuxBox) -> None:
    """With its owner, and how long nothing happened there."""
    master, slave = os.openpty()
    try:
        name = os.ttyname(slave).removeprefix("/dev/")
        (mine,) = [one for one in box.terminals(within=5) if one.name == name]
        assert mine.uid == os.geteuid()
        assert mine.idle_s < 60
    finally:
        os.close(master)
        os.close(slave)


def test_the_kernels_log_is_read_or_says_why_not(box: LinuxBox) -> None:
    """As root its own buffer; a line of the boot is there as long as the buffer is whole."""
    log = box.kernel_log("Linux version", within=5)
    if os.geteuid() == 0 and log.whole and not log.fault:
        assert len(log.lines) == 1
        assert log.lines[0].startswith("0 Linux version")
    assert box.kernel_log("no line has these words in it", within=5).lines == ()


JOURNAL = "No journal files were opened due to insufficient permissions."


@pytest.mark.parametrize(
    ("body", "fault", "lines"),
    [
        (f"echo '{JOURNAL}' >&2; exit 1", "EACCES", 0),
        ("echo 'Hint: You are currently not seeing messages from other users' >&2; echo x", "EACCES", 0),
        ("echo '-- No entries --'; exit 1", "", 0),
        ("echo 'NVRM: Xid (PCI:0000:65:00): 79, gone'", "", 1),
        ("echo 'No journal files were found.' >&2", "EPERM", 0),
    ],
)  # fmt: skip
def test_the_journal_has_what_the_kernels_buffer_hides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, fault: str, lines: int
) -> None:
    """Who may not read /dev/kmsg asks journalctl, whose hints mean that something is kept from us."""

    class Kept(LinuxBox):
        def _child(self, verb: str, *, within: float, **more: object) -> dict[str, object]:
            del verb, within, more
            return {"fault": "EPERM", "said": "Operation not permitted"}

    tool(tmp_path, "journalctl", body)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with Kept() as box:
        log = box.kernel_log("NVRM", within=10)
    assert (log.fault, len(log.lines)) == (fault, lines)


@pytest.mark.parametrize(
    ("body", "lines", "whole"),
    [
        ("echo '-- No entries --'; exit 1", (), False),
        ("echo 'NVRM: Xid 79'", ("NVRM: Xid 79",), False),
        ("echo 'Linux version 6.1'", (), True),
        ("echo 'Linux version 6.1'; echo 'NVRM: Xid 79'", ("NVRM: Xid 79",), True),
    ],
)
def test_a_journal_that_does_not_reach_back_to_the_boot_is_not_whole(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    body: str,
    lines: tuple[str, ...],
    *,
    whole: bool,
) -> None:
    """One that is empty finds nothing, and that must not look like a healthy card."""

    class Overwritten(LinuxBox):
        def _child(self, verb: str, *, within: float, **more: object) -> dict[str, object]:
            del verb, within, more
            return {"lines": [], "whole": False}

    tool(tmp_path, "journalctl", body)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with Overwritten() as box:
        log = box.kernel_log("NVRM", within=10)
    assert (log.fault, log.lines, log.whole) == ("", lines, whole)


# units


def test_units_are_asked_for_all_at_once(
    box: LinuxBox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One question, one answer a unit; a property told twice keeps both of its lines."""
    body = (
        f'echo "$@" >> {tmp_path}/asked\n'
        "printf 'Id=a.service\\nActiveState=active\\nEnvironmentFiles=/a (ignore_errors=no)\\n"
        "EnvironmentFiles=/b (ignore_errors=yes)\\n\\nId=a.socket\\nActiveState=inactive\\n'"
    )
    tool(tmp_path, "systemctl", body)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with box.moment():
        service, socket = box.units(["a.service", "a.socket"], scope="user", within=5)
        again, _ = box.units(["a.service", "a.socket"], scope="user", within=5)
    assert service.get("ActiveState") == "active"
    assert len(service.get("EnvironmentFiles").splitlines()) == 2
    assert socket.get("ActiveState") == "inactive"
    assert again == service
    (asked,) = (tmp_path / "asked").read_text().splitlines()
    assert asked.startswith("--user --no-ask-password show -p Id,LoadState,")
    assert asked.endswith("-- a.service a.socket")
    assert box.units([], scope="system", within=5) == ()


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("echo 'Failed to connect to bus' >&2; exit 1", "EIO"),
        ("echo Id=only-one", "EIO"),
        ("exec sleep 60", TIMEOUT),
    ],
)
def test_a_systemd_that_does_not_tell_is_a_fault_of_each_unit(
    box: LinuxBox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, fault: str
) -> None:
    """P8: no property is made up."""
    tool(tmp_path, "systemctl", body)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    units = box.units(["a.service", "b.service"], scope="system", within=1)
    assert [unit.fault for unit in units] == [fault, fault]
    assert all(unit.said and not unit.get("ActiveState") for unit in units)


# processes


def test_a_moment_is_one_and_the_next_is_another(box: LinuxBox) -> None:
    """Within a ring tables are read once; outside of it every question is a new look."""
    with box.moment():
        before = box.table()
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
            assert box.table() is before
            assert child.pid not in {one.pid for one in before}
            with box.moment():  # one within another is the same
                assert box.table() is before
            child.communicate(b"\n")
    own = {one.pid: one for one in box.table()}[os.getpid()]
    assert own.ppid == os.getppid()
    assert own.argv
    assert box.me().line[:2] == (os.getpid(), os.getppid())


def test_hostile_names_are_survived_and_shown_escaped(box: LinuxBox, tmp_path: Path) -> None:
    """A program whose name and arguments forge lines and move the cursor holds the port."""
    code = (
        "import ctypes, socket, sys\n"
        "ctypes.CDLL(None).prctl(15, b'a) R 1\\n\\x1b[2J', 0, 0, 0)\n"
        "held = socket.socket(); held.bind(('127.0.0.1', 0)); held.listen()\n"
        "print(held.getsockname()[1], flush=True); sys.stdin.read()\n"
    )
    (tmp_path / EVIL).write_text(code)
    with subprocess.Popen(
        [sys.executable, EVIL], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as server:
        assert server.stdout is not None
        try:
            port = int(server.stdout.readline())
            seen = {one.pid: one for one in box.table()}[server.pid]
            verdict = look([PortOwner(port=port)], box).verdicts[0]
        finally:
            server.communicate()
    assert seen.comm == "a) R 1\n\x1b[2J"
    assert seen.ppid == os.getpid()
    assert verdict.state is State.FAIL
    for text in (verdict.message(), str(verdict.to_json())):
        assert text.isprintable()
        assert f"pid {server.pid}" in text
    assert r"evil\nFAIL forged" in verdict.message()


def test_processes_that_vanish_while_they_are_read_are_survived(box: LinuxBox) -> None:
    """The table is read again and again while processes come and go."""
    ended = threading.Event()

    def churn() -> None:
        while not ended.is_set():
            subprocess.run(["/bin/true"], check=False)

    worker = threading.Thread(target=churn)
    worker.start()
    try:
        for _ in range(60):
            table = box.table()
            assert os.getpid() in {one.pid for one in table}
            box.gpu_openers()
            box.family(os.getppid())
    finally:
        ended.set()
        worker.join()


def test_a_connection_tells_whether_somebody_answers(box: LinuxBox) -> None:
    """For ports without a listener here; nothing is sent."""
    with ExitStack() as stack:
        held = stack.enter_context(socket.socket())
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        assert not box.answered("127.0.0.1", port, within=1)
        held.listen()
        assert box.answered("127.0.0.1", port, within=1)
        assert box.connections(port) == 0
        stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        assert box.connections(port) == 1


def test_a_reader_that_dies_is_a_fault_of_each_text(
    box: LinuxBox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P8: nothing is made of no answer."""
    monkeypatch.setattr(box, "_reader", Dead())
    assert [text.fault for text in box.texts(["/a", "/b"], within=1)] == ["CRASH", "CRASH"]
    assert box.locks(["/a"], within=1)[0].fault == "CRASH"
    assert box.terminals(within=1) == ()
    assert box.clock(within=1).fault == "CRASH"
    assert not box.answered("127.0.0.1", 1, within=1)


class Dead:
    """A child that is gone."""

    def ask(self, question: object, *, within: float) -> dict[str, object]:
        """No answer, and why."""
        del question, within
        raise Lost("CRASH", "it died of SIGSEGV")

    def close(self) -> None:
        """It has ended already."""
