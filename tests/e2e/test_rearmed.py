"""A guardian that dies while production is down: the run goes back, under another one."""

import os
import signal

import pytest

from preflight.linux import proc
from preflight.linux.proc import Ident
from runner.recovery import state
from tests.e2e.night import Night, Run
from tests.servers import soon


@pytest.fixture
def slow(night: Night) -> Night:
    """A candidate that loads for ever, and a production that takes some seconds to come back."""
    night.service("llm", "--load-seconds", "3")
    night.job("--load-seconds", "300", candidate={"ready_within": "10m"})
    night.start()
    return night


def guardian_of(night: Night) -> Ident:
    """Who guards the run now, by the state that recovery reads."""
    return soon(lambda: Ident.from_json(state.read(night.state).get("guardian")))


def kill_guardian(night: Night) -> tuple[Run, Ident]:
    """A run whose guardian was killed while production is down, and who guards it since."""
    run = night.begin_and_stop_production()
    first = guardian_of(night)
    os.kill(first.pid, signal.SIGKILL)

    def other() -> Ident | None:
        now = guardian_of(night)
        return now if now != first and proc.alive(now) else None

    return run, soon(other, within=20)


def test_a_guardian_that_dies_is_replaced_before_the_way_back(slow: Night) -> None:
    """Its candidate dies with it; the run says so, restores, and lets the new one go in order."""
    run, second = kill_guardian(slow)
    ran = run.end()
    assert ran.json["outcome"] == "broken", str(ran)
    assert ran.json["production"]["state"] == "serving"
    assert ran.json["production"]["identity"] == "same"
    assert "the guardian died and was replaced" in ran.json["notes"]
    soon(lambda: None if proc.alive(second) else True)
    assert slow.candidates() == []
    assert slow.call("status", "--json").json["obligation"] is None


def test_the_one_that_replaced_it_pays_when_the_run_dies_too(slow: Night) -> None:
    """Two kills after each other: production comes back, and a person hears of it."""
    run, _ = kill_guardian(slow)
    os.kill(run.pid, signal.SIGKILL)
    run.end()
    soon(slow.pid, within=20)
    soon(lambda: True if "INTERRUPTED" in slow.told() else None, within=20)
    assert slow.candidates() == []
