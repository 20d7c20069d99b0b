"""The GPUs of this machine: NVML in a child, nvidia-smi, or amdgpu's files. It must not judge."""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields
from typing import Any, Literal

from preflight.box import CRASH, TIMEOUT, Gpu, GpuHealth, GpuProc, GpuReading, Proc, Ran
from preflight.linux import nvml, probe, proc
from preflight.linux.host import LinuxHost, frozen

Reader = Literal["auto", "nvml", "nvidia-smi", "amd"]

_NVML = (sys.executable, "-I", "-m", "preflight.linux.nvml")
_DEVICE = re.compile(r"^/dev/(nvidia(\d+|ctl|-uvm)|kfd|dri/renderD\d+)$")


class LinuxGpus(LinuxHost, ABC):
    """What of the Box is about GPUs. One caller at a time."""

    def __init__(self, nvidia_smi: str | None, reader: Reader) -> None:
        super().__init__()
        self._nvml = probe.Helper(_NVML)
        self._smi = nvidia_smi
        self._gpu_reader = reader

    @abstractmethod
    def process(self, pid: int) -> Proc | None:
        """One process, as far as this user may see it."""

    def gpus(self, *, within: float) -> GpuReading:
        """Every GPU: through NVML, without its library through nvidia-smi, else from amdgpu."""
        return self._once(("gpus",), lambda: self._gpus(within))

    def _gpus(self, within: float) -> GpuReading:
        ends = time.monotonic() + within
        asked = self._gpu_reader
        if asked in ("auto", "nvml"):
            reading = self._through_nvml(within)
            if reading.fault != "absent" or asked == "nvml":
                return reading
        nvidia = GpuReading(fault="absent", said="no AMD GPU is here")
        if asked in ("auto", "nvidia-smi"):
            nvidia = self._through_smi(max(0.0, ends - time.monotonic()))
            if nvidia.fault != "absent" or asked == "nvidia-smi":
                return nvidia
        answer = self._child("amd", within=max(0.0, ends - time.monotonic()))
        amd = self._reading("amd", answer)
        return nvidia if amd.fault == "absent" else amd

    def gpu_health(self, *, within: float) -> tuple[GpuHealth, ...]:
        """How every GPU does, as whoever told its memory tells it; empty where nobody does."""
        return self._once(("health",), lambda: self._health(within))

    def _health(self, within: float) -> tuple[GpuHealth, ...]:
        ends = time.monotonic() + within
        reading = self.gpus(within=within)
        left = max(0.0, ends - time.monotonic())
        rows: list[dict[str, Any]] = []
        if reading.source == "nvml" and not reading.fault:
            with suppress(probe.Lost):
                rows = self._nvml.ask({"verb": "health"}, within=left).get("rows", [])
        elif reading.source == "nvidia-smi" and not reading.fault:
            tool = self._tool()
            if tool is not None:
                ran = probe.run([tool, *nvml.smi_arguments("gpu", nvml.SMI_HEALTH)], within=left)
                rows = nvml.health_from_smi(ran.out)["rows"] if ran.code == 0 else []
        known = {field.name for field in fields(GpuHealth)}
        return tuple(
            GpuHealth(**{key: value for key, value in frozen(row).items() if key in known})
            for row in rows
        )

    def gpu_openers(self) -> tuple[Proc, ...]:
        """Processes that hold a GPU's device open; others' may be looked into with CAP_SYS_PTRACE."""
        return self._once(("openers",), self._openers)

    def _openers(self) -> tuple[Proc, ...]:
        found: list[Proc] = []
        for pid in proc.pids():
            if any(_DEVICE.match(target) for target in proc.open_files(pid)):
                seen = self.process(pid)
                found += [seen] if seen is not None else []
        return tuple(found)

    def _tool(self) -> str | None:
        return self._smi or shutil.which("nvidia-smi", path=os.environ.get("PATH", os.defpath))

    def _through_nvml(self, within: float) -> GpuReading:
        try:
            answer = self._nvml.ask({"verb": "read"}, within=within)
        except probe.Lost as lost:
            said = f"NVML: {lost.said}" if lost.fault == TIMEOUT else lost.said
            return GpuReading(source="nvml", fault=lost.fault, said=said)
        return self._reading("nvml", answer)

    def _through_smi(self, within: float) -> GpuReading:
        ends = time.monotonic() + within
        tool = self._tool()
        if tool is None:
            path = os.environ.get("PATH", os.defpath)
            return GpuReading(fault="absent", said=f"nvidia-smi not found in PATH={path}")
        ran = probe.run([tool, *nvml.smi_arguments("gpu", nvml.SMI_GPUS)], within=within)
        if ran.code != 0:
            return _failed_smi(tool, ran)
        left = max(0.0, ends - time.monotonic())
        apps = probe.run([tool, *nvml.smi_arguments("compute-apps", nvml.SMI_APPS)], within=left)
        if apps.fault == TIMEOUT:
            return _failed_smi(tool, apps)
        listed = apps.out if apps.code == 0 else None
        return self._reading("nvidia-smi", nvml.from_smi(ran.out, listed))

    def _reading(self, source: str, answer: Mapping[str, Any]) -> GpuReading:
        if answer.get("fault"):
            return GpuReading(
                source=source, fault=str(answer["fault"]), said=str(answer.get("said", ""))
            )
        gpus = tuple(self._gpu(gpu) for gpu in answer.get("gpus", ()))
        driver, library = str(answer.get("driver", "")), str(answer.get("library", ""))
        return GpuReading(gpus, source=source, driver=driver, library=library)

    def _gpu(self, seen: Mapping[str, Any]) -> Gpu:
        listed = seen.get("procs", [])
        procs = None
        if listed is not None:
            procs = tuple(
                GpuProc(row["pid"], row["mib"], row["kind"], self.process(row["pid"]))
                for row in listed
            )
        known = {field.name for field in fields(Gpu)} - {"procs"}
        return Gpu(procs=procs, **{key: value for key, value in seen.items() if key in known})


def _failed_smi(tool: str, ran: Ran) -> GpuReading:
    if ran.fault:
        fault = ran.fault if ran.fault in (TIMEOUT, CRASH) else "absent"
        said = ran.said if fault == TIMEOUT else f"{tool} cannot be started: {ran.said}"
        return GpuReading(source="nvidia-smi", fault=fault, said=said)
    words = ran.last_line
    fault = "error"
    if "version mismatch" in words.lower():
        fault = "mismatch"
    elif "couldn't communicate with the nvidia driver" in f"{ran.out} {ran.err}".lower():
        fault = "not-loaded"
    elif "no devices were found" in f"{ran.out} {ran.err}".lower():
        return GpuReading(source="nvidia-smi")
    return GpuReading(source="nvidia-smi", fault=fault, said=f"{tool}: {words or ran.code}")
