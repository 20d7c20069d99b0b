"""The GPU's memory, as a run sees it: who holds how much, and whether it has come back."""

from collections.abc import Callable

from preflight.box import Box
from runner.until import Clock, Stopped, TimedOut, until

MEMORY_BACK_S = 60.0
GPU_WITHIN_S = 20.0
STABLE_MIB = 16
"""Two looks at a GPU's free memory that differ by less show the same: a desktop moves a little."""


def residency(box: Box) -> Callable[[set[int]], float | None]:
    """How many MiB of GPU memory some processes hold; None where no GPU tells."""

    def held(pids: set[int]) -> float | None:
        reading = box.gpus(within=GPU_WITHIN_S)
        if reading.fault or not reading.gpus:
            return None
        total = 0.0
        for gpu in reading.gpus:
            if gpu.procs is None:
                return None
            for one in gpu.procs:
                if one.pid in pids:
                    if one.mib is None:
                        return None
                    total += one.mib
        return total

    return held


def memory_back(members: set[int], box: Box, clock: Clock) -> str:
    """Empty when the GPU has the memory back and stays so for two looks 100 ms apart."""
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
        held = {one.pid for gpu in reading.gpus for one in gpu.procs or ()} & members
        if held:
            last = f"GPU memory is still held by pid {', '.join(map(str, sorted(held)))}"
            return None
        free = tuple(gpu.free_mib for gpu in reading.gpus)
        steady = bool(before) and all(
            abs(was - now) < STABLE_MIB for was, now in zip(before[-1], free, strict=False)
        )
        before.append(free)
        last = "GPU memory is still being given back"
        return True if steady else None

    try:
        until(back, within=MEMORY_BACK_S, clock=clock, every=0.1)
    except (TimedOut, Stopped):
        return last
    return ""
