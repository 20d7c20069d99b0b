"""The machine as facts: what a check may ask, and what the answers look like. It must not look.

The real Box is `preflight.linux.box.LinuxBox`; tests hand in a made-up one. No fact is ever invented:
what could not be looked at carries a `fault`, the errno's name or one of the words below.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from preflight.file_facts import (
    Disk,
    FileFact,
    GgufFact,
    ModelFact,
    Neighbour,
    Readable,
    SafetensorsFact,
    Sampled,
    Vocabularies,
)
from preflight.host_facts import ClockFact, Held, KernelLog, Running, Terminal, Text, Unit

__all__ = [
    "ClockFact",
    "Disk",
    "FileFact",
    "GgufFact",
    "Held",
    "KernelLog",
    "ModelFact",
    "Neighbour",
    "Readable",
    "Running",
    "SafetensorsFact",
    "Sampled",
    "Terminal",
    "Text",
    "Unit",
    "Vocabularies",
]

TIMEOUT = "TIMEOUT"
"""No answer within the deadline; `said` names the limit."""
CRASH = "CRASH"
"""The child that looked has died; `said` tells how."""
NOKEY = "NOKEY"
"""A server was not asked, because the API key for it cannot be read; `said` tells why."""


@dataclass(frozen=True, slots=True)
class Proc:
    """One process, as far as this user may see it."""

    pid: int
    start: int
    """Clock ticks since boot: with the pid, its identity."""
    argv: tuple[str, ...] = ()
    uid: int = -1
    user: str = ""
    since: float | None = None
    exe: str | None = None
    cgroup: str | None = None
    unit: str | None = None
    """The systemd service or the container it lives in."""


@dataclass(frozen=True, slots=True)
class Listener:
    """One listening socket and every process that holds it."""

    address: str
    port: int
    v6: bool
    uid: int
    user: str
    inode: int
    owners: tuple[Proc, ...] = ()
    """Empty when this user may not see them."""
    likely: tuple[Proc, ...] = ()
    """Without owners: processes of that user whose command line names the port. A guess."""
    only6: bool = False
    """An IPv6 socket that is known to take no IPv4."""


@dataclass(frozen=True, slots=True)
class Sockets:
    """Who listens; with a fault the tables could not be read, and nothing is known."""

    rows: tuple[Listener, ...] = ()
    fault: str = ""
    said: str = ""


@dataclass(frozen=True, slots=True)
class GpuProc:
    """One process on a GPU; `mib` is None where the driver does not say."""

    pid: int
    mib: int | None
    kind: str = "compute"
    proc: Proc | None = None
    """None when no such process can be seen here."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU; with a fault (`lost`, `unsupported`, …) its numbers mean nothing."""

    index: int
    uuid: str = ""
    name: str = ""
    total_mib: int = 0
    free_mib: int = 0
    procs: tuple[GpuProc, ...] | None = ()
    """None when the driver would not list them."""
    fault: str = ""
    said: str = ""
    unified: bool = False
    """Whether it has no memory of its own: its numbers are the host's."""
    mig: bool = False
    """Whether it is divided: what can be used are its instances, which name it as their parent."""
    parent: str = ""


@dataclass(frozen=True, slots=True)
class GpuHealth:
    """How one GPU does; None for what it does not tell."""

    index: int
    uuid: str = ""
    celsius: int | None = None
    busy: int | None = None
    """Percent of the last moments in which it worked."""
    slowed: tuple[str, ...] = ()
    """Why its clocks are held down, where that means trouble."""
    uncorrected: int | None = None
    """Memory errors since the driver was loaded that could not be corrected."""
    pending: bool | None = None
    """Memory rows wait for a reset of the GPU to be replaced."""
    failed: bool | None = None
    """There was no row left to replace one."""
    retiring: bool | None = None
    persistent: bool | None = None
    shown: bool | None = None
    """Whether a screen is driven by it."""
    fault: str = ""
    said: str = ""


@dataclass(frozen=True, slots=True)
class GpuReading:
    """All GPUs at one moment.

    Faults: "absent" (no driver library and no nvidia-smi), "not-loaded", "mismatch" (a driver
    upgrade waits for its reboot), "lost", "error", TIMEOUT, CRASH.
    """

    gpus: tuple[Gpu, ...] = ()
    source: str = ""
    """"nvml", "nvidia-smi" or "amd"."""
    driver: str = ""
    library: str = ""
    """The file of NVML as it was loaded."""
    fault: str = ""
    said: str = ""


