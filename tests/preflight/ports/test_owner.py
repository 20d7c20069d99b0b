"""Who listens on a port: nobody, ours, somebody else, or somebody we may not see."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from preflight.linux import proc
from preflight.linux.box import LinuxBox
from preflight.ports.addresses import overlaps
from preflight.ports.owner import ExpectedOwner, PortOwner
from preflight.rings import look
from preflight.verdict import State, Verdict
from tests.fakes import FakeBox, a_process, listens
from tests.preflight.unprivileged import look_as_nobody

LLM = ExpectedOwner(name="llm", idents=((100, 1000),))
SERVER = a_process(100, "/opt/llama/llama-server", "--port", "8080", uid=1000, user="llm")
STRANGER = a_process(4711, "python3", "/home/anna/stranger.py", unit="proxy.service")


@pytest.fixture(scope="module")
def box() -> Iterator[LinuxBox]:
    """This machine."""
    with LinuxBox() as here:
        yield here


def ask(box: FakeBox | LinuxBox, port: int = 8080, **more: object) -> Verdict:
    """The answer about one port."""
    return look([PortOwner.model_validate({"port": port, **more})], box).verdicts[0]


def with_rows(*rows: object, **more: object) -> FakeBox:
    """A box with these listeners; its processes are those that hold them."""
    box = FakeBox(rows=list(rows), **more)
    box.processes = {proc.pid: proc for row in box.rows for proc in row.owners}
    return box


ADDRESSES = ("0.0.0.0", "127.0.0.1", "127.0.0.2", "::", "::1")  # noqa: S104 - judged, never bound
# row: held, column: wanted; as Linux has it without SO_REUSEPORT, [::] taken as dual stack
MEETS = {
    "0.0.0.0": "xxxx.",  # noqa: S104 - judged, never bound
    "127.0.0.1": "xx.x.",
    "127.0.0.2": "x.xx.",
    "::": "xxxxx",
    "::1": "...xx",
}


@pytest.mark.parametrize("held", ADDRESSES)
@pytest.mark.parametrize("wanted", ADDRESSES)
def test_addresses_meet_as_linux_has_it(held: str, wanted: str) -> None:
    """Two servers can have the same port side by side, or one on all addresses blocks the other."""
    assert overlaps(held, wanted) is (MEETS[held][ADDRESSES.index(wanted)] == "x")


def test_odd_addresses_are_taken_for_what_they_are() -> None:
    """A mapped IPv4 address is IPv4; a name could lead anywhere."""
    assert overlaps("::ffff:127.0.0.1", "127.0.0.1")
    assert not overlaps("::ffff:127.0.0.2", "127.0.0.1")
    assert overlaps("127.0.0.1", "my-box")
    assert overlaps("[::1]", "::1")


def test_a_port_that_nobody_holds_is_free() -> None:
    """Nothing else is asked for."""
    assert ask(FakeBox()).state is State.PASS


def test_a_strangers_listener_is_named_with_all_that_is_known() -> None:
    """Case: another session's proxy answers 200 to everything on the job's port."""
    verdict = ask(with_rows(listens(8080, STRANGER)))
    assert verdict.state is State.FAIL
    assert "held by pid 4711 python3 /home/anna/stranger.py" in verdict.found
    assert verdict.who.startswith("anna, pid 4711, since ")
    assert verdict.who.endswith("proxy.service")
    assert "anna" in verdict.remedy


def test_production_holds_its_own_port() -> None:
    """By identity: the pid and its start time."""
    verdict = ask(with_rows(listens(8080, SERVER)), expect=LLM)
    assert verdict.state is State.PASS
    assert "held by llm" in verdict.found


def test_a_stranger_on_productions_port_is_no_production() -> None:
    """Case: production went, and somebody else took its port."""
    verdict = ask(with_rows(listens(8080, STRANGER)), expect=LLM)
    assert verdict.state is State.FAIL
    assert "4711" in verdict.found
    assert verdict.wanted == "llm"


def test_a_pid_that_was_used_again_is_a_stranger() -> None:
    """The same number with another start time is somebody else."""
    again = a_process(100, "python3", "-m", "http.server", start=99_999)
    assert ask(with_rows(listens(8080, again)), expect=LLM).state is State.FAIL


def test_a_worker_of_production_is_production() -> None:
    """The process that listens need not be the one that the pidfile names."""
    worker = a_process(101, "uvicorn", "worker")
    box = with_rows(listens(8080, worker))
    box.processes[100] = SERVER
    box.families[100] = {101}
    assert ask(box, expect=LLM).state is State.PASS


@pytest.mark.parametrize(
    ("expect", "owner"),
    [
        (ExpectedOwner(name="llm", unit="llama.service"), a_process(5, "x", unit="llama.service")),
        (ExpectedOwner(name="llm", cgroup="/system.slice/llama.service"), a_process(5, "x")),
        (ExpectedOwner(name="llm", binary="/opt/llama"), a_process(5, "/opt/llama", "-m")),
        (ExpectedOwner(name="llm", binary="/opt/llama"), a_process(5, "x", exe="/opt/llama")),
    ],
)
def test_any_mark_of_a_service_is_enough(expect: ExpectedOwner, owner: object) -> None:
    """Unit, cgroup or program: what the supervisor knows differs."""
    box = with_rows(listens(8080, owner))
    box.cgroups["/system.slice/llama.service"] = {5}
    assert ask(box, expect=expect).state is State.PASS


def test_a_service_known_by_answers_only_is_a_warning() -> None:
    """A command supervisor names no process: what it answers decides, one ring later."""
    verdict = ask(with_rows(listens(8080, STRANGER)), expect=ExpectedOwner(name="llm"))
    assert verdict.state is State.WARN
    assert "does not say which process" in verdict.found
    assert ask(with_rows(listens(8080)), expect=ExpectedOwner(name="llm")).state is State.UNKNOWN


def test_nobody_on_productions_port_is_a_warning() -> None:
    """Whether production may be down is judged where production is asked."""
    assert ask(FakeBox(), expect=LLM).state is State.WARN


def test_an_owner_who_is_not_visible_is_unknown_for_production() -> None:
    """P8: a listener whose process cannot be seen is neither ours nor foreign."""
    row = listens(8080, likely=(STRANGER,))
    verdict = ask(with_rows(row), expect=LLM)
    assert verdict.state is State.UNKNOWN
    assert "uid 1001 (anna), likely pid 4711 python3" in verdict.found
    assert "CAP_SYS_PTRACE" in verdict.remedy


def test_a_port_held_by_the_invisible_is_still_not_free() -> None:
    """Whoever it is, the candidate could not listen there."""
    assert ask(with_rows(listens(8080))).state is State.FAIL


def test_two_servers_that_share_a_port_are_both_named() -> None:
    """SO_REUSEPORT: requests are split between them, with no error anywhere."""
    rows = [listens(8080, SERVER), listens(8080, STRANGER, inode=2)]
    verdict = ask(with_rows(*rows), expect=LLM)
    assert verdict.state is State.FAIL
    assert "2 servers share it" in verdict.found
    assert any("4711" in said for said in verdict.evidence)
    assert any("pid 100" in said for said in verdict.evidence)
    unknown = ask(with_rows(*rows), expect=ExpectedOwner(name="llm"))
    assert unknown.state is State.FAIL


def test_the_same_port_on_another_address_is_a_warning() -> None:
    """It does not stop ours; a name like localhost may lead to it."""
    verdict = ask(with_rows(listens(8080, STRANGER, address="::1")))
    assert verdict.state is State.WARN
    assert "::1" in verdict.found


def test_tables_that_cannot_be_read_are_unknown() -> None:
    """P8: a hardened kernel hides them, which is not the same as an empty port."""
    assert ask(FakeBox(sockets_fault="EACCES")).state is State.UNKNOWN


# the same on real sockets


def listening(stack: ExitStack, host: str = "127.0.0.1", port: int = 0, **options: int) -> int:
    """A real listener for as long as the stack; its port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    held = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
    if options.get("share"):
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    held.bind((host, port))
    held.listen()
    return int(held.getsockname()[1])


