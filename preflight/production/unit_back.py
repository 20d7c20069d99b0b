"""The way back of a service that systemd drives: would a start bring up what runs now?

Everything systemd itself says of the unit, and what lies on disk beside it. It changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from preflight.box import TIMEOUT, Box, FileFact, Proc, Unit
from preflight.files.paths import Trouble
from preflight.production.control import unit_of
from preflight.verdict import State
from preflight.wording import clipped, command, when

_RULES = (
    ("LoadState", "loaded", "{unit} is {value}, not loaded", "see: systemctl status {unit}"),
    ("CanStart", "yes", "{unit} cannot be started by hand", "see: systemctl cat {unit}"),
    ("CanStop", "yes", "{unit} cannot be stopped by hand", "see: systemctl cat {unit}"),
    (
        "NeedDaemonReload",
        "no",
        "{unit}'s file changed since systemd read it: a restart would start something else",
        "systemctl daemon-reload, and see that production still comes up with it",
    ),
)
_REQUIRED = " (ignore_errors=no)"
_DISABLED = ("disabled", "masked-runtime")


def unit_troubles(
    box: Box, supervisor: Mapping[str, Any], pid: int | None, *, within: float
) -> Iterator[Trouble]:
    """Everything that stands between this unit and a start that brings the same production back."""
    unit = unit_of(box, supervisor, within=within)
    if unit.fault:
        found = f"systemd does not tell about {unit.name}: {clipped(unit.said, 160)}"
        yield Trouble(State.UNKNOWN, found, f"try: systemctl show {unit.name}")
        return
    state = unit.get("UnitFileState")
    if state.startswith("masked"):
        found = f"{unit.name} is masked: it can be stopped but not started"
        yield Trouble(State.FAIL, found, f"systemctl unmask {unit.name}")
        return
    if state == "transient":
        found = f"{unit.name} was made by systemd-run: once stopped it is gone for good"
        yield Trouble(State.FAIL, found, "write a unit file for it")
        return
    for key, wanted, found, remedy in _RULES:
        if unit.get(key) != wanted:
            value = unit.get(key) or "unknown"
            said = found.format(unit=unit.name, value=value)
            yield Trouble(State.FAIL, said, remedy.format(unit=unit.name))
    if state in _DISABLED:
        found = f"{unit.name} is not enabled: after a reboot in the night it would stay down"
        yield Trouble(State.WARN, found, f"systemctl enable {unit.name}")
    yield from _on_disk(box, unit, within)
    yield from _changed(box, unit, pid, within)


def _on_disk(box: Box, unit: Unit, within: float) -> Iterator[Trouble]:
    """What systemd opens at a start beside the program: environment files, a directory."""
    wanted = {
        line.removesuffix(_REQUIRED): "environment file"
        for line in unit.get("EnvironmentFiles").splitlines()
        if line.startswith("/") and line.endswith(_REQUIRED)
    }
    place = unit.get("WorkingDirectory")
    if place.startswith("/"):
        wanted[place] = "working directory"
    for fact in box.files(list(wanted), within=within):
        what = f"{unit.name}'s {wanted[fact.path]} {fact.path}"
        # systemd reads as root: what only we may not see is no trouble
        if fact.fault in ("ENOENT", "ENOTDIR", "ELOOP"):
            yield Trouble(State.FAIL, f"{what} is gone", "put it back")
        elif fact.fault == TIMEOUT:
            yield Trouble(State.UNKNOWN, f"{what}: {fact.said}", "see whether its disk answers")


def _changed(box: Box, unit: Unit, pid: int | None, within: float) -> Iterator[Trouble]:
    """The unit as it is loaded beside the process that it once started."""
    main = box.process(pid) if pid is not None else None
    if main is None:
        return
    files = [unit.get("FragmentPath"), *unit.get("DropInPaths").split()]
    facts = box.files([path for path in files if path.startswith("/")], within=within)
    newer = [fact for fact in facts if _written_after(fact, main)]
    if newer:
        at = when(max(fact.mtime_ns for fact in newer) / 1e9)
        found = f"{newer[0].path} was changed at {at}, after {unit.name} was started"
        yield Trouble(State.WARN, found, f"see what changed: systemctl cat {unit.name}")
    started = _argv(unit.get("ExecStart"))
    if started and main.pid == int(unit.get("MainPID") or 0) and started != " ".join(main.argv):
        found = f"{unit.name} would start another command now than the one that runs"
        yield Trouble(State.WARN, f"{found} ({command(started.split())})", "see: systemctl cat")


def _written_after(fact: FileFact, proc: Proc) -> bool:
    return not fact.fault and proc.since is not None and fact.mtime_ns / 1e9 > proc.since + 1


def _argv(shown: str) -> str:
    """The one command of ExecStart; empty where it has variables or there are several."""
    if shown.count("argv[]=") != 1 or "$" in shown or "%" in shown:
        return ""
    return shown.partition("argv[]=")[2].partition(" ; ")[0].strip()
