"""The health of the GPUs: what a card tells of itself, and what the kernel has written about it.

A card that had a fatal error may still run what runs, and start nothing new. Which Xid means what:
NVIDIA's catalogue of Xid errors. It must not know memory budgets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import ClassVar, Literal

from preflight.box import Box, GpuHealth, KernelLog
from preflight.check import Check, Deadline, Explained
from preflight.files.paths import Trouble
from preflight.verdict import BlastRadius, State, Verdict
from preflight.wording import clipped, named

_WORDS = r"NVRM: Xid|amdgpu.*(ring \S+ timeout|GPU reset)"
_XID = re.compile(r"Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+)")
_FATAL = {
    48: "a memory error that could not be corrected",
    64: "a memory row could not be replaced",
    74: "an error of NVLink",
    79: "it has fallen off the bus",
    92: "many memory errors",
    94: "a contained memory error",
    95: "an uncontained memory error",
    119: "its own processor gives no answer",
    120: "its own processor has failed",
}
_MODULES = ("/sys/module/nvidia/version", "/sys/module/amdgpu/initstate")
_IDLE, _HOT = 5, 85
_ORDER = (State.FAIL, State.UNKNOWN, State.WARN)
_LOG_WITHIN_S = 6.0


class GpuHealthy(Check):
    """No card waits for a reset, is hot while it idles, or had a fatal error since the boot."""

    id: ClassVar[str] = "gpu.health"
    radius: ClassVar[BlastRadius] = BlastRadius.GPU
    explains: ClassVar[tuple[Explained, ...]] = (
        Explained(
            "gpu.health",
            reads="temperature, clock event reasons, uncorrectable memory errors, remapped rows and "
            "retired pages from the driver; Xid lines in the kernel's log since the boot "
            "(/dev/kmsg, else journalctl -k -b)",
            passes="none of it",
            warns="above 85 °C while idle, clocks held down by heat or power, an Xid of an "
            "application; there is no kernel log on this machine",
            fails="uncorrectable memory errors, a reset is required, a fatal Xid since the boot "
            f"({', '.join(map(str, _FATAL))})",
            unknown="the kernel's log may not be read, or the driver does not tell",
            skipped="no GPU can be read",
            remedies=(
                "nvidia-smi --gpu-reset, or reboot, while production may be down",
                "let the runner's user read the log: group systemd-journal",
            ),
        ),
    )

    kind: Literal["gpu_health"] = "gpu_health"
    deadline_s: float = 25.0

    @property
    def subject(self) -> str:
        """All of them."""
        return "health of the GPU"

    def look(self, box: Box) -> Verdict:
        """What the driver tells, then what the kernel wrote."""
        time = Deadline(self.deadline_s)
        reading = box.gpus(within=min(20.0, time.left()))
        wanted = "a healthy GPU"
        if reading.fault or not reading.gpus:
            return self.says(State.SKIPPED, "no GPU can be read", wanted="")
        rows = box.gpu_health(within=min(10.0, time.left()))
        troubles = [trouble for row in rows for trouble in _row(row)]
        if not rows and reading.source != "amd":
            yielded = Trouble(
                State.UNKNOWN, "the driver does not tell how it does", "nvidia-smi -q"
            )
            troubles.append(yielded)
        modules = box.texts(_MODULES, within=time.left())
        if any(not one.fault for one in modules):  # without a module here nothing is written here
            log = box.kernel_log(_WORDS, within=min(_LOG_WITHIN_S, time.left()))
            troubles += _log(log)
        evidence = tuple(_words(row) for row in rows)
        if not troubles:
            return self.says(State.PASS, "nothing is wrong", wanted=wanted, evidence=evidence)
        state, found, remedy = min(troubles, key=lambda trouble: _ORDER.index(trouble.state))
        others = tuple(one.found for one in troubles if one.found != found)
        more = (*others, *evidence)
        return self.says(state, found, wanted=wanted, remedy=remedy, evidence=more)


def _row(row: GpuHealth) -> Iterator[Trouble]:
    name, reset = (
        f"GPU {row.index}",
        "nvidia-smi --gpu-reset, or reboot, while production may be down",
    )
    if row.fault:
        yield Trouble(
            State.UNKNOWN, f"{name} does not tell how it does: {row.said}", "nvidia-smi -q"
        )
    if row.uncorrected:
        found = f"{name} had {row.uncorrected} memory errors that could not be corrected"
        yield Trouble(State.FAIL, found, reset)
    if row.failed:
        found = f"{name} has no memory rows left to replace a broken one"
        yield Trouble(State.FAIL, found, "replace the card")
    if row.pending or row.retiring:
        yield Trouble(State.FAIL, f"{name} needs a reset to replace broken memory", reset)
    if row.slowed:
        yield Trouble(State.WARN, f"{name} is held down: {named(row.slowed)}", "see: nvidia-smi -q")
    if row.celsius is not None and row.celsius > _HOT and (row.busy or 0) <= _IDLE:
        found = f"{name} has {row.celsius} °C while it idles"
        yield Trouble(State.WARN, found, "see to its fans before a long run")


def _log(log: KernelLog) -> Iterator[Trouble]:
    """Errors that the kernel wrote down since the boot."""
    if log.fault == "absent":
        found = "this machine has no kernel log: earlier errors of the card are not known"
        yield Trouble(State.WARN, found, "run it on the host")
        return
    if log.fault:
        found = f"the kernel's log may not be read ({log.said or log.fault})"
        yield Trouble(
            State.UNKNOWN, found, "usermod -aG systemd-journal for the runner's user, or accept it"
        )
        return
    for line in log.lines:
        match = _XID.search(line)
        code = int(match[2]) if match else 0
        if code in _FATAL:
            found = f"Xid {code} since the boot ({_FATAL[code]}): {clipped(line, 120)}"
            yield Trouble(
                State.FAIL, found, "reset the card or reboot, while production may be down"
            )
        elif match:
            found = f"Xid {code} since the boot, of an application: {clipped(line, 120)}"
            yield Trouble(State.WARN, found, "see what ran then")
        else:
            yield Trouble(State.WARN, f"since the boot: {clipped(line, 120)}", "see: dmesg")
    if not log.whole:
        found = "the kernel's log no longer reaches back to the boot"
        yield Trouble(State.WARN, found, "let the runner's user read the journal")


def _words(row: GpuHealth) -> str:
    heat = f"{row.celsius} °C" if row.celsius is not None else "temperature not told"
    shown = ", a screen is driven by it" if row.shown else ""
    return f"GPU {row.index}: {heat}, {row.busy if row.busy is not None else '?'} % busy{shown}"
