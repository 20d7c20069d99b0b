"""Where the configuration and the state directory are. Standard library only: recovery asks too.

Must not know what the configuration means beyond the keys named here: a runner.toml that no
longer validates must still lead recovery to its state directory.
"""

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import tzinfo
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

_SYSTEM = Path("/etc/runner/runner.toml")
_SYSTEM_STATE = Path("/var/lib/runner")
_STATE_DIR_LINE = re.compile(r"""^\s*state_dir\s*=\s*(["'])(/[^"']*)\1""", re.MULTILINE)
_TABLE_LINE = re.compile(r"^\s*\[", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Place:
    """One place where a configuration may lie: which rule names it, and whether it is there."""

    rule: str
    path: Path
    there: bool


@dataclass(frozen=True, slots=True)
class Found:
    """The configuration in use, and every place looked at on the way, in order."""

    path: Path | None
    looked: tuple[Place, ...]

    @property
    def in_words(self) -> str:
        """The places looked at, for an error."""
        return ", ".join(f"{place.path} ({place.rule})" for place in self.looked)

    @property
    def meant(self) -> Path | None:
        """The one in use, or the one that was asked for by name and is gone."""
        return self.path or (self.looked[0].path if len(self.looked) == 1 else None)

    @property
    def paths(self) -> str:
        """The places themselves, for programs."""
        return ", ".join(str(place.path) for place in self.looked)

    @property
    def missing(self) -> str:
        """Why there is none, for an error; one that was asked for by name is not there itself."""
        if len(self.looked) > 1:
            return "there is no runner.toml"
        return "is a directory" if self.looked[0].path.is_dir() else "there is no such file"


def find_config(explicit: str | os.PathLike[str] | None = None) -> Found:
    """The first configuration that is there; one asked for by name ends the search either way."""
    looked: list[Place] = []
    for rule, path, decides in _places(explicit):
        place = Place(rule, path, path.is_file())
        looked.append(place)
        if place.there:
            return Found(path, tuple(looked))
        if decides:
            break
    return Found(None, tuple(looked))


def _places(explicit: str | os.PathLike[str] | None) -> list[tuple[str, Path, bool]]:
    if explicit is not None:
        return [("--config", Path(explicit).absolute(), True)]
    if named := os.environ.get("RUNNER_CONFIG"):
        return [("$RUNNER_CONFIG", Path(named).absolute(), True)]
    return [
        ("./runner.toml", _here() / "runner.toml", False),
        ("$XDG_CONFIG_HOME", _xdg("XDG_CONFIG_HOME", ".config") / "runner.toml", False),
        ("/etc", _SYSTEM, False),
    ]


def _here() -> Path:
    """The current directory; nowhere when it was removed under our feet."""
    try:
        return Path.cwd()
    except OSError:
        return Path("/nonexistent")


def _xdg(name: str, default: str) -> Path:
    base = os.environ.get(name, "")
    # The XDG rules: a relative value is to be ignored.
    root = Path(base) if base.startswith("/") else Path(os.path.expanduser("~")) / default
    return root / "runner"


def read(path: Path) -> dict[str, Any]:
    """The file as plain TOML. Raises OSError, tomllib.TOMLDecodeError or UnicodeDecodeError."""
    return tomllib.loads(path.read_text("utf-8").removeprefix("\ufeff"))


def state_dir(config: Mapping[str, Any] | None = None, path: Path | None = None) -> Path:
    """The state directory: the configured one, else systemd's, else the user's own.

    With the machine's configuration it is the machine's: whoever asks on such a box, a person or a
    unit, is led to the same one.
    """
    named = (config or {}).get("state_dir")
    if isinstance(named, str) and named.startswith("/"):
        return Path(named)
    if given := os.environ.get("STATE_DIRECTORY"):  # systemd may name several, joined by colons
        return Path(given.split(":", 1)[0])
    if path is not None and path.absolute() == _SYSTEM:
        return _SYSTEM_STATE
    return _xdg("XDG_STATE_HOME", ".local/state")


def state_dir_of(path: Path | None) -> Path:
    """The state directory named by a configuration file that may be broken or missing."""
    if path is None:
        return state_dir()
    try:
        return state_dir(read(path), path)
    except (OSError, ValueError):
        pass
    try:
        text = path.read_text("utf-8", errors="replace")
    except OSError:
        return state_dir(None, path)
    first_table = _TABLE_LINE.search(text)
    line = _STATE_DIR_LINE.search(text, 0, first_table.start() if first_table else len(text))
    return state_dir({"state_dir": line.group(2)} if line else None, path)


def jobs_dir(config: Mapping[str, Any] | None, path: Path) -> Path:
    """Where job files lie: the configured directory, else `jobs` beside the configuration."""
    named = (config or {}).get("jobs_dir")
    if isinstance(named, str) and named.startswith("/"):
        return Path(named)
    return path.parent / "jobs"


def local_timezone() -> str:
    """The IANA name of the box's own timezone, `UTC` where it cannot be told."""
    candidates = [os.environ.get("TZ", "").removeprefix(":")]
    try:
        target = str(Path("/etc/localtime").readlink())
        candidates.append(target.partition("zoneinfo/")[2])
    except OSError:
        pass
    for name in candidates:
        if name and _zone(name):
            return name
    return "UTC"


def timezone(config: Mapping[str, Any] | None = None) -> tzinfo:
    """The configured timezone; the box's own where the configured one is missing or unknown."""
    named = (config or {}).get("timezone")
    return (_zone(named) if isinstance(named, str) else None) or ZoneInfo(local_timezone())


def _zone(name: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(name)
    except (ValueError, OSError):
        return None
    except KeyError:  # ZoneInfoNotFoundError
        return None