def ourselves() -> ExpectedOwner:
    """This test, as a service."""
    own = proc.ident(os.getpid())
    assert own is not None
    return ExpectedOwner(name="tests", idents=((own.pid, own.start),))


def test_a_real_listener_is_found_with_its_process(box: LinuxBox) -> None:
    """Our own socket: pid, command and start time are all visible."""
    with ExitStack() as stack:
        port = listening(stack)
        verdict = ask(box, port)
        assert verdict.state is State.FAIL
        assert f"pid {os.getpid()}" in verdict.found
        assert "since" in verdict.who
        assert ask(box, port, expect=ourselves()).state is State.PASS
    assert ask(box, port).state is State.PASS


def test_a_bound_port_that_does_not_listen_is_free(box: LinuxBox) -> None:
    """Only LISTEN is ownership: connections and waiting ones are not."""
    with ExitStack() as stack:
        port = listening(stack)
        client = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        assert client.getsockname()[1] != port
        assert ask(box, client.getsockname()[1]).state is State.PASS


def test_every_holder_of_a_shared_socket_is_seen(box: LinuxBox) -> None:
    """A child that inherited the listener holds the port as much as its parent does."""
    with ExitStack() as stack:
        held = stack.enter_context(socket.socket())
        held.bind(("127.0.0.1", 0))
        held.listen()
        code = "import sys; print('up', flush=True); sys.stdin.read()"
        child = stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-c", code],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=[held.fileno()],
            )
        )
        assert child.stdout is not None
        child.stdout.readline()
        verdict = ask(box, held.getsockname()[1])
        assert any(f"pid {child.pid} " in said for said in verdict.evidence)
        assert any(f"pid {os.getpid()} " in said for said in verdict.evidence)
        child.communicate()


