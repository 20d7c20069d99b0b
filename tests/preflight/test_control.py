"""P6: the permission to start production again is proven before it is stopped."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from preflight.box import TIMEOUT, Ran
from preflight.control import MayControl, systemctl
from preflight.linux import LinuxBox
from preflight.rings import look
from preflight.verdict import State, Verdict
from tests.fakes import UID, FakeBox

UNIT = {"kind": "systemd", "unit": "llama.service", "scope": "system"}
ACTIVE = ("systemctl", "--no-ask-password", "show", "-p", "ActiveState", "llama.service")
START = ("systemctl", "--no-ask-password", "start", "llama.service")


def ask(box: FakeBox | LinuxBox, supervisor: Mapping[str, Any], uid: int | None = UID) -> Verdict:
    """The answer about one supervisor."""
    recipe = {"name": "llm", "supervisor": dict(supervisor), "identity": {"pid": 100, "uid": uid}}
    return look([MayControl(recipe=recipe)], box).verdicts[0]


def unit_is(active: str, start: Ran | None = None) -> FakeBox:
    """A box whose unit is in this state, and answers a start like this."""
    box = FakeBox()
    box.commands[ACTIVE] = Ran(0, f"ActiveState={active}\n")
    if start is not None:
        box.commands[START] = start
    return box


def test_starting_an_active_unit_proves_the_permission() -> None:
    """It does nothing, and needs the same leave as a real start."""
    box = unit_is("active", Ran(0))
    assert ask(box, UNIT).state is State.PASS
    assert box.ran == [ACTIVE, START]


def test_a_refused_start_leaves_production_up_and_refuses() -> None:
    """The nasty half: it may be stopped and could not be started again."""
    verdict = ask(unit_is("active", Ran(1, "", "Interactive authentication required.")), UNIT)
    assert verdict.state is State.FAIL
    assert "Interactive authentication required" in verdict.found
    assert "polkit" in verdict.remedy


@pytest.mark.parametrize("state", ["inactive", "failed", "activating", "deactivating", ""])
def test_a_unit_that_is_not_active_is_never_started_as_a_proof(state: str) -> None:
    """The question would become the answer: it may be down on purpose."""
    box = unit_is(state, Ran(0))
    assert ask(box, UNIT).state is State.UNKNOWN
    assert START not in box.ran


def test_no_answer_from_systemd_is_unknown() -> None:
    """Neither a missing bus nor a hang is a permission."""
    assert ask(FakeBox(), UNIT).state is State.UNKNOWN
    hung = unit_is("active", Ran(None, fault=TIMEOUT, said="systemctl gave no answer within 10 s"))
    verdict = ask(hung, UNIT)
    assert verdict.state is State.UNKNOWN
    assert "within 10 s (timeout)" in verdict.found


def test_systemctl_can_never_ask_for_a_password() -> None:
    """In either scope."""
    assert systemctl(UNIT) == ["systemctl", "--no-ask-password"]
    assert systemctl({"scope": "user"}) == ["systemctl", "--user", "--no-ask-password"]


def test_a_users_own_systemd_is_found_without_a_login() -> None:
    """cron leaves XDG_RUNTIME_DIR out of the environment."""
    seen: list[Mapping[str, str] | None] = []

    class Watched(FakeBox):
        def run(
            self, argv: Sequence[str], *, within: float, env: Mapping[str, str] | None = None
        ) -> Ran:
            seen.append(env)
            return super().run(argv, within=within)

    ask(Watched(), {**UNIT, "scope": "user"})
    assert seen == [{"XDG_RUNTIME_DIR": f"/run/user/{UID}"}]


@pytest.mark.parametrize(
    ("uid", "state"), [(UID, State.PASS), (1002, State.FAIL), (None, State.UNKNOWN)]
)
def test_a_process_of_ours_is_ours_to_stop_and_start(uid: int | None, state: State) -> None:
    """Signals need the same user, and so does coming back as the same user."""
    assert ask(FakeBox(), {"kind": "process"}, uid).state is state


def test_an_unknown_supervisor_is_a_fail() -> None:
    """Nobody could drive it."""
    assert ask(FakeBox(), {"kind": "upstart"}).state is State.FAIL


SUDO = {
    "kind": "command",
    "start": ["sudo", "-n", "/opt/up"],
    "stop": ["sudo", "-n", "/opt/down"],
    "status": ["/opt/status"],
}


def test_sudo_is_asked_for_each_command_without_running_it() -> None:
    """`sudo -n -l COMMAND` answers whether it may, and can ask for no password."""
    box = FakeBox()
    box.commands["sudo", "-n", "-l", "/opt/up"] = Ran(0, "/opt/up\n")
    box.commands["sudo", "-n", "-l", "/opt/down"] = Ran(0, "/opt/down\n")
    assert ask(box, SUDO).state is State.PASS
    assert all(argv[:3] == ("sudo", "-n", "-l") for argv in box.ran)


def test_sudo_that_allows_the_stop_and_not_the_start_is_a_fail() -> None:
    """Case: by hand it works with a cached ticket; at midnight it could not come back."""
    box = FakeBox()
    box.commands["sudo", "-n", "-l", "/opt/up"] = Ran(1, "", "sudo: a password is required")
    box.commands["sudo", "-n", "-l", "/opt/down"] = Ran(0)
    verdict = ask(box, SUDO)
    assert verdict.state is State.FAIL
    assert "sudo does not let this user start it: sudo: a password is required" in verdict.found


def test_sudo_without_n_is_a_fail() -> None:
    """It could wait for a password for ever."""
    verdict = ask(FakeBox(), {**SUDO, "start": ["sudo", "/opt/up"]})
    assert verdict.state is State.FAIL
    assert "sudo -n /opt/up" in verdict.remedy


@pytest.mark.parametrize(
    ("ran", "state"),
    [
        (Ran(0), State.PASS),
        (Ran(3), State.UNKNOWN),
        (Ran(1, "", "no such thing"), State.UNKNOWN),
        (Ran(None, fault=TIMEOUT, said="status gave no answer within 10 s"), State.UNKNOWN),
    ],
)
def test_a_status_command_has_to_say_running(ran: Ran, state: State) -> None:
    """0 is running, 3 is stopped, everything else is unknown."""
    box = FakeBox()
    box.commands["/opt/status",] = ran
    commands = {"kind": "command", "start": ["/opt/up"], "stop": ["/opt/down"]}
    verdict = ask(box, {**commands, "status": ["/opt/status"]})
    assert verdict.state is state


def test_a_sudo_that_asks_for_a_password_is_never_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case: a real process under that name, which would wait 300 s for a line of input."""
    sudo = tmp_path / "sudo"
    sudo.write_text(
        "#!/bin/sh\n"
        'case "$*" in\n'
        '"-n -l /opt/down") exit 0;;\n'
        '-n*) echo "sudo: a password is required" >&2; exit 1;;\n'
        "*) read -r password; exec sleep 300;;\n"
        "esac\n"
    )
    sudo.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with LinuxBox() as box:
        verdict = ask(box, SUDO)
    assert verdict.state is State.FAIL
    assert "a password is required" in verdict.found
    assert verdict.took_ms < 5000
