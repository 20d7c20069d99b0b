"""Behind a port may be a container's proxy, systemd itself, or a proxy in front of production."""

import pytest

from preflight.ports.owner import ExpectedOwner
from preflight.verdict import State
from tests.fakes import FakeBox, a_process, listens
from tests.preflight.ports.test_owner import LLM, SERVER, ask, with_rows


def test_a_proxy_of_docker_says_for_whom_it_listens() -> None:
    """The owner is docker-proxy; a person has to talk to the container's owner."""
    proxy = a_process(
        900, "/usr/bin/docker-proxy", "-proto", "tcp", "-host-ip", "0.0.0.0", "-host-port", "8080",  # noqa: S104 - read, not bound
        "-container-ip", "172.17.0.2", "-container-port", "80", unit="docker.service",
    )  # fmt: skip
    found = ask(with_rows(listens(8080, proxy))).found
    assert found == "held by pid 900 docker-proxy for the container at 172.17.0.2, port 80"
    rootless = a_process(901, "/usr/lib/podman/rootlessport")
    assert "for a rootless container" in ask(with_rows(listens(8080, rootless))).found


def test_systemd_beside_its_service_is_no_stranger() -> None:
    """Socket activation: systemd keeps a copy of the socket that it handed over."""
    systemd = a_process(1, "/sbin/init", uid=0, user="root")
    verdict = ask(with_rows(listens(8080, systemd, SERVER)), expect=LLM)
    assert verdict.state is State.PASS
    assert "pid 100 llama-server" in verdict.found


@pytest.mark.parametrize(
    "manager",
    [a_process(1, "/sbin/init"), a_process(812, "/lib/systemd/systemd", "--user", user="anna")],
)
def test_systemd_alone_on_productions_port_would_start_it(manager: object) -> None:
    """Even to ask whether it is well would: nobody asks."""
    verdict = ask(with_rows(listens(8080, manager)), expect=LLM)
    assert verdict.state is State.FAIL
    assert "held by systemd for a socket unit: whoever connects starts llm" in verdict.found
    assert "systemctl list-sockets" in verdict.remedy


def test_production_in_a_network_of_its_own_is_told() -> None:
    """A container on a bridge without a published port: nobody listens here."""
    inside = a_process(300, "llama-server", unit="docker container abababababab")
    box = FakeBox(rows_elsewhere=[listens(8080, inside)])
    verdict = ask(box, expect=LLM)
    assert verdict.state is State.WARN
    assert "in another network pid 300 llama-server [docker container abababababab] does" in (
        verdict.found
    )


def test_a_proxy_in_front_is_told_for_what_it_is() -> None:
    """The public port is nginx's; production is the port behind it."""
    nginx = a_process(80, "nginx:", "master", "process")
    verdict = ask(with_rows(listens(8080, nginx)), expect=LLM)
    assert verdict.state is State.FAIL
    assert "name the port of the server behind it" in verdict.remedy


def test_whoever_listens_in_place_of_a_plain_process_is_named() -> None:
    """Its supervisor knows it by its command: none runs, so this is somebody else, or not as configured."""
    told = ExpectedOwner(name="llm", told=True)
    verdict = ask(with_rows(listens(8080, SERVER)), expect=told)
    assert verdict.state is State.FAIL
    assert "held by pid 100 llama-server" in verdict.found
    assert "if it is llm, its command is not as configured" in verdict.remedy
    assert ask(FakeBox(), expect=told).state is State.WARN
