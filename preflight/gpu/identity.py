"""Which GPU? By its UUID, since an index means one thing to the driver and another to CUDA.

CUDA counts the fastest card first unless CUDA_DEVICE_ORDER says otherwise, the driver counts along
the PCI bus (koboldcpp#1023, ollama#9722): the wrong card is used, or the right one is measured on
the wrong. It must not know memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from preflight.box import Box, Gpu, GpuReading
from preflight.check import Check, Deadline, Explained
from preflight.files.paths import Trouble
from preflight.files.recorded import Record
from preflight.verdict import BlastRadius, State, Verdict
from preflight.wording import named

_VENDORS = {"0x8086": "Intel", "0x1002": "AMD"}
_CARDS = tuple(f"/sys/class/drm/card{number}/device/vendor" for number in range(8))
_NONE = ("", "-1", "none", "NoDevFiles")
_UUID = re.compile(r"^(GPU|MIG)-")
_ORDER = (State.FAIL, State.UNKNOWN, State.WARN)


class Visible(BaseModel):
    """What one arm's environment lets it see of the GPUs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    arm: str
    devices: str | None = None
    """CUDA_VISIBLE_DEVICES; None where it is not set."""
    order: str = ""
    """CUDA_DEVICE_ORDER."""


class GpuIdentity(Check):
    """The GPUs that the job names are there, and are those that its arms will see."""

    id: ClassVar[str] = "gpu.identity"
    radius: ClassVar[BlastRadius] = BlastRadius.GPU
    rank: ClassVar[int] = 20
    explains: ClassVar[tuple[Explained, ...]] = (
        Explained(
            "gpu.identity",
            reads="UUID, index, name and MIG instances of every GPU, CUDA_VISIBLE_DEVICES and "
            "CUDA_DEVICE_ORDER of each arm, and the indices when the job last passed",
            passes="every GPU that is named is there, and is the one that the arms see",
            warns="a GPU is named by its index where there are several; the arms see more than the "
            "GPU that is named; CUDA may count the cards in another order; a GPU has another index "
            "than when the job last passed",
            fails="a GPU that is named is not there or is lost; MIG is on and no instance is named; "
            "the environment hides the GPU or shows another one",
            unknown="a GPU of another maker is here, and nobody reads it",
            skipped="no GPU is here and none is asked for; gpu.driver tells why none can be read",
            remedies=(
                "name the UUID: nvidia-smi -L",
                "if the cards were moved on purpose: runner check JOB --record",
                'env = { CUDA_DEVICE_ORDER = "PCI_BUS_ID", CUDA_VISIBLE_DEVICES = … }',
            ),
        ),
    )

    kind: Literal["gpu_identity"] = "gpu_identity"
    gpus: tuple[int | str, ...] = ()
    """The GPUs that the job names, by index or UUID."""
    visible: tuple[Visible, ...] = ()
    asked: bool = False
    record: Record | None = Field(default=None, exclude=True, repr=False)
    """What was recorded when the job last passed, with the index of each GPU."""
    deadline_s: float = 20.0

    @property
    def subject(self) -> str:
        """Those that are named."""
        return (
            named([f"GPU {one}" if isinstance(one, int) else one for one in self.gpus]) or "the GPU"
        )

    def look(self, box: Box) -> Verdict:
        """Names against the machine, then what the arms see against the names."""
        time = Deadline(self.deadline_s)
        reading = box.gpus(within=time.left())
        wanted = "the GPUs that are named"
        if reading.fault or not reading.gpus:
            return self._none(box, reading, time)
        meant = [gpu for one in self.gpus for gpu in _named(one, reading.gpus)]
        troubles = [
            *(trouble for one in self.gpus for trouble in _there(one, reading.gpus)),
            *(trouble for one in self.visible for trouble in self._seen(one, meant, reading.gpus)),
            *self._moved(meant or reading.gpus),
        ]
        evidence = tuple(_words(gpu) for gpu in reading.gpus)
        if not troubles:
            found = named([_words(gpu) for gpu in meant or reading.gpus], 4)
            return self.says(State.PASS, found, wanted=wanted, evidence=evidence)
        state, found, remedy = min(troubles, key=lambda trouble: _ORDER.index(trouble.state))
        others = tuple(one.found for one in troubles if one.found != found)
        more = (*others, *evidence)
        return self.says(state, found, wanted=wanted, remedy=remedy, evidence=more)

    def _none(self, box: Box, reading: GpuReading, time: Deadline) -> Verdict:
        """Nobody reads a GPU; perhaps because nobody here can read this one."""
        if reading.fault not in ("", "absent"):
            return self.says(State.SKIPPED, "no GPU can be read: see gpu.driver", wanted="")
        if not self.asked:
            return self.says(State.SKIPPED, "no GPU is here, and the job asks for none", wanted="")
        texts = box.texts(_CARDS, within=time.left())
        makers = {_VENDORS[one.text.strip()] for one in texts if one.text.strip() in _VENDORS}
        if makers:
            found = f"a GPU of {named(sorted(makers))} is here, and its memory is not read"
            remedy = "accept gpu.identity and gpu.budget with a reason, if you know that it fits"
            return self.says(State.UNKNOWN, found, wanted="a GPU that can be read", remedy=remedy)
        return self.says(State.SKIPPED, "no GPU can be read: see gpu.driver", wanted="")

    def _seen(self, one: Visible, meant: Sequence[Gpu], gpus: Sequence[Gpu]) -> Iterator[Trouble]:
        """What an arm's environment makes of it."""
        whole = [gpu for gpu in gpus if not gpu.parent]
        remedy = "CUDA_VISIBLE_DEVICES = the UUID that is named"
        if one.devices is None:
            if len(whole) > 1 and 0 < len(meant) < len(whole):
                found = f"the {one.arm} sees all {len(whole)} GPUs, and the job names {len(meant)}"
                yield Trouble(State.WARN, found, remedy)
            return
        words = [word.strip() for word in one.devices.split(",")]
        if words[0] in _NONE:
            if self.asked:
                found = f"CUDA_VISIBLE_DEVICES={one.devices!r} hides every GPU from the {one.arm}"
                yield Trouble(State.FAIL, found, remedy)
            return
        found_gpus: list[Gpu] = []
        for word in words:
            matches = _named(int(word) if word.isdigit() else word, gpus)
            if len(matches) != 1:
                found = f"CUDA_VISIBLE_DEVICES of the {one.arm} names {word}, which is not here"
                yield Trouble(State.FAIL, found, "nvidia-smi -L")
                return
            found_gpus += matches
        counted = any(word.isdigit() for word in words)
        if counted and len({gpu.name for gpu in whole}) > 1 and one.order != "PCI_BUS_ID":
            found = (
                f"the {one.arm} is told its GPU by a number, and CUDA counts the fastest first while "
                "the driver counts along the bus"
            )
            yield Trouble(State.WARN, found, "CUDA_DEVICE_ORDER = PCI_BUS_ID, or name the UUID")
        elif meant and {gpu.uuid for gpu in found_gpus} != {gpu.uuid for gpu in meant}:
            found = f"the {one.arm} sees {named([_words(gpu) for gpu in found_gpus])}"
            yield Trouble(State.FAIL, f"{found}, and the job names another", remedy)

    def _moved(self, gpus: Sequence[Gpu]) -> Iterator[Trouble]:
        """Cards that were put in, taken out or counted anew since the job last passed."""
        before = self.record.gpus if self.record is not None else {}
        for gpu in gpus:
            index = before.get(gpu.uuid, gpu.index if gpu.parent or not before else None)
            if index == gpu.index:
                continue
            was = "was not here" if index is None else f"was GPU {index}"
            found = f"is GPU {gpu.index} now, and {was} when the job last passed: {_words(gpu)}"
            yield Trouble(State.WARN, found, "see that the job means this card; then record it")


