"""What NVML tells beside memory and processes: health, MIG, memory that the host shares.

Used in the child that reads NVML, with its binding handed in. Plain JSON; it must not judge.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Json = dict[str, Any]

_MIB = 1 << 20
_GPU_SENSOR = 0  # NVML_TEMPERATURE_GPU
_UNCORRECTED, _SINCE_LOADED = 1, 0  # NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC
_REASONS = {
    0x08: "hardware slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
    0x20: "software thermal slowdown",
}
"""The clock event reasons that mean trouble (nvml.h); idle clocks and power caps do not."""
_SHARING = re.compile(r"\b(GB10|Thor|Orin|Xavier|Tegra|Jetson|nvgpu)\b", re.IGNORECASE)
"""Names of GPUs without memory of their own."""
_LIBRARY = re.compile(r"\S*/libnvidia-ml\.so\S*")


def health(nvml: Any, index: int) -> Json:
    """One GPU's state; what it does not support is missing."""
    found: Json = {"index": index}
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        found["uuid"] = nvml.nvmlDeviceGetUUID(handle)
    except nvml.NVMLError as error:
        return found | {"fault": "error", "said": str(error)}
    asked: dict[str, Callable[[], Any]] = {
        "celsius": lambda: nvml.nvmlDeviceGetTemperature(handle, _GPU_SENSOR),
        "slowed": lambda: _words(nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)),
        "uncorrected": lambda: nvml.nvmlDeviceGetTotalEccErrors(
            handle, _UNCORRECTED, _SINCE_LOADED
        ),
        "remapped": lambda: nvml.nvmlDeviceGetRemappedRows(handle),
        "retiring": lambda: bool(nvml.nvmlDeviceGetRetiredPagesPendingStatus(handle)),
        "persistent": lambda: bool(nvml.nvmlDeviceGetPersistenceMode(handle)),
        "shown": lambda: bool(nvml.nvmlDeviceGetDisplayActive(handle)),
        "busy": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu,
    }
    for name, ask in asked.items():
        try:
            found[name] = ask()
        except nvml.NVMLError:
            continue
    remapped = found.pop("remapped", None)
    if remapped is not None:
        found["pending"], found["failed"] = bool(remapped[2]), bool(remapped[3])
    return found


def _words(reasons: int) -> list[str]:
    return [word for bit, word in _REASONS.items() if reasons & bit]


def instances(nvml: Any, handle: Any) -> Iterator[Any] | None:
    """The handles of a GPU's MIG instances; None where MIG is off or not known."""
    try:
        if not nvml.nvmlDeviceGetMigMode(handle)[0]:
            return None
        count = nvml.nvmlDeviceGetMaxMigDeviceCount(handle)
    except nvml.NVMLError:
        return None
    return _instances(nvml, handle, count)


def _instances(nvml: Any, handle: Any, count: int) -> Iterator[Any]:
    for number in range(count):
        try:
            yield nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
        except nvml.NVMLError:
            continue  # a place for an instance that was not made


def shares(name: str) -> bool:
    """Whether a GPU of this name has no memory of its own."""
    return _SHARING.search(name) is not None


def host_memory(text: str | None = None) -> Json:
    """The host's memory in the place of a GPU's, as llama.cpp counts it there.

    Huge pages that were set aside are what such a GPU gets, and nothing else; else what is
    available, the page cache included (ggml-cuda.cu of b11434).
    """
    if text is None:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
    rows = {name: int(value) for name, value in re.findall(r"^(\w+):\s+(\d+)", text, re.MULTILINE)}
    pages = rows.get("HugePages_Total", 0)
    if pages:
        each = rows.get("Hugepagesize", 2048)
        total, free = pages * each, rows.get("HugePages_Free", 0) * each
    else:
        total, free = rows.get("MemTotal", 0), rows.get("MemAvailable", 0)
    return {"total_mib": total // 1024, "free_mib": free // 1024, "unified": True}


def library() -> str:
    """The file of the driver's library as it was loaded; its name ends in its version."""
    try:
        text = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    found = _LIBRARY.search(text)
    return found[0] if found else ""
