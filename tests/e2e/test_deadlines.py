"""Deadlines: the run is cut in time for the way back, and the way back is never cut."""

import signal
from typing import Any, cast

import pytest

from preflight.linux import proc
from runner.plan import Plan
from tests.e2e.night import Night
from tests.servers import soon


@pytest.fixture
def endless(night: Night) -> Night:
    """A candidate that loads for ever, and a production whose way back is reckoned with 3 s."""
    night.service(ready_within="3s")
    night.job("--load-seconds", "300", candidate={"ready_within": "10m"}, downtime_budget="9s")
    night.start()
    return night


def test_the_downtime_budget_cuts_the_run_and_keeps_the_way_back(endless: Night) -> None:
    """Of 9 s three are reserved: the run is cut at six, and production is back within the nine."""
    before = endless.serving()
    ran = endless.run()
    assert ran.code == 5, str(ran)
    assert ran.json["outcome"] == "broken"
    assert "of downtime is for the way back" in ran.json["why"]
    assert ran.json["production"]["state"] == "serving"
    assert ran.json["production"]["identity"] == "same"
    assert 5.5 < ran.json["production"]["downtime_s"] < 9
    assert endless.serving() != before
    assert endless.candidates() == []
    assert "downtime" in endless.told()


def test_the_timeout_of_the_whole_run_cuts_it_too(endless: Night) -> None:
    """It counts from the lock, and names itself."""
    endless.job(
        "--load-seconds",
        "300",
        candidate={"ready_within": "10m"},
        downtime_budget="60s",
        timeout="5s",
    )
    ran = endless.run()
    assert ran.code == 5, str(ran)
    assert "the run's timeout of 5s is over" in ran.json["why"]
    assert ran.json["production"]["state"] == "serving"
    assert ran.json["production"]["downtime_s"] < 9


def test_a_restore_that_outlasts_every_deadline_is_not_cut(night: Night) -> None:
    """The timeout is long over while production loads, somebody presses Ctrl-C twice: it is waited for."""
    night.service("llm", "--load-seconds", "6", ready_within="20s")
    night.job(
        "--load-seconds",
        "300",
        candidate={"ready_within": "10m"},
        downtime_budget="60s",
        timeout="4s",
    )
    night.start()
    run = night.begin_and_stop_production()
    soon(lambda: None if proc.owners(night.candidate_port) else True, within=20)
    for number in (signal.SIGINT, signal.SIGINT, signal.SIGTERM):
        run.process.send_signal(number)
    ran = run.end()
    assert ran.json["production"]["state"] == "serving", str(ran)
    assert ran.json["production"]["identity"] == "same"
    assert ran.json["production"]["downtime_s"] > 6
    assert ran.json["production"]["services"][0]["tries"] == 1
    assert night.serving()


@pytest.mark.parametrize(
    ("back_at", "cut"),
    [(None, 1070.0), (2000.0, 1070.0), (1060.0, 1030.0), (1000.0, 970.0)],
)
def test_when_production_must_be_back_cuts_before_the_budget_does(
    back_at: float | None, cut: float
) -> None:
    """`back_by`, less what the way back takes; stopped at 1000 s with 100 s, of which 30 reserved."""
    nothing = cast("Any", None)
    plan = Plan(nothing, (), (), (), 100.0, 30.0, 500.0, back_at=back_at)
    assert plan.cut_at(1000.0) == cut
