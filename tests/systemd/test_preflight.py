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
    """The box; whatever happens, production is the same process afterwards."""
    before = box.show(UNIT, "InvocationID")
    yield box
    box.unit()
    box.do("systemctl", "daemon-reload")
    assert box.show(UNIT, "InvocationID") == before


def refused(box: Box, check: str, *words: str) -> None:
    """A run is refused by this check, with these words in what it found."""
    ran = box.runner("run", "nap")
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
