"""The GPU's memory, as a run sees it: who holds how much, and whether it has come back."""

from collections.abc import Callable, Iterable, Sequence

from preflight.box import Box, GpuReading
from preflight.gpu.budget import GpuBudget
from preflight.verdict import State
from preflight.wording import memory
from runner.until import Clock, Stopped, TimedOut, until

MEMORY_BACK_S = 30.0
"""A driver frees the memory of a process that has ended within seconds; much later it never will."""
GPU_WITHIN_S = 20.0
STABLE_MIB = 16
"""Two looks at a GPU's free memory that differ by less show the same: a desktop moves a little."""


def residency(box: Box) -> Callable[[set[int]], float | None]:
    """How many MiB of GPU memory some processes hold; None where no GPU tells."""

    def held(pids: set[int]) -> float | None:
        reading = box.gpus(within=GPU_WITHIN_S)
        return None if reading.fault or not reading.gpus else held_mib(reading, pids)

    return held


def held_mib(reading: GpuReading, pids: set[int]) -> int | None:
    """MiB of these processes on all cards; None where the driver does not say."""
    total = 0
    for gpu in reading.gpus:
        if gpu.procs is None:
            return None
        for row in gpu.procs:
            if row.pid in pids:
                if row.mib is None:
                    return None
                total += row.mib
    return total


def held_by(members: Iterable[int], reading: GpuReading) -> str:
    """Which of these processes hold how much, and what is free; empty when none holds any."""
    holders: dict[int, int] = {}
    for gpu in reading.gpus:
        for one in gpu.procs or ():
            if one.pid in members:
                holders[one.pid] = holders.get(one.pid, 0) + round(one.mib or 0)
    if not holders:
        return ""
    words = ", ".join(f"{pid} ({memory(mib)})" for pid, mib in sorted(holders.items()))
    free, total = (
        sum(getattr(gpu, of) for gpu in reading.gpus) for of in ("free_mib", "total_mib")
    )
    return f"held by pid {words}; {memory(free)} of {memory(total)} free"


def _short(budgets: Sequence[GpuBudget], box: Box) -> str:
    """Why what the job needs does not fit now that production is down; empty when it does."""
    for one in budgets:
        alone = {"production": (), "production_pids": (), "production_ports": (), "down": True}
        verdict = one.model_copy(update=alone).look(box)
        if verdict.state is State.FAIL:
            return verdict.found
    return ""


def memory_back(
    members: set[int], box: Box, clock: Clock, budgets: Sequence[GpuBudget] = ()
) -> str:
    """Empty when the GPU has the memory back, stays so for two looks 100 ms apart, and what the job
    needs fits into it.
    """
    before: list[tuple[int, ...]] = []
    last = ""

    def back() -> bool | None:
        nonlocal last
        reading = box.gpus(within=GPU_WITHIN_S)
        if reading.fault == "absent" or (not reading.fault and not reading.gpus):
            return True
        if reading.fault:
            last = f"the GPU cannot be read any more: {reading.said or reading.fault}"
            return None
        if held := held_by(members, reading):
            last = f"GPU memory is still {held}"
            return None
        free = tuple(gpu.free_mib for gpu in reading.gpus)
        steady = bool(before) and all(
            abs(was - now) < STABLE_MIB for was, now in zip(before[-1], free, strict=False)
        )
        before.append(free)
        last = "GPU memory is still being given back"
        if steady and (short := _short(budgets, box)):
            last = f"the GPU has too little memory after the stop: {short}"
            return None
        return True if steady else None

    try:
        until(back, within=MEMORY_BACK_S, clock=clock, every=0.1)
    except (TimedOut, Stopped):
        return last
    return ""
