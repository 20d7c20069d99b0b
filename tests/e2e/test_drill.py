"""A drill on a real box: the run is killed on purpose, production is back, the audit finds nothing."""

import os
import signal

import pytest

from tests.e2e.night import JOB, Night
from tests.servers import soon


def test_drill_kills_a_real_run_and_says_how_long_production_was_away(serving: Night) -> None:
    """The number is measured by somebody who asks all the time, and every promise holds."""
    before = serving.serving()
    ran = serving.call("drill", JOB, "--yes", "--json", "--step", "load")
    assert ran.code == 0, str(ran)
    said = ran.json
    assert said["killed"]
    assert 0 < said["back_after_kill_s"] <= said["outage_s"] < 30
    assert said["broken"] == []
    assert said["by_hand"] is False
    assert said["outcome"] == "interrupted"
    assert serving.serving() != before
    assert "INTERRUPTED" in serving.told()


def test_drill_needs_a_production_that_serves(night: Night) -> None:
    """One that is down is not touched: it could show nothing, and may be down on purpose."""
    night.service()
    night.job()
    ran = night.call("drill", JOB, "--yes", "--json")
    assert ran.code == 3, str(ran)
    assert "llm does not serve" in ran.json["error"]["message"]
    assert night.pid() is None


def test_drill_whose_run_ends_before_the_step_says_that_nothing_was_shown(serving: Night) -> None:
    """A run that is refused never comes to a step."""
    serving.job(needs={"files": [str(serving.room / "missing.txt")]})
    before = serving.serving()
    ran = serving.call("drill", JOB, "--yes", "--step", "load")
    assert ran.code == 3, str(ran)
    assert "nothing was shown" in ran.out
    assert serving.serving() == before


@pytest.mark.parametrize("words", [("--json",), ("--yes", "--step", "never")])
def test_drill_asks_before_it_takes_production_down(serving: Night, words: tuple[str, ...]) -> None:
    """Nobody's production goes down by a script that did not mean it, or by a slip of the pen."""
    before = serving.serving()
    assert serving.call("drill", JOB, *words).code == 2
    assert serving.serving() == before
    assert serving.told() == ""


def test_audit_finds_nothing_on_a_box_that_keeps_its_promises(serving: Night) -> None:
    """After a run that was proven, and one that was refused."""
    serving.run()
    serving.job("--fail-load")
    serving.run()
    ran = serving.call("audit", "--json")
    assert ran.code == 0, str(ran)
    assert ran.json == {"broken": [], "unknown": []}


def test_audit_sees_a_production_that_nobody_told_of(serving: Night) -> None:
    """It died by itself, no run explains it, and nobody was told: a broken promise."""
    serving.run()
    os.kill(serving.serving(), signal.SIGKILL)
    soon(lambda: None if serving.pid() else True)
    ran = serving.call("audit")
    assert ran.code == 10, str(ran)
    assert "P1: llm does not serve" in ran.out
