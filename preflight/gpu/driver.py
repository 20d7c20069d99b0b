"""The driver of the GPU: does it answer, and would it still answer to a process that starts now?

A driver that was upgraded under a running production answers nobody new until the machine is
rebooted. Then nothing may be stopped: it could not come back.
"""

from __future__ import annotations

import re
from typing import ClassVar, Literal

from pydantic import Field

from preflight.box import CRASH, TIMEOUT, Box, GpuReading
from preflight.check import Check, Deadline, Explained
from preflight.files.paths import Trouble
from preflight.files.recorded import Record
from preflight.verdict import BlastRadius, State, Verdict
from preflight.wording import clipped, named

_LOADED = "/sys/module/nvidia/version"
_REQUIRED, _PACKAGES = "/run/reboot-required", "/run/reboot-required.pkgs"
_VERSION = re.compile(r"\.so\.(\d{3,}[\d.]*)")
_STUCK = (
    "production runs on, but nothing new can start on the GPU: stopping it now means that it cannot "
    "come back"
)
_MISMATCH = (
    "library and loaded driver differ ({said}): nothing new can start on the GPU until a reboot, "
    "so production could not come back"
)
_FAULTS: dict[str, Trouble] = {
    "absent": Trouble(
        State.FAIL,
        "no NVIDIA driver library, and {said}",
        "install the driver, or name nvidia-smi in [gpu] nvidia_smi",
    ),
    "not-loaded": Trouble(
        State.FAIL, "the NVIDIA driver is not loaded ({said})", "load it, or reboot"
    ),
    "mismatch": Trouble(
        State.FAIL,
        _MISMATCH,
        "reboot first",
    ),
    "lost": Trouble(
        State.FAIL, "a GPU has fallen off the bus ({said})", "reboot, then look at the card"
    ),
    TIMEOUT: Trouble(State.UNKNOWN, "{said} (timeout: is the driver stuck?)", "try: nvidia-smi"),
    CRASH: Trouble(
        State.UNKNOWN, "the GPU reader died: {said} (a lost GPU does that)", "try: nvidia-smi"
    ),
    "error": Trouble(State.UNKNOWN, "the driver answers: {said}", "try: nvidia-smi"),
}


def reading_trouble(reading: GpuReading) -> Trouble:
    """Why the GPUs cannot be read, in words."""
    known = _FAULTS.get(reading.fault, _FAULTS["error"])
    return known._replace(found=known.found.format(said=reading.said))


class GpuDriver(Check):
    """The driver answers."""

    id: ClassVar[str] = "gpu.driver"
    radius: ClassVar[BlastRadius] = BlastRadius.GPU
    rank: ClassVar[int] = 10
    explains: ClassVar[tuple[Explained, ...]] = (
        Explained(
            "gpu.driver",
            reads="NVML in a child with a deadline; where its library is not there nvidia-smi, then "
            "the files of amdgpu",
            passes="it answers",
            warns="persistence mode is off: the first start after production takes longer; it is "
            "another driver than when the job last passed",
            fails="library and loaded driver differ, so that nothing new can start until a reboot; a "
            "GPU has fallen off the bus; the driver is not there or not loaded, and the job asks for "
            "a GPU",
            unknown="no answer within the deadline, the reader died, or the driver gives an error",
            skipped="no GPU is here, and the job asks for none",
            remedies=(
                "nvidia-smi shows the same",
                "reboot",
                "nvidia-smi -pm 1",
                "if another driver is meant: runner check JOB --record",
            ),
        ),
    )

    kind: Literal["gpu_driver"] = "gpu_driver"
    asked: bool = False
    """Whether the job names a GPU."""
    record: Record | None = Field(default=None, exclude=True, repr=False)
    """What was recorded when the job last passed, with the driver."""
    deadline_s: float = 20.0

    @property
    def subject(self) -> str:
        """The one there is."""
        return "the driver of the GPU"

    def look(self, box: Box) -> Verdict:
        """One reading, which the others of this ring share."""
        time = Deadline(self.deadline_s)
        reading = box.gpus(within=time.left())
        wanted = "a driver that answers"
        none = reading.fault in ("absent", "not-loaded") or not (reading.fault or reading.gpus)
        if none and not self.asked:
            found = "no GPU can be seen here, and the job asks for none"
            return self.says(State.SKIPPED, found, wanted="", evidence=(reading.said,))
        if reading.fault:
            state, found, remedy = reading_trouble(reading)
            return self.says(state, found, wanted=wanted, remedy=remedy)
        names = named([gpu.name or gpu.uuid for gpu in reading.gpus if not gpu.parent], 4)
        found = f"{reading.driver or 'it'} answers through {reading.source}: {names or 'no GPU'}"
        before = self.record.driver if self.record is not None else ""
        if before and reading.driver and before != reading.driver:
            found += f"; was {before} when the job last passed"
            remedy = "if this driver is meant: runner check JOB --record"
            return self.says(State.WARN, found, wanted="the driver it ran with", remedy=remedy)
        cold = [one for one in box.gpu_health(within=time.left()) if one.persistent is False]
        if cold:
            found += f"; persistence mode is off for GPU {named([str(one.index) for one in cold])}"
            return self.says(State.WARN, found, wanted=wanted, remedy="nvidia-smi -pm 1, as root")
        return self.says(State.PASS, found, wanted=wanted)


