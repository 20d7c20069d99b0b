"""What systemd says beforehand: a production that could not be started again is not stopped."""

from collections.abc import Iterator

import pytest

from runner.units.texts import RULE
from tests.systemd.box import UNIT, Box

pytestmark = pytest.mark.systemd


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
