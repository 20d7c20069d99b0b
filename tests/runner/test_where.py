"""Where the configuration and the state directory are looked for."""

from pathlib import Path

import pytest

from runner import where


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without any configuration, and nothing said by the environment."""
    for name in ("RUNNER_CONFIG", "STATE_DIRECTORY", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    monkeypatch.setattr(where, "_SYSTEM", tmp_path / "etc" / "runner.toml")
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return tmp_path


def test_the_nearest_configuration_wins(bare: Path) -> None:
    """Here, then the user's, then the machine's."""
    assert where.find_config().path is None
    for place in (bare / "etc/runner.toml", bare / "xdg/runner/runner.toml", Path("runner.toml")):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
        assert where.find_config().path == place.absolute()


def test_every_place_looked_at_is_named(bare: Path) -> None:
    """`runner doctor` and the error for a missing configuration show them."""
    found = where.find_config()
    assert [place.there for place in found.looked] == [False, False, False]
    assert f"{bare / 'etc/runner.toml'} (/etc)" in found.in_words


def test_a_removed_current_directory_hides_no_other_configuration(bare: Path) -> None:
    """A shell may stand in a directory that somebody has deleted; recovery must work from there."""
    config = bare / "etc/runner.toml"
    config.parent.mkdir()
    config.touch()
    Path.cwd().rmdir()
    assert where.find_config().path == config


@pytest.mark.parametrize("by_environment", [False, True])
def test_a_configuration_asked_for_by_name_is_that_one_or_none(
    bare: Path, monkeypatch: pytest.MonkeyPatch, *, by_environment: bool
) -> None:
    """Falling back to another file than the one asked for would act on another box's plan."""
    Path("runner.toml").touch()
    missing = bare / "missing.toml"
    if by_environment:
        monkeypatch.setenv("RUNNER_CONFIG", str(missing))
    found = where.find_config(None if by_environment else missing)
    assert found.path is None
    assert [place.path for place in found.looked] == [missing]


def test_the_state_directory_is_configured_or_systemd_s_or_the_user_s(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this order."""
    assert where.state_dir() == bare / ".local/state/runner"
    monkeypatch.setenv("XDG_STATE_HOME", str(bare / "state"))
    assert where.state_dir() == bare / "state/runner"
    monkeypatch.setenv("STATE_DIRECTORY", "/var/lib/runner:/var/lib/other")
    assert where.state_dir() == Path("/var/lib/runner")
    assert where.state_dir({"state_dir": "/srv/runner"}) == Path("/srv/runner")


def test_the_machine_s_configuration_leads_everybody_to_the_machine_s_state_directory(
    bare: Path,
) -> None:
    """Else a person who asks on the box would look into a directory of their own, and see nothing."""
    config = bare / "etc/runner.toml"
    config.parent.mkdir()
    config.write_text('timezone = "UTC"\n')
    assert where.state_dir_of(config) == Path("/var/lib/runner")
    assert where.state_dir({}, config) == Path("/var/lib/runner")
    config.write_text("broken\n")
    assert where.state_dir_of(config) == Path("/var/lib/runner")
    config.write_text('state_dir = "/srv/runner"\n')
    assert where.state_dir_of(config) == Path("/srv/runner")


def test_a_broken_configuration_still_leads_recovery_to_the_state_directory(bare: Path) -> None:
    """An edit during the night must not strand a production that is down."""
    config = bare / "runner.toml"
    config.write_text('state_dir = "/srv/runner"\ntimezone = "Europe/Berlin\n')
    assert where.state_dir_of(config) == Path("/srv/runner")
    config.write_text('state_dir = "/srv/a"\n')
    assert where.state_dir_of(config) == Path("/srv/a")
    config.write_text('[x]\nstate_dir = "/srv/runner"\nbroken\n')
    assert where.state_dir_of(config) == bare / ".local/state/runner"
    assert where.state_dir_of(bare / "gone.toml") == bare / ".local/state/runner"
    assert where.state_dir_of(None) == bare / ".local/state/runner"


def test_jobs_lie_beside_the_configuration_unless_it_says_otherwise() -> None:
    """The shortest useful configuration names no directory."""
    assert where.jobs_dir({}, Path("/etc/runner/runner.toml")) == Path("/etc/runner/jobs")
    assert where.jobs_dir({"jobs_dir": "/srv/j"}, Path("/x.toml")) == Path("/srv/j")


def test_an_unknown_timezone_falls_back_to_the_box_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """For display only; loading the settings refuses it."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    assert where.local_timezone() == "Europe/Berlin"
    assert str(where.timezone({"timezone": "Mars/Olympus"})) == "Europe/Berlin"
    assert str(where.timezone({"timezone": "America/New_York"})) == "America/New_York"
    assert str(where.timezone({"timezone": "../../etc/passwd"})) == "Europe/Berlin"


def test_the_machine_s_configuration_leads_to_its_state_also_when_it_is_gone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The unit that recovers names it; a clean-up of /etc must not hide what is owed."""
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    monkeypatch.setattr(where, "_SYSTEM", tmp_path / "runner.toml")
    found = where.find_config(tmp_path / "runner.toml")
    assert found.path is None
    assert where.state_dir_of(found.meant) == Path("/var/lib/runner")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RUNNER_CONFIG", raising=False)
    assert where.find_config(None).meant is None
