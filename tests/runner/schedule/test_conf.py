"""runner.toml, followed: a good edit counts at once, a broken one changes nothing."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.errors import ConfigError
from runner.journal import Journal
from runner.schedule.conf import Live, kept
from runner.schedule.incidents import Incidents
from runner.settings import load_settings


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A file that names its state directory."""
    (tmp_path / "state").mkdir()
    path = tmp_path / "runner.toml"
    path.write_text(f'timezone = "UTC"\nstate_dir = "{tmp_path}/state"\n')
    return path


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    """An empty journal."""
    with Journal.open(tmp_path / "state") as opened:
        yield opened


def edit(config: Path, old: str, new: str) -> None:
    """Write the file as an editor does: another one in its place."""
    beside = config.with_name("new")
    beside.write_text(config.read_text().replace(old, new))
    os.replace(beside, config)


def test_a_good_edit_counts(config: Path, journal: Journal) -> None:
    """Once; a file that was only touched changes nothing."""
    live, incidents = Live(config), Incidents(journal)
    assert not live.changed(incidents)
    edit(config, "UTC", "Europe/Berlin")
    assert live.changed(incidents)
    assert live.settings.timezone == "Europe/Berlin"
    os.utime(config)
    assert not live.changed(incidents)


def test_a_broken_edit_changes_nothing_and_is_told(config: Path, journal: Journal) -> None:
    """Runs that begin meanwhile read what was kept; the mended file resolves it."""
    live, incidents = Live(config), Incidents(journal)
    live.keep()
    edit(config, "UTC", "Mars/Olympus")
    assert not live.changed(incidents)
    assert live.settings.timezone == "UTC"
    assert "is no timezone" in live.broken
    assert live.in_force == kept(Path(live.settings.state_dir))
    assert load_settings(live.in_force) == live.settings
    assert len(journal.incidents()) == 1
    edit(config, "Mars/Olympus", "UTC")
    assert not live.changed(incidents)
    assert live.in_force == config
    assert journal.incidents() == []


def test_what_is_kept_finds_the_same_jobs(config: Path) -> None:
    """The default of `jobs_dir` is a place beside the file, and the copy lies elsewhere."""
    live = Live(config)
    live.keep()
    found = load_settings(kept(Path(live.settings.state_dir)))
    assert found.jobs_dir == str(config.parent / "jobs")


def test_a_file_that_is_gone_is_a_broken_edit(config: Path, journal: Journal) -> None:
    """An editor, or a deployment, in between."""
    live, incidents = Live(config), Incidents(journal)
    config.unlink()
    assert not live.changed(incidents)
    assert "no such file" in live.broken


def test_the_state_directory_cannot_move_under_a_daemon(config: Path, journal: Journal) -> None:
    """Its journal and its locks are there."""
    live, incidents = Live(config), Incidents(journal)
    edit(config, "/state", "/other")
    assert not live.changed(incidents)
    assert "cannot change while the daemon runs" in live.broken


def test_a_daemon_does_not_begin_with_a_broken_file(config: Path) -> None:
    """There is nothing yet that could stay in force."""
    edit(config, "UTC", "Mars/Olympus")
    with pytest.raises(ConfigError):
        Live(config)
