"""P6: the permission to start production again is proven before it is stopped."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from preflight.box import TIMEOUT, Me, Ran
from preflight.linux.box import LinuxBox
from preflight.production.control import MayControl, systemctl
from preflight.production.sudo import password_free
from preflight.rings import look
from preflight.verdict import State, Verdict
from tests.fakes import UID, FakeBox
from tests.fakes_host import a_unit

UNIT = {"kind": "systemd", "unit": "llama.service", "scope": "system"}
START = ("systemctl", "--no-ask-password", "start", "llama.service")


def ask(box: FakeBox | LinuxBox, supervisor: Mapping[str, Any], uid: int | None = UID) -> Verdict:
    """The answer about one supervisor."""
    recipe = {"name": "llm", "supervisor": dict(supervisor), "identity": {"pid": 100, "uid": uid}}
    return look([MayControl(recipe=recipe)], box).verdicts[0]


def unit_is(active: str, start: Ran | None = None) -> FakeBox:
    """A box whose unit is in this state, and answers a start like this."""
    box = FakeBox().has_units(a_unit(ActiveState=active))
    if start is not None:
        box.commands[START] = start
    return box


def test_starting_an_active_unit_proves_the_permission() -> None:
    """It does nothing, and needs the same leave as a real start."""
    box = unit_is("active", Ran(0))
    assert ask(box, UNIT).state is State.PASS
    assert box.ran == [START]


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

    ask(Watched().has_units(a_unit()), {**UNIT, "scope": "user"})
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


MAY_UP = ("sudo", "-n", "-k", "-l", "/opt/up")
MAY_DOWN = ("sudo", "-n", "-k", "-l", "/opt/down")
RULES = ("sudo", "-n", "-k", "-l", "-l")


def rules(*entries: tuple[str, str], defaults: str = "env_reset") -> str:
    """What `sudo -l -l` prints for these (options, command)."""
    said = f"Matching Defaults entries for runner on box:\n    {defaults}\n\n"
    said += "User runner may run the following commands on box:\n"
    for options, command in entries:
        shown = f"    Options: {options}\n" if options else ""
        said += f"\nSudoers entry:\n    RunAsUsers: root\n{shown}    Commands:\n\t{command}\n"
    return said


def allowed(*entries: tuple[str, str], **more: str) -> FakeBox:
    """A box whose sudo permits both commands, by these rules."""
    box = FakeBox()
    box.commands[MAY_UP] = Ran(0, "/opt/up\n")
    box.commands[MAY_DOWN] = Ran(0, "/opt/down\n")
    box.commands[RULES] = Ran(0, rules(*entries, **more))
    return box


def test_sudo_is_asked_for_each_command_without_running_it() -> None:
    """It answers whether it may, from its rules alone, and can ask for no password."""
    box = allowed(("!authenticate", "/opt/up"), ("!authenticate", "/opt/down"))
    assert ask(box, SUDO).state is State.PASS
    assert all(argv[:4] == ("sudo", "-n", "-k", "-l") for argv in box.ran)


def test_sudo_that_permits_and_would_ask_for_a_password_is_a_fail() -> None:
    """`sudo -l` says yes to it, and by hand a cached ticket hides it until midnight."""
    verdict = ask(allowed(("authenticate", "/opt/up"), ("!authenticate", "/opt/down")), SUDO)
    assert verdict.state is State.FAIL
    assert verdict.found == "sudo permits to start it, and would ask for a password"
    assert "NOPASSWD rule in /etc/sudoers.d, for /opt/up" in verdict.remedy


def test_sudo_that_does_not_tell_about_passwords_is_unknown() -> None:
    """P8: an allowed command is not yet one that never asks."""
    box = allowed(("!authenticate", "/opt/other"))
    assert ask(box, SUDO).state is State.UNKNOWN
    box.commands[RULES] = Ran(1, "", "sudo: a password is required")
    assert ask(box, SUDO).state is State.UNKNOWN
    box.who = Me(0, "root", None, None)
    assert ask(box, SUDO).state is State.PASS  # whom sudo never asks


@pytest.mark.parametrize(
    ("entries", "free"),
    [
        ([("!authenticate", "/usr/bin/systemctl start llama.service")], True),
        ([("!authenticate", "/usr/bin/systemctl")], True),
        ([("!authenticate", "/usr/bin/systemctl start *")], True),
        ([("!authenticate", "/usr/bin/*")], True),
        ([("!authenticate", "/usr/bin/")], True),
        ([("!authenticate", "/usr/*")], None),
        ([("!authenticate", "ALL")], True),
        ([("!authenticate", "sha224:abc= /usr/bin/systemctl")], True),
        ([("!authenticate", "^/usr/bin/systemctl$ ^start .*$")], True),
        ([("!authenticate", "^/usr/[")], None),
        ([("!authenticate", '/usr/bin/systemctl ""')], None),
        ([("!authenticate", "!/usr/bin/systemctl")], None),
        ([("!authenticate", "/usr/bin/systemctl stop llama.service")], None),
        ([("", "ALL")], False),
        ([("!authenticate", "ALL"), ("authenticate", "/usr/bin/systemctl")], False),
        ([("", "ALL"), ("!authenticate", "/usr/bin/systemctl start llama.service")], True),
        ([], None),
    ],
)
def test_the_last_rule_that_matches_decides(
    entries: list[tuple[str, str]], free: bool | None
) -> None:
    """As sudoers(5) has it: paths, arguments, wildcards, directories, digests, expressions."""
    command = "/usr/bin/systemctl start llama.service"
    assert password_free(rules(*entries), command) is free
    if free is False:
        assert password_free(rules(*entries[:1], defaults="!authenticate, env_reset"), command)


def test_sudo_that_gives_no_answer_is_unknown() -> None:
    """It may wait for a password, or for a directory of users that is gone."""
    box = allowed(("!authenticate", "/opt/up"), ("!authenticate", "/opt/down"))
    box.commands[MAY_UP] = Ran(None, fault=TIMEOUT, said="sudo gave no answer within 5 s")
    verdict = ask(box, SUDO)
    assert verdict.state is State.UNKNOWN
    assert "sudo gave no answer within 5 s (timeout)" in verdict.found


def test_sudo_that_allows_the_stop_and_not_the_start_is_a_fail() -> None:
    """Case: by hand it works with a cached ticket; at midnight it could not come back."""
    box = allowed(("!authenticate", "/opt/down"))
    box.commands[MAY_UP] = Ran(1, "", "sudo: a password is required")
    verdict = ask(box, SUDO)
    assert verdict.state is State.FAIL
    assert verdict.found.endswith("start it without a password (sudo: a password is required)")


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
        '"-n -k -l /opt/down") exit 0;;\n'
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
