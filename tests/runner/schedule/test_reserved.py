"""What is published of coming runs: every job has its place, however often another one fires."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from runner.journal import Journal
from runner.schedule import coming, reserved
from runner.schedule.ledger import Ledger, Planned
from runner.settings import Settings

NOW = datetime(2027, 1, 15, 19, 42, tzinfo=UTC)


def settings(*rows: tuple[str, str]) -> Settings:
    """A box with these (job, cron)."""
    schedule = [{"job": job, "cron": cron} for job, cron in rows]
    return Settings.model_validate({"timezone": "UTC", "jobs_dir": "/j", "schedule": schedule})


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """A journal of its own."""
    return Ledger(Journal.open(tmp_path / "state"))


def published(ledger: Ledger, given: Settings) -> dict[str, Any]:
    """What others read."""
    return reserved.reservations(given, ledger, NOW, Path("/s"), config=Path("/c/runner.toml"))


def test_a_job_of_each_minute_takes_no_other_s_place(ledger: Ledger) -> None:
    """The nightly one is there, and the frequent one is needed for the whole time."""
    ledger.remember(**{"ahead:often": {"needs": {"files": ["/a"], "ports": [1], "units": []}}})
    said = published(ledger, settings(("often", "* * * * *"), ("night", "0 0 * * *")))
    assert sum(run["job"] == "night" for run in said["runs"]) == 9 - 1
    assert len(said["runs"]) < 40
    assert said["jobs"]["often"]["until"] >= (NOW + timedelta(days=8)).isoformat()
    assert said["jobs"]["often"]["files"] == ["/a"]
    assert [run["at"] for run in said["runs"]] == sorted(run["at"] for run in said["runs"])


def test_what_comes_once_a_year_is_there_too(ledger: Ledger) -> None:
    """Nobody deletes in January what is needed in December because it is far away."""
    said = published(ledger, settings(("yearly", "0 0 24 12 *")))
    assert [run["at"][:10] for run in said["runs"]] == ["2027-12-24"]
    assert list(said["jobs"]) == ["yearly"]
    assert said["jobs"]["yearly"]["known"] is False


def test_what_was_asked_for_is_there(ledger: Ledger) -> None:
    """`runner run JOB --at` needs its files as a schedule does."""
    ledger.plan(Planned("once", int(NOW.timestamp()) + 3600, NOW.timestamp(), "anna"))
    said = published(ledger, settings())
    assert [(run["job"], run["at"][:16]) for run in said["runs"]] == [("once", "2027-01-15T20:42")]


def test_the_runner_s_own_files_are_named(ledger: Ledger) -> None:
    """State, configuration, and the files of scheduled jobs."""
    said = published(ledger, settings(("night", "0 0 * * *")))
    assert said["own"] == ["/s", "/c/runner.toml", "/j/night.toml"]


def test_the_fires_of_a_job_that_has_none_come_to_an_end(ledger: Ledger) -> None:
    """`runner next NAME` with a typo, or for a job that is only run by hand, gives an answer."""
    given = settings(("night", "0 0 * * *"))
    assert coming.slots(given, ledger, NOW, job="nihgt") == []
    ledger.plan(Planned("once", int(NOW.timestamp()) + 60, NOW.timestamp(), "anna"))
    assert [one["job"] for one in coming.slots(given, ledger, NOW, job="once")] == ["once"]
