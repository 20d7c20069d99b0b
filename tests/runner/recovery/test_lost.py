"""A state directory that is taken away under a run: production is back, and nothing of it is silent."""

import os
import shutil
import signal

import pytest

from tests.e2e.night import JOB, Night
from tests.servers import soon


@pytest.fixture
def loading(night: Night) -> Night:
    """Production serves, and the candidate of the job takes some seconds to load."""
    night.service()
    night.job("--load-seconds", "3")
    night.start()
    return night


@pytest.mark.parametrize("how", ["removed", "renamed"])
def test_a_run_whose_state_directory_is_taken_away_says_so(loading: Night, how: str) -> None:
    """The run goes on and restores; its outcome is in the new journal, and a person is told."""
    run = loading.begin_and_stop_production()
    if how == "removed":
        shutil.rmtree(loading.state)
    else:
        loading.state.rename(loading.room / "elsewhere")
    ran = run.end()
    assert ran.json["production"]["state"] == "serving", str(ran)
    assert ran.json["production"]["identity"] == "same"
    assert any("was removed or renamed" in note for note in ran.json["notes"]), str(ran)
    assert "was removed or renamed while the run was under way" in loading.told()
    assert ran.json["run"] in loading.told()
    said = loading.call("status", "--json").json
    assert said["production"]["state"] == "serving"
    assert said["last"]["run"] == ran.json["run"]
    assert said["last"]["outcome"] == ran.json["outcome"]
    assert "was removed or renamed" in said["note"]
    assert said["outbox"]["unsent"] == 0
    assert loading.candidates() == []


def test_a_run_killed_after_its_state_directory_was_taken_away_is_told(loading: Night) -> None:
    """Two faults: what the guardian knows by heart is enough, and the outcome is written anew."""
    run = loading.begin_and_stop_production()
    loading.state.rename(loading.room / "elsewhere")
    os.kill(run.pid, signal.SIGKILL)
    run.end()
    soon(loading.pid, within=20)
    soon(lambda: loading.told() or None, within=20)
    assert f"{JOB} INTERRUPTED" in loading.told()
    said = soon(lambda: _last(loading), within=20)
    assert said["last"]["outcome"] == "interrupted"
    assert loading.candidates() == []


def _last(night: Night) -> dict[str, dict[str, str]] | None:
    said = night.call("status", "--json").json
    return said if said["last"] else None
