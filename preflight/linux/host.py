"""This machine beside its files and its GPUs: texts, units, the table of processes. It must not judge.

What may hang is asked through the reading child or a command with a deadline.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from preflight.box import TIMEOUT
from preflight.host_facts import ClockFact, Held, KernelLog, Running, Terminal, Text, Unit
from preflight.linux import probe, proc
from preflight.linux.files import LinuxFiles

_UNIT_KEYS = (
    "Id,LoadState,ActiveState,SubState,UnitFileState,FragmentPath,DropInPaths,NeedDaemonReload,"
    "CanStart,CanStop,Restart,TriggeredBy,Triggers,PartOf,BindsTo,Requires,Wants,KillMode,"
    "Upholds,RequiredBy,RequisiteOf,BoundBy,ConsistsOf,"
    "TimeoutStopUSec,MainPID,ExecMainStartTimestamp,ExecStart,EnvironmentFiles,WorkingDirectory,"
    "ControlGroup,LimitMEMLOCKSoft,LimitMEMLOCK,LimitCORESoft,MemoryMax,User,Listen"
)
"""Everything that any check wants to know of a unit, so that each is asked for once."""

_KEPT = ("insufficient permissions", "not seeing messages")  # of journalctl
_MOST_LINES = 200
_FIRST_LINE = "Linux version"
"""What the kernel says first of all, at every boot."""

One = TypeVar("One")
Row = TypeVar("Row", Text, Held, Terminal)


def bus(scope: str) -> dict[str, str] | None:
    """Where the user's own systemd listens; cron and sudo leave that out of the environment."""
    return {"XDG_RUNTIME_DIR": f"/run/user/{os.geteuid()}"} if scope == "user" else None


