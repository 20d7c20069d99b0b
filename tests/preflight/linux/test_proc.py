"""/proc as it tells it: processes that are gone, families, sockets, deleted files."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from preflight.linux import proc, processes
from preflight.linux.proc import Ident
from tests.preflight.unprivileged import look_as_nobody

WAITS = "import sys; print('up', flush=True); sys.stdin.read()"

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a process that says "up" and then waits for us; all of them are ended."""
    with ExitStack() as stack:

        def make(code: str = WAITS, *arguments: str, **more: object) -> subprocess.Popen[bytes]:
            child = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", code, *arguments],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    **more,
                )
            )
            stack.callback(child.kill)
            assert child.stdout is not None
            assert child.stdout.readline() == b"up\n"
            return child

        yield make


def test_an_identity_is_one_process_of_one_boot(start: Start) -> None:
    """It holds as long as the process, and never again for the same number."""
    child = start()
    who = proc.ident(child.pid)
    assert who is not None
    assert who.boot == proc.boot_id()
    assert proc.alive(who)
    assert not proc.alive(Ident(who.boot, who.pid, who.start + 1))
    assert not proc.alive(Ident("another-boot", who.pid, who.start))
    child.communicate()
    assert not proc.alive(who)


def test_a_zombie_is_gone(start: Start) -> None:
    """It holds nothing but its number."""
    child = start()
    who = proc.ident(child.pid)
    assert who is not None
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    found = proc.stat(child.pid)
    assert found is not None
    assert found.gone
    assert not proc.alive(who)
    assert proc.ident(child.pid) is None


def test_an_identity_survives_json() -> None:
    """What is written to disk comes back as it was, and anything else does not."""
    who = Ident("b", 42, 7)
    assert Ident.from_json(json.loads(json.dumps(who.to_json()))) == who
    for said in (
        None,
        [],
        {},
        {"boot": "b", "pid": "42", "start": 7},
        {"boot": "b", "pid": 1, "start": 7},
    ):
        assert Ident.from_json(said) is None


def test_a_name_with_brackets_and_spaces_is_read_whole(start: Start) -> None:
    """A process may call itself anything, also something that looks like a row of /proc."""
    name = "a) S 1 (b"
    code = (
        "import ctypes, sys; ctypes.CDLL(None).prctl(15, sys.argv[1].encode()); "
        "print('up', flush=True); sys.stdin.read()"
    )
    child = start(code, name)
    found = proc.stat(child.pid)
    assert found is not None
    assert found.comm == name
    assert found.ppid == os.getpid()


def test_facts_of_a_process_of_ours(start: Start, tmp_path: Path) -> None:
    """Arguments, environment, directory, program, owner and time."""
    child = start(WAITS, "ü", "", env={"A": "1=2", "B": "", "PATH": "/bin"}, cwd=tmp_path)
    assert proc.cmdline(child.pid) == (sys.executable, "-c", WAITS, "ü", "")
    environ = proc.environ(child.pid)
    assert environ is not None
    assert (environ["A"], environ["B"]) == ("1=2", "")
    assert proc.cwd(child.pid) == str(tmp_path)
    assert proc.exe(child.pid) == os.path.realpath(sys.executable)
    assert proc.uid(child.pid) == os.getuid()
    began = proc.started_at(child.pid)
    assert began is not None
    assert abs(began - Path(f"/proc/{child.pid}").stat().st_ctime) < 5


def test_a_process_that_is_gone_is_none_everywhere() -> None:
    """It may vanish between any two questions."""
    nobody = 2**22 + 1
    for ask in (
        proc.stat,
        proc.ident,
        proc.cmdline,
        proc.environ,
        proc.exe,
        proc.cwd,
        proc.uid,
        proc.cgroup,
        proc.started_at,
        proc.mapped_deleted,
    ):
        assert ask(nobody) is None
    assert proc.family(nobody) == set()
    assert proc.descendants(nobody) == set()


def test_a_family_holds_children_and_the_session(start: Start) -> None:
    """Grandchildren, and what detached itself from its parent but not from its session."""
    head = start(_family_code(), start_new_session=True)
    assert head.stdout is not None
    child, orphan = (int(word) for word in head.stdout.readline().split())
    try:
        assert proc.descendants(head.pid) == {child}
        assert proc.family(head.pid) == {head.pid, child, orphan}
        assert os.getpid() not in proc.family(child)
    finally:
        os.killpg(head.pid, signal.SIGKILL)


def _family_code() -> str:
    """A leader with a child, and an orphan whose parent has ended."""
    return (
        "import subprocess, sys\n"
        "child = subprocess.Popen(['sleep', '1000'], stdout=subprocess.DEVNULL)\n"
        "script = 'sleep 1000 >/dev/null 2>&1 & echo $!'\n"
        "said = subprocess.run(['sh', '-c', script], capture_output=True, check=True).stdout\n"
        "print('up', flush=True)\n"
        "print(child.pid, int(said), flush=True)\n"
        "sys.stdin.read()\n"
    )


