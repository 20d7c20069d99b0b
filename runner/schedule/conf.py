"""The configuration as it is now: taken up when it changes, kept when the change is broken.

A run that goes on keeps what it began with: it is a process of its own and has read the files.
"""

import json
import os
import tomllib
from contextlib import suppress
from pathlib import Path

from jobs.errors import ConfigError, Problem, render
from runner import where
from runner.recovery import unit
from runner.recovery.files import write_durably
from runner.schedule.incidents import Incidents
from runner.settings import Settings, load_settings

NAME = "in-force.toml"
_KEY = "config"


class Live:
    """runner.toml, followed."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigError: a daemon does not begin with a broken configuration."""
        self.path = path
        self._stamp = _stamp(path)
        self.settings = load_settings(path)
        self.broken = ""

    @property
    def in_force(self) -> Path:
        """The file that says what is in force: runner.toml, or what was kept of it when it broke."""
        return kept(Path(self.settings.state_dir)) if self.broken else self.path

    def changed(self, incidents: Incidents, *, asked: bool = False) -> bool:
        """Take up an edit; True where the settings are others now. `asked`: look in any case."""
        stamp = _stamp(self.path)
        if stamp == self._stamp and not asked:
            return False
        self._stamp = stamp
        try:
            settings = self._read()
        except ConfigError as error:
            lines = [render(problem) for problem in error.problems]
            self.broken = lines[0]
            incidents.open(
                _KEY, "CONFIG BROKEN · the one before stays in force", [*lines, "runner doctor"]
            )
            return False
        if self.broken:
            self.broken = ""
            incidents.resolve(_KEY, "CONFIG MENDED · the new one is in force")
        if settings == self.settings:
            return False
        self.settings = settings
        self.keep()
        return True

    def keep(self) -> None:
        """Keep a copy of the good file for runs that begin while a broken edit lies in its place."""
        with suppress(OSError):
            text = self.path.read_text(encoding="utf-8").removeprefix("\ufeff")
            if "jobs_dir" not in tomllib.loads(text):  # its default is a place beside the file
                text = f"jobs_dir = {json.dumps(self.settings.jobs_dir)}\n{text}"
            write_durably(kept(Path(self.settings.state_dir)), text.encode())

    def _read(self) -> Settings:
        settings = load_settings(self.path)
        if settings.state_dir != self.settings.state_dir:
            raise ConfigError(_moved(self.settings.state_dir))
        return settings


def for_a_unit(path: Path) -> Path | None:
    """What a run that systemd has started reads in place of a broken file; None where that is none
    or where nothing was kept.
    """
    found = kept(where.state_dir_of(path))
    return found if unit.in_a_run() and found.exists() else None


def kept(state_dir: Path) -> Path:
    """Where the last good configuration is kept."""
    return state_dir / NAME


def _moved(state_dir: str) -> Problem:
    return Problem(
        "runner.toml",
        None,
        "state_dir",
        "cannot change while the daemon runs",
        f"restart runner serve, or write {state_dir} again",
    )


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """What changes when a file is written, replaced or touched; None where it is not there."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
