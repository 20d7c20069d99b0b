"""Who listens: asked by netlink, read from /proc where that is shut, and in other networks too."""

import os
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pytest

from preflight.linux import proc, socket_diag
from preflight.linux.box import LinuxBox
from preflight.ports.addresses import overlaps
from preflight.ports.owner import ExpectedOwner, PortOwner
from preflight.rings import look
from preflight.verdict import State

SERVER = """
import socket, sys
listener = socket.socket()
listener.bind(("127.0.0.1", int(sys.argv[1])))
listener.listen()
print("up", flush=True)
sys.stdin.read()
"""


def listener(stack: ExitStack, host: str, *, only6: bool = False) -> tuple[int, int]:
    """A real listener for as long as the stack: its port and its inode."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    held = stack.enter_context(socket.socket(family))
    if family == socket.AF_INET6:
        held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(only6))
    held.bind((host, 0))
    held.listen()
    return int(held.getsockname()[1]), os.fstat(held.fileno()).st_ino


def test_netlink_and_proc_tell_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ways to the same table: address, port, user and inode of each listener of ours."""
    with ExitStack() as stack:
        ours = [listener(stack, host) for host in ("127.0.0.1", "127.0.0.2", "::1", "::")]
        told = [proc.listening(port) for port, _ in ours]
        # a family that no kernel has: what a service's sandbox makes of netlink
        monkeypatch.setattr(socket, "AF_NETLINK", 9999)
        read = [proc.listening(port) for port, _ in ours]
    assert [[replace(row, only6=False) for row in rows] for rows in told] == read
    assert [(row.port, row.inode) for (row,) in told] == ours
    assert all(row.uid == os.geteuid() for (row,) in told)


def test_an_ipv6_listener_says_whether_it_takes_ipv4() -> None:
    """[::] blocks 127.0.0.1 when it is dual stack, and only then."""
    with ExitStack() as stack, LinuxBox() as box:
        dual, _ = listener(stack, "::")
        only, _ = listener(stack, "::", only6=True)
        assert [row.only6 for row in proc.listening(dual)] == [False]
        assert [row.only6 for row in proc.listening(only)] == [True]
        first, second = look([PortOwner(port=dual), PortOwner(port=only)], box).verdicts
    assert first.state is State.FAIL
    assert second.state is State.WARN
    assert "another server has the same port on ::" in second.found


def test_an_address_that_leaves_ipv4_alone_meets_ipv6_alone() -> None:
    """The rule behind it."""
    assert not overlaps("::", "127.0.0.1", only6=True)
    assert overlaps("::", "::1", only6=True)
    assert overlaps("::", "some-name", only6=True)


@pytest.mark.parametrize(
    "answer",
    [
        struct.pack("=IHHIIi", 20, 2, 0, 0, 0, -2),  # NLMSG_ERROR: no such file
        struct.pack("=IHHII", 20, 20, 0, 0, 0) + b"\0\0\0\0",  # a socket cut short
        struct.pack("=IHHII", 3, 20, 0, 0, 0),  # a length that would go on for ever
        struct.pack("=IHHII", 16, 20, 0x10, 0, 0),  # the table changed meanwhile
    ],
)
def test_an_answer_that_cannot_be_read_is_no_answer(answer: bytes) -> None:
    """Then the text of /proc is read instead; half a table is never taken for one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with ours, theirs:
        theirs.send(answer)
        with pytest.raises(OSError, match="the kernel"):
            list(socket_diag._answer(ours))


@contextmanager
def in_a_network_of_its_own(port: int) -> Iterator[int]:
    """A server that listens in another network namespace; needs root."""
    unshare, ip = shutil.which("unshare"), shutil.which("ip")
    if os.geteuid() != 0 or unshare is None or ip is None:
        pytest.skip("another network namespace needs root, unshare and ip")
    inner = f'{ip} link set lo up && exec {sys.executable} -c "$0" {port}'
    with subprocess.Popen(
        [unshare, "--net", "sh", "-c", inner, SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as server:
        assert server.stdout is not None
        try:
            if server.stdout.readline() != b"up\n":
                pytest.skip("this machine does not let us make a network namespace")
            yield server.pid
        finally:
            server.communicate()


def test_a_listener_in_another_network_is_seen_and_is_no_conflict() -> None:
    """A container on a bridge has the port inside: free here, and named where production should be."""
    port = 18_743
    with in_a_network_of_its_own(port) as pid, LinuxBox() as box:
        free, owned = look(
            [PortOwner(port=port), PortOwner(port=port, expect=ExpectedOwner(name="llm"))], box
        ).verdicts
    assert free.state is State.PASS
    assert owned.state is State.WARN
    assert f"nobody listens here; in another network pid {pid} python" in owned.found