class LinuxHost(LinuxFiles):
    """What of the Box is about the host. One caller at a time."""

    def __init__(self) -> None:
        super().__init__()
        self._moment: dict[tuple[object, ...], object] | None = None

    @contextmanager
    def moment(self) -> Iterator[None]:
        """Within it the tables of the kernel are read once and count as one moment."""
        if self._moment is not None:
            yield
            return
        self._moment = {}
        try:
            yield
        finally:
            self._moment = None

    def _once(self, key: tuple[object, ...], read: Callable[[], One]) -> One:
        """What was read in this moment already, or now; outside of a moment always now."""
        if self._moment is None:
            return read()
        if key not in self._moment:
            self._moment[key] = read()
        return cast("One", self._moment[key])

    def _child(self, verb: str, *, within: float, **more: Any) -> dict[str, Any]:
        try:
            return self._reader.ask({"verb": verb, **more}, within=within)
        except probe.Lost as lost:
            return {"fault": lost.fault, "said": lost.said}

    def _rows(self, kind: type[Row], answer: Mapping[str, Any], paths: Sequence[str]) -> list[Row]:
        """The rows of an answer; where there is none, every path carries the fault."""
        rows: list[dict[str, Any]] = answer.get("rows", [])
        if answer.get("fault"):
            lost = {"fault": answer["fault"], "said": answer.get("said", "")}
            rows = [{"path": path, **lost} for path in paths]
        return [kind(**frozen(row)) for row in rows]

    def texts(self, paths: Sequence[str], *, within: float) -> tuple[Text, ...]:
        """Each of these small files, whole, in order."""
        answer = self._child("texts", within=within, paths=list(paths))
        return tuple(self._rows(Text, answer, paths))

    def locks(self, paths: Sequence[str], *, within: float) -> tuple[Held, ...]:
        """Who holds a lock on each of these files."""
        answer = self._child("locks", within=within, paths=list(paths))
        return tuple(self._rows(Held, answer, paths))

    def terminals(self, *, within: float) -> tuple[Terminal, ...]:
        """Every terminal that is open."""
        return tuple(self._rows(Terminal, self._child("terminals", within=within), ()))

    def clock(self, *, within: float) -> ClockFact:
        """What the kernel knows of its clock."""
        answer = self._child("clock", within=within)
        return ClockFact(
            answer.get("error_ms", 0.0), str(answer.get("fault", "")), str(answer.get("said", ""))
        )

    def kernel_log(self, pattern: str, *, within: float) -> KernelLog:
        """The kernel's own buffer where it may be read and is whole, else the journal's copy."""
        answer = self._child("kernel_log", within=within / 2, pattern=pattern)
        fault, said = str(answer.get("fault", "")), str(answer.get("said", ""))
        own = KernelLog(tuple(answer.get("lines", ())), answer.get("whole", True), fault, said)
        if not fault and own.whole:
            return own
        # a journal that holds nothing of this boot finds nothing either: its first line is the proof
        either = f"({pattern})|{_FIRST_LINE}"
        argv = ["journalctl", "-k", "-b", "-o", "cat", "--no-pager", "-g", either]
        ran = probe.run(argv, within=within / 2)
        if any(word in ran.err for word in _KEPT):
            return KernelLog(fault="EACCES", said=ran.last_line) if fault else own
        if ran.fault == TIMEOUT and fault:
            return KernelLog(fault=TIMEOUT, said=ran.said)
        if ran.code not in (0, 1) or ran.err.strip():  # 1: no line matches
            return own
        told = [line for line in ran.out.splitlines() if not line.startswith("-- ")]
        lines = [line for line in told if _FIRST_LINE not in line or re.search(pattern, line)]
        if any(_FIRST_LINE in line for line in told):
            return KernelLog(tuple(lines[-_MOST_LINES:]))
        return KernelLog(max(own.lines, tuple(lines[-_MOST_LINES:]), key=len), whole=False)

    def units(self, names: Sequence[str], *, scope: str, within: float) -> tuple[Unit, ...]:
        """What systemd tells of these units, all in one question."""
        asked = tuple(names)
        if not asked:
            return ()
        return self._once(("units", asked, scope), lambda: self._units(asked, scope, within))

    def _units(self, names: tuple[str, ...], scope: str, within: float) -> tuple[Unit, ...]:
        user = ["--user"] if scope == "user" else []
        argv = ["systemctl", *user, "--no-ask-password", "show", "-p", _UNIT_KEYS, "--", *names]
        ran = probe.run(argv, within=within, env=bus(scope))
        if ran.code != 0:
            said = ran.said or ran.last_line or f"exit code {ran.code}"
            return tuple(Unit(name, fault=ran.fault or "EIO", said=said) for name in names)
        blocks = ran.out.strip("\n").split("\n\n")
        if len(blocks) != len(names):
            return tuple(Unit(name, fault="EIO", said="systemctl told of others") for name in names)
        return tuple(Unit(name, _pairs(block)) for name, block in zip(names, blocks, strict=True))

    def table(self) -> tuple[Running, ...]:
        """Every process that can be seen; those that vanish while they are read are left out."""
        return self._once(("table",), lambda: tuple(map(_running, self._stats().values())))

    def _stats(self) -> dict[int, proc.Stat]:
        return self._once(("stats",), proc.stats)

    def connections(self, port: int) -> int | None:
        """Open connections to a local port; None when the tables cannot be read."""
        try:
            return proc.established(port)
        except (OSError, ValueError):
            return None

    def answered(self, host: str, port: int, *, within: float) -> bool:
        """Whether anybody takes a connection there; for ports on which nobody listens here."""
        answer = self._child("answered", within=within + 0.25, host=host, port=port, limit=within)
        return bool(answer.get("answered"))


def frozen(row: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a fact: lists of JSON as tuples."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}


def _pairs(text: str) -> dict[str, str]:
    """The properties of one unit; one that is told several times keeps all its lines."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        key, sign, value = line.partition("=")
        if sign:
            found[key] = f"{found[key]}\n{value}" if key in found else value
    return found


def _running(found: proc.Stat) -> Running:
    argv, uid = proc.cmdline(found.pid), proc.uid(found.pid)
    return Running(
        pid=found.pid,
        ppid=found.ppid,
        state=found.state,
        comm=found.comm,
        argv=argv or (),
        uid=-1 if uid is None else uid,
        ticks=found.ticks,
        start=found.start,
    )
