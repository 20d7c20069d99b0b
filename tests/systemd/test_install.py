"""Installed by the guide, with ten lines of configuration and one job: the first night."""

import shlex
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from tests.systemd.box import UNIT, Box, guide

pytestmark = pytest.mark.systemd


def test_ten_lines_and_a_job_are_enough(box: Box) -> None:
    """The rest of the guide: doctor, alerts test, check, run; proven, with the same production
    before and after.
    """
    before = box.show(UNIT, "InvocationID")
    lines = guide()
    for line in lines[lines.index("runner doctor") :]:
        ran = box.attempt(*shlex.split(line))
        assert ran.returncode == 0, f"{line}\n{ran.stdout}{ran.stderr}"
    assert "PROVEN" in ran.stdout
    assert any(text.startswith("TEST from") for text in box.told())
    result = box.last()
    assert (result["outcome"], result["production"]["identity"]) == ("proven", "same")
    assert result["production"]["downtime_s"] > 0
    assert box.serving() != before
    assert box.started("runner-recover.timer") > 0


def test_doctor_finds_nothing_amiss(box: Box) -> None:
    """The units are those of this configuration, loaded and enabled."""
    said = box.ask("doctor")
    assert [one["message"] for one in said["checks"] if one["state"] in {"fail", "unknown"}] == []
    (units,) = [one for one in said["checks"] if one["id"] == "self.units"]
    assert units["state"] == "pass"


def test_doctor_sees_units_that_were_changed(box: Box) -> None:
    """By hand, or left by an older version; and a file that systemd has not read again."""
    path = "/etc/systemd/system/runner-guardian@.service"
    text = box.read(path)
    box.write(path, text.replace("Delegate=yes", "Delegate=no"))
    try:
        said = box.ask("doctor")
    finally:
        box.write(path, text)
        box.do("systemctl", "daemon-reload")
    (units,) = [
        one for one in said["checks"] if one["id"] == "self.units" and one["state"] == "fail"
    ]
    assert "runner-guardian@.service has `Delegate=no`, wanted `Delegate=yes`" in units["message"]
    assert "install-units --write" in units["message"]


def test_the_daemon_fires_a_slot_as_a_unit(box: Box) -> None:
    """As scheduled, the run is a unit of its own with a guardian of its own."""
    at = datetime.now(ZoneInfo("Europe/Berlin")) + timedelta(minutes=1)
    planned = box.runner("run", "nap", "--at", f"{at:%Y-%m-%d %H:%M}")
    assert planned.returncode == 0, planned.stdout + planned.stderr
    box.until(lambda: "runner-run@nap.service" in box.runs(), within=90)
    box.until(lambda: any(name.startswith("runner-guardian@") for name in box.runs()))
    box.paid()
    last = box.last()
    assert (last["job"], last["outcome"]) == ("nap", "proven")
    assert f"ran at {at:%H:%M}" in box.runner("why", "nap").stdout