@dataclass(frozen=True, slots=True)
class Ran:
    """A read-only command that was run with a deadline; `code` is None when it did not end."""

    code: int | None
    out: str = ""
    err: str = ""
    fault: str = ""
    said: str = ""

    @property
    def last_line(self) -> str:
        """What it said last, on stderr before stdout: usually the reason."""
        lines = (self.err.strip() or self.out.strip()).splitlines()
        return lines[-1].strip() if lines else ""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server answered; with a fault (an errno's name, TIMEOUT, NOKEY) it did not."""

    status: int = 0
    body: str = ""
    fault: str = ""
    said: str = ""


@dataclass(frozen=True, slots=True)
class Me:
    """Who is looking: this user, in this cgroup."""

    uid: int
    user: str
    cgroup: str | None
    unit: str | None
    line: tuple[int, ...] = ()
    """This process, and behind it its ancestors."""


class Box(Protocol):
    """The machine, read-only. Whatever may hang takes `within`, in seconds."""

    def moment(self) -> AbstractContextManager[None]:
        """Within it the kernel's tables are read once: what is asked there is of one moment."""
        ...

    def files(self, paths: Sequence[str], *, within: float) -> tuple[FileFact, ...]:
        """One fact a path, in order; what the deadline did not reach is TIMEOUT."""
        ...

    def neighbours(self, directory: str, *, within: float) -> tuple[Neighbour, ...]:
        """The files of a directory, newest first; empty when it cannot be listed."""
        ...

    def gguf(self, path: str, *, within: float) -> GgufFact:
        """The header of a GGUF file."""
        ...

    def model(
        self, paths: Sequence[str], *, within: float, overrides: Sequence[tuple[str, str]] = ()
    ) -> ModelFact:
        """All files of one model together, from their headers.

        `overrides` say of some tensors, by regular expressions, that they go to "host" or "gpu".
        """
        ...

    def safetensors(self, paths: Sequence[str], *, within: float) -> tuple[SafetensorsFact, ...]:
        """The header of each safetensors file, or of the index of a split model, in order."""
        ...

    def vocabularies(self, one: str, other: str, *, within: float) -> Vocabularies:
        """The words of two models, compared one by one."""
        ...

    def sampled(self, paths: Sequence[str], *, within: float) -> tuple[Sampled, ...]:
        """What each file is, by a few reads of it; what the deadline did not reach is TIMEOUT."""
        ...

    def readable(
        self, paths: Sequence[str], *, uid: int, pid: int | None, within: float
    ) -> tuple[Readable, ...]:
        """Whether this user may read each file; with `pid` by the groups of that process."""
        ...

    def disk(self, path: str, *, within: float, write: bool) -> Disk:
        """Space below a path; with `write`, whether a synced probe file can be written there."""
        ...

    def listeners(self, port: int) -> Sockets:
        """Every LISTEN row of a port, on all addresses, with its holders."""
        ...

    def elsewhere(self, port: int) -> tuple[Listener, ...]:
        """Who listens on it in other network namespaces, as far as these can be seen."""
        ...

    def connections(self, port: int) -> int | None:
        """Open connections to a local port; None when the tables cannot be read."""
        ...

    def answered(self, host: str, port: int, *, within: float) -> bool:
        """Whether anybody takes a connection there; for ports on which nobody listens here."""
        ...

    def table(self) -> tuple[Running, ...]:
        """Every process that can be seen."""
        ...

    def process(self, pid: int) -> Proc | None:
        """One process; None when it is gone."""
        ...

    def family(self, pid: int) -> frozenset[int]:
        """The live processes that belong with `pid`: its service, container or session."""
        ...

    def unit_members(self, cgroup: str) -> frozenset[int]:
        """The live processes in this cgroup or below it."""
        ...

    def vanished(self, pid: int) -> tuple[tuple[str, int], ...] | None:
        """Files, each with its inode, that a process runs from and that are gone from disk under
        that name; None when it may not be looked at.
        """
        ...

    def gpus(self, *, within: float) -> GpuReading:
        """Every GPU with its free memory and its processes."""
        ...

    def gpu_health(self, *, within: float) -> tuple[GpuHealth, ...]:
        """How every GPU does; empty where nobody tells."""
        ...

    def gpu_openers(self) -> tuple[Proc, ...]:
        """Processes that hold a GPU's device open, as far as they may be looked into."""
        ...

    def run(
        self, argv: Sequence[str], *, within: float, env: Mapping[str, str] | None = None
    ) -> Ran:
        """Run a read-only command without input; past the deadline it is abandoned."""
        ...

    def ask(self, url: str, *, within: float, key: Mapping[str, str] | None = None) -> Answer:
        """GET one URL, without proxies, within a deadline of the wall clock."""
        ...

    def me(self) -> Me:
        """Who is looking."""
        ...

    def texts(self, paths: Sequence[str], *, within: float) -> tuple[Text, ...]:
        """Small text files of the kernel or the system, whole, in order."""
        ...

    def units(self, names: Sequence[str], *, scope: str, within: float) -> tuple[Unit, ...]:
        """What systemd tells of these units; `scope` is "system" or "user"."""
        ...

    def locks(self, paths: Sequence[str], *, within: float) -> tuple[Held, ...]:
        """Who holds a lock on each of these files."""
        ...

    def terminals(self, *, within: float) -> tuple[Terminal, ...]:
        """Every terminal that somebody has open."""
        ...

    def clock(self, *, within: float) -> ClockFact:
        """What the kernel knows of its clock."""
        ...

    def kernel_log(self, pattern: str, *, within: float) -> KernelLog:
        """The lines of the kernel's log since the boot that match a regular expression."""
        ...
