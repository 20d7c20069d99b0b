"""What systemd says beforehand: a production that could not be started again is not stopped."""

import json
from collections.abc import Iterator

import pytest

from runner.units.texts import RULE
from tests.systemd.box import RUNNER, UNIT, Box, Json

pytestmark = pytest.mark.systemd

SEEN = "/var/log/look.json"


@pytest.fixture
def untouched(box: Box) -> Iterator[Box]:
    """The box; whatever a test has done to production's unit, it is as before afterwards."""
    yield box
    box.unit()
    box.do("systemctl", "daemon-reload")


def refused(box: Box, check: str, *words: str) -> None:
    """A run is refused by this check, with these words in what it found; production is untouched."""
    before = box.show(UNIT, "InvocationID")
    ran = box.runner("run", "nap")
    assert box.show(UNIT, "InvocationID") == before
    assert ran.returncode == 3, ran.stdout + ran.stderr
    (verdict,) = [
        one for one in box.last()["checks"] if one["id"] == check and one["state"] == "fail"
    ]
    for word in words:
        assert word in verdict["message"]


def test_a_rule_that_is_gone(untouched: Box) -> None:
    """The permission is proven by starting the unit that is active, which changes nothing."""
    rule = untouched.read(RULE)
    untouched.remove(RULE)
    untouched.do("systemctl", "restart", "polkit.service")
    try:
        refused(untouched, "prod.permission", "may not start", UNIT)
    finally:
        untouched.write(RULE, rule)
        untouched.do("systemctl", "restart", "polkit.service")


def test_a_unit_that_was_masked_while_it_runs(untouched: Box) -> None:
    """It can be stopped, and not started again."""
    untouched.remove(f"/etc/systemd/system/{UNIT}")
    untouched.do("systemctl", "mask", "--runtime", UNIT)
    try:
        refused(untouched, "prod.restore", "masked")
    finally:
        untouched.do("systemctl", "unmask", "--runtime", UNIT)
        untouched.unit()
        untouched.do("systemctl", "daemon-reload")


def test_a_unit_whose_file_changed(untouched: Box) -> None:
    """A restart would start something else than what serves."""
    untouched.unit("Environment=CHANGED=1")
    refused(untouched, "prod.restore", "changed since systemd read it", "daemon-reload")


def test_a_unit_that_would_stay_down(untouched: Box) -> None:
    """What requires production stops with it, and a start of production does not bring it back."""
    path = "/etc/systemd/system/webui.service"
    untouched.write(
        path, f"[Unit]\nRequires={UNIT}\nAfter={UNIT}\n[Service]\nExecStart=/bin/sleep 6002\n"
    )
    untouched.do("systemctl", "daemon-reload")
    untouched.do("systemctl", "start", "webui.service")
    try:
        refused(untouched, "prod.dependents", "webui.service")
    finally:
        untouched.do("systemctl", "stop", "webui.service")
        untouched.remove(path)
        untouched.do("systemctl", "daemon-reload")


def test_a_socket_that_starts_production_again(untouched: Box) -> None:
    """The stop would last until the next client comes."""
    path = "/etc/systemd/system/wake.socket"
    untouched.write(path, f"[Socket]\nListenStream=/run/wake.sock\nService={UNIT}\n")
    untouched.do("systemctl", "daemon-reload")
    # a socket is refused beside its running service, so it is the service that is started again
    untouched.do("systemctl", "stop", UNIT)
    untouched.do("systemctl", "start", "wake.socket", UNIT)
    untouched.serving()
    try:
        refused(untouched, "port.activation", "wake.socket")
    finally:
        untouched.do("systemctl", "stop", "wake.socket")
        untouched.remove(path)
        untouched.do("systemctl", "daemon-reload")


@pytest.mark.parametrize("name", ["runner.service", "runner-run@.service"])
def test_the_sandbox_hides_nothing_from_preflight(box: Box, name: str) -> None:
    """What the daemon and a run see is what is there: hardening makes no false alarms."""
    dropped = ("Type=", "Restart", "WatchdogSec=", "ExecStopPost=", "Wants=", "After=", "Wanted")
    lines = [
        line
        for line in box.read(f"/etc/systemd/system/{name}").splitlines()
        if not line.startswith((*dropped, "ExecStart=", "[Install]", "CollectMode"))
    ]
    where = lines.index("[Service]") + 1
    command = f"ExecStart={RUNNER} --config /etc/runner/runner.toml check nap --json"
    lines[where:where] = ["Type=oneshot", command, f"StandardOutput=truncate:{SEEN}"]
    box.write("/etc/systemd/system/look.service", "\n".join([*lines, ""]))
    box.do("systemctl", "daemon-reload")
    box.do("systemctl", "start", "look.service")
    inside = verdicts(json.loads(box.read(SEEN)))
    outside = verdicts(box.ask("check", "nap"))
    assert inside == outside


def verdicts(said: Json) -> dict[str, str]:
    """What was asked → the answer; how loaded the machine is may change at any moment."""
    return {
        f"{one['id']} {one['subject']}": one["state"]
        for one in said["checks"]
        if one["id"] != "host.load"
    }