def test_real_sharers_are_counted(box: LinuxBox) -> None:
    """Two sockets on one address and port, as an old server's SO_REUSEPORT makes them."""
    with ExitStack() as stack:
        port = listening(stack, share=1)
        listening(stack, port=port, share=1)
        assert "2 servers share it" in ask(box, port).found


def test_a_root_listener_looks_unknown_to_nobody() -> None:
    """A real unprivileged user sees the row and its uid, and not the process behind it."""
    code = """
import json, sys
from preflight.linux.box import LinuxBox
from preflight.ports.owner import ExpectedOwner, PortOwner
from preflight.rings import look
with LinuxBox() as box:
    checks = [PortOwner(port=int(sys.argv[1]), expect=ExpectedOwner(name="llm", unit="llama.service"))]
    print(json.dumps(look(checks, box).verdicts[0].to_json()))
"""
    with ExitStack() as stack:
        port = listening(stack)
        said = look_as_nobody(code, str(port))
    assert said["state"] == "unknown"
    assert "uid 0 (root)" in said["found"]
    assert "not visible" in said["found"]


def test_a_user_with_the_ports_number_in_its_command_is_guessed() -> None:
    """Without rights to see the holder, the command line still points at somebody."""
    code = "import socket, sys; s = socket.socket(); s.bind(('127.0.0.1', int(sys.argv[1]))); s.listen(); print('up', flush=True); sys.stdin.read()"
    asking = """
import json, sys
from preflight.linux.box import LinuxBox
with LinuxBox() as box:
    row = box.listeners(int(sys.argv[1])).rows[0]
    print(json.dumps([len(row.owners), [proc.pid for proc in row.likely]]))
"""
    with ExitStack() as stack:
        port = listening(stack)
        stack.pop_all().close()
    with subprocess.Popen(
        [sys.executable, "-c", code, str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as server:
        assert server.stdout is not None
        try:
            server.stdout.readline()
            owners, likely = look_as_nobody(asking, str(port))
        finally:
            server.communicate()
    assert owners == 0
    assert server.pid in likely


@pytest.mark.parametrize(
    ("cgroup", "said"),
    [
        ("/system.slice/llama.service", "llama.service"),
        ("/user.slice/user-1000.slice/user@1000.service/app.slice/x.service", "x.service"),
        ("/user.slice/user-1000.slice/session-3.scope", None),
        (f"/system.slice/docker-{'ab' * 32}.scope", "docker container abababababab"),
        (f"/docker/{'cd' * 32}", "docker container cdcdcdcdcdcd"),
        (f"/machine.slice/libpod-{'12' * 32}.scope", "podman container 121212121212"),
        ("/", None),
        (None, None),
    ],
)
def test_a_cgroup_names_its_unit_or_container(cgroup: str | None, said: str | None) -> None:
    """What the process is part of is what a person has to talk to."""
    assert proc.unit_or_container(cgroup) == said
