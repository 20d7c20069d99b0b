"""Is the candidate's model on the GPU? A build without a GPU part serves from the CPU without a word.

Health is fine then, and a run would measure something else until its time is up. Two signs are asked:
what its processes hold on the cards, and how much less is free than before it loaded.
"""

from collections.abc import Iterable, Mapping

from jobs.servers.llamacpp_memory import without_gpu
from preflight.box import Box, GpuReading
from preflight.check import Check, Deadline
from preflight.gpu.budget import GpuBudget
from preflight.models import fit
from preflight.models.fit import Load
from preflight.models.memory import Shape
from preflight.wording import memory
from runner.gpu_memory import held_mib

_WITHIN_S = 10.0
_ARMS = ("candidate", "baseline")
_LEAST_MIB = 256
"""Less than this is lost in what desktops and drivers move."""
_SHARE = 0.5
"""Of the weights that have to be there; of a number that a person named, half as much."""


def expected(checks: Iterable[Check], box: Box) -> dict[str, int]:
    """Arm → MiB that must at least be on the GPU once it is ready; 0 is left out."""
    found: dict[str, int] = {}
    for check in checks:
        if not isinstance(check, GpuBudget):
            continue
        named = (check.need_mib or 0) * _SHARE
        weights = {load.arm: _weights(load, box) for load in check.loads}
        for arm, mib in (weights or dict.fromkeys(_ARMS, 0.0)).items():
            least = 0 if mib is None else round(max(mib, named) * _SHARE)
            if least >= _LEAST_MIB:
                found[arm] = max(least, found.get(arm, 0))
    return found


def _weights(load: Load, box: Box) -> float | None:
    """MiB of weights that a load puts on the GPU; None where it is meant for the CPU."""
    if load.on_gpu == 0:
        return None
    models = fit.read(load, box, Deadline(_WITHIN_S))
    if isinstance(models, fit.Unread):
        return 0.0
    size = Shape(models.model).weights(load.on_gpu, mtp=load.mtp)
    return size / (1 << 20)


class Placement:
    """The cards before an arm loads, and the question when it says that it is ready."""

    def __init__(self, least: Mapping[str, int], box: Box) -> None:
        self._least, self._box = least, box
        self._before: GpuReading | None = None

    def begin(self) -> None:
        """Look at the cards: whatever is used from now on is the arm's."""
        self._before = self._box.gpus(within=_WITHIN_S) if self._least else None

    def missing(self, arm: str, pids: set[int], log: str) -> str | None:
        """Why this arm's model is not on the GPU; None where it is, or where nothing can be told."""
        least, before = self._least.get(arm), self._before
        if least is None or before is None or before.fault or not before.gpus:
            return None
        now = self._box.gpus(within=_WITHIN_S)
        if now.fault or any(gpu.fault for gpu in (*before.gpus, *now.gpus)):
            return None
        risen = _free(before) - _free(now)
        held = held_mib(now, pids)
        if max(risen, held or 0) >= least:
            return None
        said = without_gpu(log)
        its_log = f"; its log: {said}" if said else ""
        holds = "" if held is None else f", and its processes hold {memory(held)} there"
        return (
            f"the model is not on the GPU: {memory(max(risen, 0))} more are used than before it "
            f"loaded, at least {memory(least)} were expected{holds}{its_log}"
        )


def _free(reading: GpuReading) -> int:
    return sum(gpu.free_mib for gpu in reading.gpus)
