"""Ports that a container publishes inside the kernel, where no table shows a listener."""

import json

import pytest

from preflight.box import TIMEOUT, Ran, Running
from preflight.ports.containers import Published, publications
from preflight.rings import look
from preflight.verdict import State, Verdict
from tests.fakes import FakeBox, a_process, listens

LIST = ("ps", "--no-trunc", "--format", "{{json .}}")
SHIM = Running(900, 1, "S", "containerd-shim", ("/usr/bin/containerd-shim-runc-v2",))
PROXY = Running(901, 1, "S", "docker-proxy", ("/usr/bin/docker-proxy", "-host-port", "80"))
WEB = {"Names": "web", "Image": "openwebui:1", "Ports": "127.0.0.1:8080->80/tcp, [::]:9000-9002->1-3/tcp"}  # fmt: skip
DENIED = Ran(1, "", "permission denied while trying to connect to the Docker daemon socket")


def ask(box: FakeBox, port: int = 8080, host: str = "127.0.0.1") -> Verdict:
    """The answer about one port that has to be free."""
    return look([Published(port=port, host=host)], box).verdicts[0]


def with_containers(docker: Ran | None = None, *more: Running) -> FakeBox:
    """A box on which containers run, and what `docker ps` says there."""
    box = FakeBox(all_processes=[SHIM, *more])
    if docker is not None:
        box.commands["docker", *LIST] = docker
    return box


def test_a_machine_without_containers_is_asked_nothing() -> None:
    """No engine is started for an answer that the table of processes has."""
    box = FakeBox()
    assert ask(box).state is State.PASS
    assert box.ran == []


def test_a_listener_is_another_checks_business() -> None:
    """port.owner names who it is."""
    box = with_containers(Ran(0, json.dumps(WEB)))
    box.rows = [listens(8080, a_process(5, "x"))]
    assert ask(box).state is State.SKIPPED


@pytest.mark.parametrize(
    ("port", "host", "state"),
    [
        (8080, "127.0.0.1", State.FAIL),
        (8080, "0.0.0.0", State.FAIL),  # noqa: S104 - judged, never bound
        (8080, "127.0.0.2", State.PASS),
        (9001, "127.0.0.1", State.FAIL),
        (9003, "127.0.0.1", State.PASS),
        (80, "127.0.0.1", State.PASS),
    ],
)
def test_a_published_port_is_not_free(port: int, host: str, state: State) -> None:
    """The container and its image are named; spans of ports and addresses count as they overlap."""
    verdict = ask(with_containers(Ran(0, json.dumps(WEB))), port, host)
    assert verdict.state is state
    if state is State.FAIL:
        assert "docker container web (openwebui:1) publishes it" in verdict.found


def test_each_engine_has_its_own_way_to_tell() -> None:
    """podman prints one list with ports as objects; a line of nonsense is passed over."""
    rows = [
        {
            "Names": ["llm", "llm-alias"],
            "Image": "i",
            "Ports": [
                {"host_ip": "", "host_port": 8080, "range": 2, "protocol": "tcp"},
                {"host_ip": "", "host_port": 5353, "protocol": "udp"},
            ],
        },
        {"Id": "abc", "Ports": None},
    ]
    (one,) = publications(Ran(0, "nonsense\n" + json.dumps(rows)))
    assert (one.container, one.first, one.last) == ("llm,llm-alias", 8080, 8081)


def test_an_engine_that_may_not_be_asked_is_unknown() -> None:
    """P8: containers run, and what they publish is not told."""
    verdict = ask(with_containers(DENIED))
    assert verdict.state is State.UNKNOWN
    assert "permission denied" in verdict.found
    assert "docker" in verdict.remedy
    assert ask(with_containers()).state is State.UNKNOWN
    slow = Ran(None, fault=TIMEOUT, said="docker gave no answer within 5 s")
    assert ask(with_containers(slow)).state is State.UNKNOWN


def test_where_published_ports_have_listeners_a_port_without_one_is_free() -> None:
    """docker-proxy stands for each published port, unless the engine was told otherwise."""
    assert ask(with_containers(DENIED, PROXY)).state is State.PASS


def test_a_connection_that_is_taken_without_a_listener_is_somebody() -> None:
    """The last resort, where nobody tells: the kernel hands it on."""
    box = with_containers(DENIED)
    box.takers = {("127.0.0.1", 8080)}
    verdict = ask(box)
    assert verdict.state is State.FAIL
    assert "nobody listens here, and yet a connection is taken" in verdict.found


def test_windows_may_hold_a_port_that_looks_free() -> None:
    """WSL: the other side of the machine has no row in any table of this one."""
    box = FakeBox(paper={"/proc/version": "Linux version 6.6-microsoft-standard-WSL2"})
    assert ask(box).state is State.PASS
    box.takers = {("127.0.0.1", 8080)}
    assert "Windows may hold it" in ask(box).found
