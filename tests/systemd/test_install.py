"""Installed with ten lines of configuration and one job: what a person sees the first night."""

import pytest

from tests.systemd.box import UNIT, Box

pytestmark = pytest.mark.systemd


def test_ten_lines_and_a_job_are_enough(box: Box) -> None:
    """doctor, alerts test, check, run: proven, with the same production before and after."""
    doctor = box.ask("doctor")
    assert [one["message"] for one in doctor["checks"] if one["state"] == "fail"] == []
    assert box.runner("alerts", "test").returncode == 0
    assert "TEST from" in box.told()[-1]
    check = box.runner("check", "mtp")
    assert check.returncode == 0, check.stdout
    before = box.show(UNIT, "InvocationID")
    ran = box.runner("run", "mtp")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    result = box.last()
    assert (result["outcome"], result["production"]["identity"]) == ("proven", "same")
    assert result["production"]["downtime_s"] > 0
    assert box.serving() != before
    assert "PROVEN" in ran.stdout