def _named(wanted: int | str, gpus: Sequence[Gpu]) -> list[Gpu]:
    if isinstance(wanted, int):
        return [gpu for gpu in gpus if gpu.index == wanted and not gpu.parent]
    return [gpu for gpu in gpus if gpu.uuid.startswith(wanted)] if _UUID.match(wanted) else []


def _there(wanted: int | str, gpus: Sequence[Gpu]) -> Iterator[Trouble]:
    """One name against the machine."""
    found = _named(wanted, gpus)
    what = f"GPU {wanted}" if isinstance(wanted, int) else wanted
    listed = named([_words(gpu) for gpu in gpus], 8)
    if len(found) != 1:
        said = "names several GPUs" if found else "is not here"
        yield Trouble(State.FAIL, f"{what} {said} ({listed})", "name one: nvidia-smi -L")
        return
    (gpu,) = found
    if gpu.fault == "lost":
        yield Trouble(State.FAIL, f"{what} is lost: {gpu.said}", "reboot, then look at the card")
    elif gpu.mig:
        parts = [one.uuid for one in gpus if one.parent == gpu.uuid]
        said = f"name one of {named(parts, 7)}" if parts else "and it has no instance"
        yield Trouble(
            State.FAIL, f"MIG is on for {what}: {said}", '[needs] gpu = [{ uuid = "MIG-…" }]'
        )
    elif isinstance(wanted, int) and sum(not one.parent for one in gpus) > 1:
        said = f"{what} is {gpu.uuid} today; an index may be another card after a reboot"
        yield Trouble(State.WARN, said, f'name it: uuid = "{gpu.uuid}"')


def _words(gpu: Gpu) -> str:
    return f"{gpu.index}: {gpu.uuid} {gpu.name}".rstrip()
