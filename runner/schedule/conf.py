"""The configuration as it is now: taken up when it changes, kept when the change is broken.

A run that goes on keeps what it began with: it is a process of its own and has read the files.
"""

import os
from pathlib import Path

from jobs.errors import ConfigError, Problem, render
from runner.schedule.incidents import Incidents
from runner.settings import Settings, load_settings

_KEY = "config"


class Live:
    """runner.toml, followed."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigError: a daemon does not begin with a broken configuration."""
        self.path = path
        self._stamp = _stamp(path)
        self.settings = load_settings(path)
        self.broken = ""

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
        return True

    def _read(self) -> Settings:
        settings = load_settings(self.path)
        if settings.state_dir != self.settings.state_dir:
            raise ConfigError(_moved(self.settings.state_dir))
        return settings


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
