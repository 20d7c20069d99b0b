"""What is installed on a box beside what would be made for it, as verdicts. It changes nothing."""

import grp
import os
import pwd
import shutil
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from preflight.box import Box
from preflight.verdict import BlastRadius, State, Verdict
from runner.settings import Settings
from runner.supervisors import Systemd
from runner.units import texts
from runner.units.place import MEMBERS, Place, place_of

RUNNING = "run/systemd/system"
ENABLED = ("runner.service", "runner-recover.service", "runner-recover.timer")
ASKED = ("systemctl", "show", "--property=Id,NeedDaemonReload,UnitFileState", "--", *ENABLED)
_WITHIN_S = 5.0
_REMEDY = "runner install-units --write, as root"


def installed(path: str, root: Path) -> str | None:
    """The text that is there, None where there is none. Raises PermissionError."""
    try:
        return (root / path.lstrip("/")).read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None


def examine(
    config: Path, settings: Settings, box: Box, *, root: Path = Path("/")
) -> Iterator[Verdict]:
    """Whether this box has the units that its configuration asks for.

    Says nothing on a box without systemd. Where nothing is installed that is a warning only if
    production is a unit, since then runs need the rule; anybody may run a job by hand.
    """
    if not (root / RUNNING).is_dir():
        return
    place = place_of(config, settings)
    wanted = texts.all_files(place)
    state, found, whole = _files(wanted, root)
    if not whole:
        driven = any(isinstance(each.supervisor, Systemd) for each in settings.production)
        yield _says(
            "units",
            State.WARN if driven else State.SKIPPED,
            "not installed: runs have no guardian of their own and nothing recovers at boot",
            remedy=_REMEDY,
        )
        return
    yield _says("units", state, found, remedy="" if state is State.PASS else _REMEDY)
    yield from _loaded(box)
    yield from _people(place)
    yield from _secrets(place)


def _files(wanted: dict[str, str], root: Path) -> tuple[State, str, bool]:
    """The worst of all files, in words, and whether anything is installed at all."""
    missing, differing, unread = [], [], []
    for path, text in wanted.items():
        name = Path(path).name
        try:
            there = installed(path, root)
        except PermissionError:
            unread.append(name)  # polkit keeps its rules to itself
            continue
        if there is None:
            missing.append(name)
        elif there != text:
            differing.append(f"{name} {_difference(there, text)}")
    whole = len(missing) + len(unread) < len(wanted)
    if missing or differing:
        gone = [f"{', '.join(missing)} missing"] if missing else []
        return State.FAIL, "; ".join(gone + differing), whole
    if unread:
        return State.UNKNOWN, f"{', '.join(unread)} cannot be read by this user", whole
    return State.PASS, f"{len(wanted)} files are as this configuration asks for", whole


def _difference(there: str, wanted: str) -> str:
    """The first line that differs."""
    for is_line, line in zip_longest(there.splitlines(), wanted.splitlines(), fillvalue=""):
        if is_line != line:
            return f"has `{is_line}`, wanted `{line}`"
    return "ends otherwise"


def _loaded(box: Box) -> Iterator[Verdict]:
    """Whether systemd knows the files as they are, and starts what must start by itself."""
    ran = box.run(ASKED, within=_WITHIN_S)
    if ran.code != 0:
        yield _says("units", State.UNKNOWN, f"systemd does not tell: {ran.said or ran.last_line}")
        return
    shown = [
        dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        for block in ran.out.split("\n\n")
    ]
    if any(unit.get("NeedDaemonReload") == "yes" for unit in shown):
        yield _says(
            "units",
            State.FAIL,
            "systemd still has older files in memory",
            remedy="systemctl daemon-reload",
        )
    sleeping = [
        unit.get("Id", "?") for unit in shown if unit.get("UnitFileState") not in {"enabled", ""}
    ]
    if sleeping:
        yield _says(
            "units",
            State.FAIL,
            f"{', '.join(sleeping)} would not start at boot",
            remedy=f"systemctl enable --now {' '.join(sleeping)}",
        )


def _people(place: Place) -> Iterator[Verdict]:
    try:
        pwd.getpwnam(place.user)
    except KeyError:
        yield _says(
            "user",
            State.FAIL,
            f"the units run as {place.user}, and there is no such user",
            remedy=f"useradd --system --home-dir {place.state_dir} --shell /usr/sbin/nologin"
            f" {place.user}",
        )
    try:
        grp.getgrnam(MEMBERS)
    except KeyError:
        yield _says(
            "user",
            State.WARN,
            f"there is no group {MEMBERS}: only root starts runs",
            remedy=f"groupadd --system {MEMBERS}; usermod --append --groups {MEMBERS} SOMEBODY",
        )
    if place.services and not (
        shutil.which("pkcheck") or Path("/usr/lib/polkit-1/polkitd").exists()
    ):
        yield _says(
            "polkit",
            State.FAIL,
            f"polkit is not here, so {place.user} may not start and stop production",
            remedy="apt-get install polkitd",
        )


def _secrets(place: Place) -> Iterator[Verdict]:
    """The files of the credentials: there, and closed to others. Never what stands in them."""
    for name in place.credentials:
        path = place.secret_file(name)
        try:
            mode = os.stat(path).st_mode & 0o777
        except FileNotFoundError:
            yield _says(
                "credential",
                State.FAIL,
                f"{path} is not there, so the units know no {name}",
                remedy=f"write it, then: chmod 600 {path}",
            )
            continue
        except OSError:
            continue  # only root may look into the directory; then others cannot read it either
        if mode & 0o077:
            yield _says(
                "credential",
                State.WARN,
                f"{path} can be read by other users (mode {mode:o})",
                remedy=f"chmod 600 {path}",
            )


def _says(what: str, state: State, found: str, *, remedy: str = "") -> Verdict:
    return Verdict(
        id=f"self.{what}",
        state=state,
        subject="systemd units" if what == "units" else what,
        wanted="installed as `runner install-units` makes them" if what == "units" else "",
        found=found,
        remedy=remedy,
        radius=BlastRadius.SELF,
    )
