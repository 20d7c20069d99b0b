"""`install-units` writes what it shows, and doctor sees what became of it."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from jobs.errors import ConfigError
from preflight.box import Ran
from preflight.verdict import State, Verdict
from runner import entry
from runner.settings import load_settings
from runner.units import texts
from runner.units.compare import ASKED, examine
from runner.units.place import place_of
from tests.fakes import FakeBox

CONFIG = """\
timezone = "UTC"
state_dir = "{room}/state"
[[production]]
name = "llm"
kind = "llamacpp"
port = 8080
supervisor = {{ kind = "systemd", unit = "llama.service" }}
[[alerts.channel]]
kind = "telegram"
token = {{ credential = "token" }}
chat_id = 1
[[alerts.channel]]
kind = "file"
path = "/var/log/alerts/told"
"""
SHOWN = "Id=runner.service\nNeedDaemonReload={reload}\nUnitFileState={state}\n"


class Site:
    """A configuration, and the root of a box that units are written to."""

    def __init__(self, room: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.config, self.root = room / "runner.toml", room / "root"
        self.config.write_text(CONFIG.format(room=room))
        (self.root / "run/systemd/system").mkdir(parents=True)
        (room / "token").write_text("secret")
        (room / "token").chmod(0o600)
        self._capfd = capfd

    def call(self, *words: str) -> tuple[int, Any]:
        """`runner install-units … --json`: exit code and answer."""
        self._capfd.readouterr()
        argv = ["--config", str(self.config), "install-units", *words, "--json"]
        code = entry.run(argv)
        return code, json.loads(self._capfd.readouterr().out)

    def write(self) -> dict[str, str]:
        """Path → whether it was new, replaced or unchanged."""
        code, said = self.call("--write", "--root", str(self.root))
        assert code == 0
        written: dict[str, str] = said["written"]
        return written

    def examine(self, *, reload: str = "no", state: str = "enabled") -> list[Verdict]:
        """What doctor says, with what systemd would show."""
        box = FakeBox()
        shown = SHOWN.format(reload=reload, state=state)
        box.commands[ASKED] = Ran(0, shown)
        settings = load_settings(self.config)
        return list(examine(self.config, settings, box, root=self.root))

    def said(self, **shown: str) -> dict[str, State]:
        """What doctor found about the units → how bad it is."""
        return {one.found: one.state for one in self.examine(**shown) if one.id == "self.units"}


@pytest.fixture
def site(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Site:
    """A box without any units yet."""
    return Site(tmp_path, capfd)


def test_what_is_written_is_what_is_shown(site: Site) -> None:
    """The same text, each file where systemd and polkit look; once more changes nothing."""
    _, shown = site.call()
    assert set(site.write().values()) == {"new"}
    for path, text in shown["files"].items():
        there = site.root / path.lstrip("/")
        assert there.read_text() == text
        assert there.stat().st_mode & 0o777 == 0o644
    assert set(site.write().values()) == {"unchanged"}


def test_the_files_are_made_for_this_box(site: Site) -> None:
    """Its unit of production, its credential beside its configuration, its paths."""
    _, shown = site.call()
    files = shown["files"]
    assert '["llama.service"]' in files[texts.RULE]
    daemon = files[f"{texts.UNITS}/runner.service"]
    assert f"LoadCredential=token:{site.config.parent}/token" in daemon
    assert f"ReadWritePaths={site.config.parent}/state -/var/log/alerts" in daemon
    assert f"--config {site.config} serve" in daemon


def test_doctor_finds_what_was_written_in_order(site: Site) -> None:
    """And says so."""
    site.write()
    assert site.said() == {"7 files are as this configuration asks for": State.PASS}


def test_doctor_warns_where_nothing_is_installed(site: Site) -> None:
    """Production is a unit, so nobody would recover at boot."""
    (state,) = site.said().values()
    assert state is State.WARN


def test_doctor_says_nothing_without_systemd(site: Site) -> None:
    """There is nothing to install."""
    (site.root / "run/systemd/system").rmdir()
    assert site.examine() == []


def test_doctor_names_the_line_that_differs(site: Site) -> None:
    """An older version's unit, or one that was edited in place; and one that is gone."""
    site.write()
    run = site.root / texts.UNITS.lstrip("/") / "runner-run@.service"
    run.write_text(run.read_text().replace("KillMode=mixed", "KillMode=process"))
    (site.root / texts.UNITS.lstrip("/") / "runner-recover.timer").unlink()
    (found,) = site.said()
    assert "runner-recover.timer missing" in found
    assert "runner-run@.service has `KillMode=process`, wanted `KillMode=mixed`" in found


def test_doctor_knows_what_systemd_knows(site: Site) -> None:
    """Older files in memory, and what would not start at boot."""
    site.write()
    assert "systemd still has older files in memory" in site.said(reload="yes")
    assert "runner.service would not start at boot" in site.said(state="disabled")


def test_doctor_looks_at_the_secrets_from_outside(site: Site) -> None:
    """Missing, or open to others; never at what stands in them."""
    site.write()
    token = site.config.parent / "token"
    token.chmod(0o644)
    assert [one.state for one in site.examine() if one.id == "self.credential"] == [State.WARN]
    token.unlink()
    (missing,) = [one for one in site.examine() if one.id == "self.credential"]
    assert missing.state is State.FAIL
    assert str(token) in missing.found


def test_a_path_that_a_unit_would_read_otherwise_is_refused(site: Site) -> None:
    """A space would end it, a percent sign would be replaced."""
    site.config.write_text(site.config.read_text().replace("/state", "/my state"))
    with pytest.raises(ConfigError, match="my state"):
        place_of(site.config, load_settings(site.config))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may write units at all")
def test_units_for_a_user_who_is_not_there_are_not_written(site: Site) -> None:
    """They would fail to start, one after the other."""
    code, said = site.call("--write", "--user", "nobody-such")
    assert code == 2
    assert "useradd --system" in said["error"]["remedy"]


def test_print_and_write_are_one_or_the_other(site: Site) -> None:
    """Not both."""
    code, said = site.call("--print", "--write")
    assert (code, "--write" in said["error"]["message"]) == (2, True)