def test_a_tag_finds_every_process_of_a_run(start: Start) -> None:
    """By the environment, whoever the parent is; a longer id is another run."""
    tagged = start(env={**os.environ, proc.TAG: "r1"})
    start(env={**os.environ, proc.TAG: "r11"})
    start()
    assert proc.tagged("r1") == {tagged.pid}


def test_a_mapped_file_that_was_deleted_is_seen(start: Start, tmp_path: Path) -> None:
    """Deleted or replaced: the process still has the old one, and nobody else does."""
    code = (
        "import mmap, sys\n"
        "with open(sys.argv[1], 'rb') as f: m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)\n"
        "shared = mmap.mmap(-1, 4096)\n"
        "print('up', flush=True); sys.stdin.read()\n"
    )
    model = tmp_path / "a model (1).gguf"
    model.write_bytes(bytes(4096))
    child = start(code, str(model))
    assert proc.mapped_deleted(child.pid) == []
    inode = model.stat().st_ino
    model.unlink()
    model.write_bytes(bytes(4096))
    assert proc.mapped_deleted(child.pid) == [(str(model), inode)]


@pytest.mark.parametrize(
    ("path", "unit"),
    [
        ("/system.slice/llama.service", "llama.service"),
        ("/user.slice/user-1000.slice/user@1000.service/app.slice/x.service", "x.service"),
        ("/system.slice/llama.service/worker", "llama.service"),
        ("/user.slice/user-1000.slice/user@1000.service/app.slice/y.scope", None),
        ("/user.slice/user-1000.slice/session-3.scope", None),
        ("/", None),
        (None, None),
    ],
)
def test_a_cgroup_names_its_service(path: str | None, unit: str | None) -> None:
    """The closest service; the one that holds a whole user session is none."""
    assert proc.unit_of(path) == unit


def test_listeners_and_nothing_else_are_listed() -> None:
    """Both families, with uid, inode and holder; a connection of the same port is none."""
    with ExitStack() as stack:
        four = stack.enter_context(socket.socket())
        four.bind(("127.0.0.1", 0))
        four.listen()
        port = four.getsockname()[1]
        stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        rows = proc.listening(port)
        assert [(row.address, row.port, row.v6) for row in rows] == [("127.0.0.1", port, False)]
        assert rows[0].uid == os.getuid()
        assert proc.holders({rows[0].inode}) == {rows[0].inode: {os.getpid()}}
        assert proc.owners(port) == {os.getpid()}
        assert proc.established(port) == 1
    assert proc.listening(port) == []
    assert proc.owners(port) == set()


def test_a_listener_on_ipv6_has_its_address() -> None:
    """As people write it."""
    with socket.socket(socket.AF_INET6) as six:
        try:
            six.bind(("::1", 0))
        except OSError as error:
            pytest.skip(f"no IPv6 here: {error}")
        six.listen()
        (row,) = proc.listening(six.getsockname()[1])
        assert (row.address, row.v6) == ("::1", True)


def test_somebody_elses_process_is_partly_visible(start: Start) -> None:
    """As the user nobody: the command line yes; environment, directory, maps and sockets no."""
    code = """
import json, sys
from preflight.linux import proc
pid = int(sys.argv[1])
print(json.dumps({
    "cmdline": proc.cmdline(pid), "uid": proc.uid(pid), "start": proc.ident(pid).start,
    "hidden": [proc.environ(pid), proc.cwd(pid), proc.exe(pid), proc.mapped_deleted(pid)],
    "family": pid in proc.family(pid),
}))
"""
    own = proc.ident(start().pid)
    assert own is not None
    said = look_as_nobody(code, str(own.pid))
    assert said["cmdline"]
    assert (said["uid"], said["start"], said["family"]) == (0, own.start, True)
    assert said["hidden"] == [None] * 4


@pytest.mark.parametrize(
    "text",
    [
        "0::/system.slice/llama.service\n",
        "9:name=systemd:/system.slice/llama.service\n0::/system.slice/llama.service\n",
        "9:name=systemd:/\n8:pids:/\n0::/system.slice/llama.service\n",
        "9:name=systemd:/system.slice/llama.service\n0::/\n",
    ],
    ids=["v2", "hybrid", "v2-in-a-container-of-a-hybrid-host", "v1"],
)
def test_the_hierarchy_that_systemd_uses_names_the_service(text: str) -> None:
    """Each is a machine that exists; the other hierarchy has everything in its root."""
    assert processes.cgroup_in(text) == "/system.slice/llama.service"
