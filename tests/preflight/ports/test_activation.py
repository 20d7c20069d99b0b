"""What would bring production back while it should be down."""

from typing import Any

import pytest

from preflight.box import Me, Running, Unit
from preflight.ports.activation import Activation
from preflight.rings import look
from preflight.verdict import State, Verdict
from tests.fakes import UID, FakeBox, a_process
from tests.fakes_host import a_unit

UNIT = {"kind": "systemd", "unit": "llama.service", "scope": "system"}
PROCESS = {"kind": "process", "argv": ["/opt/s"]}
COMMAND = {"kind": "command", "start": ["/opt/up"], "stop": ["/opt/down"], "status": ["/opt/is"]}


def ask(box: FakeBox, supervisor: dict[str, Any]) -> Verdict:
    """The answer about one service."""
    recipe = {"name": "llm", "supervisor": supervisor, "identity": {"pid": 100, "uid": UID}}
    return look([Activation(recipe=recipe)], box).verdicts[0]


def living(parent: Running | None = None, **facts: Any) -> FakeBox:
    """A box on which production runs as pid 100, started by this parent."""
    box = FakeBox()
    box.processes[100] = a_process(100, "/opt/s", **facts)
    init = Running(1, 0, "S", "systemd", ("/sbin/init",))
    above = parent or init
    box.all_processes = [init, above, Running(100, above.pid, "S", "s", ("/opt/s",))]
    return box


# systemd


def test_a_unit_without_restarts_stays_down() -> None:
    """Nothing to say."""
    assert ask(FakeBox().has_units(a_unit()), UNIT).state is State.PASS


def test_a_unit_that_restarts_is_stopped_through_its_manager() -> None:
    """Case: killed, it would be back in three seconds; stopped through systemd it is not."""
    verdict = ask(FakeBox().has_units(a_unit(Restart="always")), UNIT)
    assert verdict.state is State.WARN
    assert "Restart=always; it is stopped through systemd" in verdict.found


@pytest.mark.parametrize(
    ("socket", "service", "state"),
    [
        ({"ActiveState": "active"}, {}, State.FAIL),
        ({"ActiveState": "inactive"}, {}, State.PASS),
        (
            {"ActiveState": "active", "PartOf": "llama.service"},
            {"Requires": "llama.socket sysinit.target"},
            State.PASS,
        ),
        ({"ActiveState": "active", "PartOf": "llama.service"}, {}, State.FAIL),
        ({"ActiveState": "active"}, {"Requires": "llama.socket"}, State.FAIL),
    ],
)
def test_a_socket_unit_starts_it_for_the_first_client(
    socket: dict[str, str], service: dict[str, str], state: State
) -> None:
    """Unless the socket stops and starts with its service."""
    box = FakeBox().has_units(
        a_unit(TriggeredBy="llama.socket", **service), a_unit("llama.socket", **socket)
    )
    verdict = ask(box, UNIT)
    assert verdict.state is state, verdict.message()
    if state is State.FAIL:
        assert "llama.socket starts it again as soon as a client connects" in verdict.found
        assert "PartOf=llama.service" in verdict.remedy


def test_a_timer_that_may_start_it_is_a_warning() -> None:
    """Whether it does so in this night is not known here."""
    box = FakeBox().has_units(a_unit(TriggeredBy="llama.timer"), a_unit("llama.timer"))
    verdict = ask(box, UNIT)
    assert verdict.state is State.WARN
    assert "llama.timer may start it meanwhile" in verdict.found


def test_a_systemd_that_does_not_tell_is_unknown_and_may_be_accepted() -> None:
    """It is about the stop, not about the way back."""
    box = FakeBox().has_units(Unit("llama.service", fault="EIO", said="Failed to connect to bus"))
    verdict = ask(box, UNIT)
    assert verdict.state is State.UNKNOWN
    assert "systemd does not tell about llama.service: Failed to connect" in verdict.found
    assert Activation(recipe={"name": "llm", "supervisor": UNIT}).acceptable


# plain processes


@pytest.mark.parametrize(
    ("restart", "state"), [("always", State.FAIL), ("on-failure", State.FAIL), ("no", State.WARN)]
)
def test_a_process_that_lives_in_a_unit_is_revived_by_it(restart: str, state: State) -> None:
    """Case: stopped by a signal, it is there again: the remedy names the unit."""
    box = living(unit="llama.service", cgroup="/system.slice/llama.service")
    verdict = ask(box.has_units(a_unit(Restart=restart)), PROCESS)
    assert verdict.state is state
    assert 'unit = "llama.service"' in verdict.remedy


def test_a_process_in_a_container_is_revived_by_its_engine() -> None:
    """restart: always."""
    verdict = ask(living(unit="docker container abababababab"), PROCESS)
    assert verdict.state is State.FAIL
    assert "docker container abababababab, whose engine may start it again" in verdict.found
    assert ask(living(unit="docker container abababababab"), COMMAND).state is State.PASS


def test_a_process_in_our_own_unit_is_no_finding() -> None:
    """Started by the demo, or from the same login."""
    box = living(unit="demo.service")
    box.who = Me(UID, "runner", "/demo.service", "demo.service")
    assert ask(box, PROCESS).state is State.PASS


@pytest.mark.parametrize(
    ("parent", "state", "said"),
    [
        (Running(50, 1, "S", "llama-swap", ("/opt/llama-swap", "--config", "c")), State.FAIL, "llama-swap"),
        (Running(50, 1, "S", "supervisord", ("/usr/bin/python3", "/usr/bin/supervisord")), State.FAIL, "supervisord"),
        (Running(50, 1, "S", "python3", ("python3", "supervisor.py")), State.WARN, "supervisor.py"),
        (Running(50, 1, "S", "bash", ("bash", "run-forever.sh")), State.WARN, "run-forever.sh"),
        (Running(50, 1, "S", "bash", ("bash", "-c", "while :; do s; done")), State.WARN, "while"),
        (Running(50, 1, "S", "bash", ("-bash",)), State.PASS, ""),
        (Running(50, 1, "S", "bash", ("bash", "-i")), State.PASS, ""),
        (Running(50, 1, "S", "tmux: server", ("tmux", "new")), State.PASS, ""),
        (Running(50, 1, "S", "systemd", ("/lib/systemd/systemd", "--user")), State.PASS, ""),
    ],
)  # fmt: skip
def test_a_parent_may_be_waiting_to_start_it_again(
    parent: Running, state: State, said: str
) -> None:
    """Known supervisors refuse, unknown programs are named, logins and terminals are not."""
    verdict = ask(living(parent), PROCESS)
    assert verdict.state is state, verdict.message()
    assert said in verdict.found


def test_our_own_ancestors_start_nothing_again() -> None:
    """The demo, or a test, has started both."""
    box = living(Running(50, 1, "S", "python3", ("python3", "demo.py")))
    box.who = Me(UID, "runner", None, None, (99, 50, 1))
    assert ask(box, PROCESS).state is State.PASS


# commands


def test_commands_that_name_the_unit_go_through_it() -> None:
    """What keeps it alive is told to stop."""
    box = living(unit="llama.service").has_units(a_unit(Restart="always"))
    through = {**COMMAND, "stop": ["sudo", "-n", "systemctl", "stop", "llama"]}
    assert ask(box, through).state is State.PASS
    verdict = ask(box, COMMAND)
    assert verdict.state is State.WARN
    assert "starts it again (Restart=always)" in verdict.found


def test_a_service_that_is_not_there_has_nobody_who_revives_it() -> None:
    """prod.identity says that it is down."""
    assert ask(FakeBox(), PROCESS).state is State.PASS
