"""The host of a made-up machine: texts, units, terminals, logs, as the test wrote them down."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from preflight.box import (
    ClockFact,
    GpuHealth,
    Held,
    KernelLog,
    Listener,
    Proc,
    Running,
    Terminal,
    Text,
    Unit,
)


def a_unit(name: str = "llama.service", **values: str) -> Unit:
    """A loaded, enabled unit that runs, changed as the test wishes."""
    known = {
        "Id": name,
        "LoadState": "loaded",
        "ActiveState": "active",
        "SubState": "running",
        "UnitFileState": "enabled",
        "CanStart": "yes",
        "CanStop": "yes",
        "NeedDaemonReload": "no",
        "Restart": "no",
        "KillMode": "control-group",
        "TimeoutStopUSec": "1min 30s",
    }
    return Unit(name, known | values)


@dataclass
class FakeHost:
    """Answers from its tables; a text or a unit that is in none of them does not exist."""

    paper: dict[str, str] = field(default_factory=dict)
    """Small text files, by their path."""
    torn: dict[str, str] = field(default_factory=dict)
    """Path of a text that cannot be read -> the errno's name."""
    unit_facts: dict[str, Unit] = field(default_factory=dict)
    all_processes: list[Running] = field(default_factory=list)
    locked: dict[str, tuple[int, ...]] = field(default_factory=dict)
    open_terminals: list[Terminal] = field(default_factory=list)
    time: ClockFact = field(default_factory=lambda: ClockFact(error_ms=12.0))
    log: KernelLog = field(default_factory=KernelLog)
    rows_elsewhere: list[Listener] = field(default_factory=list)
    connected: dict[int, int | None] = field(default_factory=dict)
    takers: set[tuple[str, int]] = field(default_factory=set)
    """Where a connection is taken although nobody listens."""
    healths: list[GpuHealth] = field(default_factory=list)
    openers: list[Proc] = field(default_factory=list)
    """Who holds a GPU's device open."""

    @contextmanager
    def moment(self) -> Iterator[None]:
        """Its tables do not change by themselves."""
        yield

    def has_units(self, *units: Unit) -> Any:
        """The same box, with these units."""
        self.unit_facts |= {unit.name: unit for unit in units}
        return self

    def texts(self, paths: Sequence[str], *, within: float) -> tuple[Text, ...]:
        """What was written down."""
        del within
        return tuple(self._text(path) for path in paths)

    def _text(self, path: str) -> Text:
        if path in self.paper:
            return Text(path, self.paper[path])
        return Text(path, fault=self.torn.get(path, "ENOENT"), said="not readable")

    def units(self, names: Sequence[str], *, scope: str, within: float) -> tuple[Unit, ...]:
        """The units; without any systemd itself is not there."""
        del scope, within
        nowhere = "System has not been booted with systemd as init system"
        return tuple(
            self.unit_facts.get(name) or Unit(name, fault="EIO", said=nowhere) for name in names
        )

    def locks(self, paths: Sequence[str], *, within: float) -> tuple[Held, ...]:
        """Nobody holds a lock unless the test says so."""
        del within
        return tuple(Held(path, self.locked.get(path, ())) for path in paths)

    def terminals(self, *, within: float) -> tuple[Terminal, ...]:
        """The terminals that are open."""
        del within
        return tuple(self.open_terminals)

    def clock(self, *, within: float) -> ClockFact:
        """The one clock."""
        del within
        return self.time

    def kernel_log(self, pattern: str, *, within: float) -> KernelLog:
        """The one log."""
        del pattern, within
        return self.log

    def table(self) -> tuple[Running, ...]:
        """Every process that was written down."""
        return tuple(self.all_processes)

    def elsewhere(self, port: int) -> tuple[Listener, ...]:
        """The rows of other namespaces."""
        return tuple(row for row in self.rows_elsewhere if row.port == port)

    def connections(self, port: int) -> int | None:
        """As many as were said to be open."""
        return self.connected.get(port, 0)

    def gpu_health(self, *, within: float) -> tuple[GpuHealth, ...]:
        """How each GPU was said to do."""
        del within
        return tuple(self.healths)

    def gpu_openers(self) -> tuple[Proc, ...]:
        """Those that were said to hold one open."""
        return tuple(self.openers)

    def answered(self, host: str, port: int, *, within: float) -> bool:
        """Whether somebody was said to take connections there."""
        del within
        return (host, port) in self.takers
