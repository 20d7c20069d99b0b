"""Whose is the memory of a GPU? Told apart from the driver's list, and never guessed. Pure but for
one question: who has the GPU's device open, where the list does not account for what is used.

`used` is never believed: it counts what the driver keeps for itself. What nobody accounts for is
said, and is never taken for production's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from preflight.box import Box, Gpu, GpuProc, Running
from preflight.wording import command, memory, named

USUAL_GAP_MIB = 1024
"""Reserved memory and contexts that no process is charged with: 0.3 to 1 GiB on most cards."""


@dataclass(frozen=True, slots=True)
class Budget:
    """One GPU's memory in MiB, told apart."""

    free: int
    production: int | None
    """None when the driver does not say how much production holds."""
    foreign: tuple[GpuProc, ...]
    gap: int
    """Used, but charged to nobody that can be seen."""
    total: int
    unseen: tuple[GpuProc, ...] = ()
    """Rows of the driver's list whose process cannot be seen: ended, or of another namespace."""

    def after_stop(self) -> int:
        """Free once production has gone, as far as the driver says so."""
        return self.free + (self.production or 0)

    @property
    def hidden(self) -> bool:
        """Whether the numbers may not be the whole truth."""
        unsaid = any(row.mib is None for row in self.foreign)
        return self.production is None or unsaid or self.gap > USUAL_GAP_MIB

    @property
    def strangers(self) -> tuple[GpuProc, ...]:
        """Who works on it beside production; a desktop only shows itself there."""
        return tuple(row for row in self.foreign if row.kind != "graphics")


def budget_of(gpus: Sequence[Gpu], family: frozenset[int], resident: int = 0) -> Budget:
    """Add up one or more GPUs; rows that cannot be true are not believed.

    A pid that cannot be seen here belongs to nobody we could name: it may be production's, told
    with the number of another pid namespace. Its memory stays in the gap. `resident` is what
    production holds of the host's memory for itself, in MiB, which on a GPU without memory of its
    own is given back too: the larger of both numbers, since they may be the same pages.
    """
    free = sum(gpu.free_mib for gpu in gpus)
    total = sum(gpu.total_mib for gpu in gpus)
    production: int | None = 0
    foreign: list[GpuProc] = []
    unseen: list[GpuProc] = []
    charged = 0
    for gpu in gpus:
        used = gpu.total_mib - gpu.free_mib
        if gpu.procs is None or not credible(gpu.procs, used):
            production = None
            continue
        for row in gpu.procs:
            if row.pid in family:
                production = None if row.mib is None or production is None else production + row.mib
            elif row.proc is not None:
                foreign.append(row)
            else:
                unseen.append(row)
                continue
            charged += row.mib or 0
    if any(gpu.unified for gpu in gpus) and resident:
        production = max(production or 0, resident)
    gap = max(0, total - free - charged)
    if any(gpu.unified for gpu in gpus):
        gap = 0  # the rest is the host's own business, and is told by MemAvailable
    return Budget(free, production, tuple(foreign), gap, total, tuple(unseen))


def credible(rows: Sequence[GpuProc], used_mib: int) -> bool:
    """R535 drivers mixed up pids and bytes: a list that adds up to more than is used is garbage."""
    return sum(row.mib or 0 for row in rows) <= used_mib * 1.05 + 16


def holder(row: GpuProc) -> str:
    """One row of the driver's list for people."""
    much = memory(row.mib) if row.mib is not None else "an unknown amount"
    argv, user = (row.proc.argv, row.proc.user) if row.proc is not None else ((), "")
    return f"pid {row.pid} {command(argv, 40)} ({user}, {much})"


def unaccounted(box: Box, budget: Budget, family: frozenset[int]) -> tuple[str, ...]:
    """What is known of memory that no visible process is charged with, for the evidence."""
    table = {one.pid: one for one in box.table()}
    said = [_unseen(row, table) for row in budget.unseen]
    listed = {row.pid for row in (*budget.foreign, *budget.unseen)} | family
    openers = [one for one in box.gpu_openers() if one.pid not in listed]
    if openers:
        words = [f"pid {one.pid} {command(one.argv, 40)} ({one.user})" for one in openers]
        said.append(f"has the device open, and is not on the driver's list: {named(words)}")
    return tuple(said)


def _unseen(row: GpuProc, table: Mapping[int, Running]) -> str:
    much = memory(row.mib) if row.mib is not None else "an unknown amount"
    found = table.get(row.pid)
    if found is not None and found.state == "Z":
        return f"pid {row.pid} is a zombie that holds {much}: only a reboot may free it"
    if found is not None:
        return f"pid {row.pid} {found.comm} is ending, and holds {much}"
    return (
        f"pid {row.pid} on the driver's list is not to be seen here, and holds {much}: it has ended "
        "without letting go, or it is a number of another pid namespace"
    )