class GpuPending(Check):
    """No upgrade of the driver waits for a reboot."""

    id: ClassVar[str] = "gpu.pending"
    radius: ClassVar[BlastRadius] = BlastRadius.GPU
    explains: ClassVar[tuple[Explained, ...]] = (
        Explained(
            "gpu.pending",
            reads=f"the version of the loaded module ({_LOADED}), of the one on disk (modinfo) and "
            f"of NVML's library; {_PACKAGES}",
            passes="all are of one version",
            warns="a reboot is pending for the kernel; another driver comes with the next reboot",
            fails="the driver was upgraded and the old module is loaded: production could not come "
            "back",
            unknown="the module on disk cannot be read, and the library does not tell its version",
            skipped="no NVIDIA module is loaded here",
            remedies=("reboot first",),
        ),
    )

    kind: Literal["gpu_pending"] = "gpu_pending"
    deadline_s: float = 25.0

    @property
    def subject(self) -> str:
        """Loaded and installed."""
        return "the installed driver"

    def look(self, box: Box) -> Verdict:
        """What is loaded, what is on disk, what waits."""
        time = Deadline(self.deadline_s)
        loaded, required, packages = box.texts([_LOADED, _REQUIRED, _PACKAGES], within=time.left())
        version = loaded.text.strip()
        if not version:
            return self.says(State.SKIPPED, "no NVIDIA module is loaded here", wanted="")
        upgraded = [line for line in packages.text.splitlines() if "nvidia" in line]
        if upgraded:
            found = f"{named(upgraded)} was upgraded, and module {version} is loaded: {_STUCK}"
            return self._says(State.FAIL, found, "reboot first")
        match = _VERSION.search(box.gpus(within=min(20.0, time.left())).library)
        library = match[1].rstrip(".") if match else ""
        ran = box.run(["modinfo", "-F", "version", "nvidia"], within=min(5.0, time.left()))
        disk = ran.out.strip() if ran.code == 0 else ""
        if library and library != version:
            found = f"library {library} is installed, and module {version} is loaded: {_STUCK}"
            return self._says(State.FAIL, found, "reboot first")
        if disk and disk != version and not library:
            found = f"driver {disk} is installed, and module {version} is loaded: {_STUCK}"
            return self._says(State.FAIL, found, "reboot first")
        if not disk and not library:
            why = clipped(ran.said or ran.last_line or "modinfo says nothing", 120)
            found = f"module {version} is loaded; what is installed is not told: {why}"
            return self._says(State.UNKNOWN, found, "try: modinfo -F version nvidia")
        return self._reboot(version, disk, pending=not required.fault)

    def _reboot(self, version: str, disk: str, *, pending: bool) -> Verdict:
        if disk and disk != version:
            found = f"module {version} is loaded, {disk} comes with the next reboot"
            return self._says(State.WARN, found, "reboot when production may be down")
        if pending:
            found = f"module {version} is loaded and installed; a reboot is pending for the kernel"
            return self._says(State.WARN, found, "reboot when production may be down")
        return self._says(State.PASS, f"module {version} is loaded and installed")

    def _says(self, state: State, found: str, remedy: str = "") -> Verdict:
        return self.says(state, found, wanted="one version, loaded and installed", remedy=remedy)
