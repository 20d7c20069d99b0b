"""The child that reads the GPUs through NVML, and the words of nvidia-smi where there is no NVML.

NVML can hang for ever and can take its process with it when a GPU falls off the bus, so it is only
ever loaded in here: `python -I -m preflight.linux.nvml` answers one JSON line to each line of its input.
It must not judge what it reads.
"""

from __future__ import annotations

import csv
import importlib
import json
import sys
from collections.abc import Callable
from typing import Any

from preflight.linux import nvml_state

Json = dict[str, Any]

_MIB = 1 << 20
_FAULTS = {
    9: "not-loaded",  # NVML_ERROR_DRIVER_NOT_LOADED
    12: "absent",  # NVML_ERROR_LIBRARY_NOT_FOUND
    15: "lost",  # NVML_ERROR_GPU_IS_LOST
    16: "lost",  # NVML_ERROR_RESET_REQUIRED
    18: "mismatch",  # NVML_ERROR_LIB_RM_VERSION_MISMATCH
}
_NOT_SUPPORTED = 3

SMI_GPUS = ("index", "uuid", "name", "driver_version", "memory.total", "memory.free")
SMI_APPS = ("gpu_uuid", "pid", "used_memory")
SMI_HEALTH = (
    "index", "uuid", "temperature.gpu", "ecc.errors.uncorrected.volatile.total",
    "retired_pages.pending", "persistence_mode", "display_active", "utilization.gpu",
)  # fmt: skip


def smi_arguments(query: str, fields: tuple[str, ...]) -> list[str]:
    """The arguments of one machine-readable question to nvidia-smi."""
    return [f"--query-{query}={','.join(fields)}", "--format=csv,noheader,nounits"]


def _failed(error: Any) -> Json:
    """An NVML error as plain words at once: the exception itself can be neither hashed nor compared."""
    code = int(error.value)
    said = f"{error} (NVML error {code})"
    return {"fault": _FAULTS.get(code, "error"), "code": code, "said": said}


def _mib(count: int | None) -> int | None:
    return None if count is None else count // _MIB


def _processes(nvml: Any, handle: Any) -> list[Json] | None:
    """Every process on one GPU, once; None when the driver will not list them."""
    found: dict[int, Json] = {}
    # by their full names: the short ones turn "an older driver" into an error of another family
    lists = (
        ("compute", nvml.nvmlDeviceGetComputeRunningProcesses_v3),
        ("graphics", nvml.nvmlDeviceGetGraphicsRunningProcesses_v3),
        ("mps", nvml.nvmlDeviceGetMPSComputeRunningProcesses_v3),
    )
    for kind, listed in lists:
        try:
            rows = listed(handle)
        except nvml.NVMLError as error:
            # only the first list is vital; MPS and graphics are missing on many systems
            if kind == "compute":
                return None if int(error.value) != _NOT_SUPPORTED else []
            continue
        for row in rows:
            mib = _mib(row.usedGpuMemory)
            before = found.get(row.pid)
            # one process may have two kinds of context, each listed with all of its memory
            if before is None or (mib or 0) > (before["mib"] or 0):
                found[row.pid] = {"pid": int(row.pid), "mib": mib, "kind": kind}
    return [found[pid] for pid in sorted(found)]


def _gpu(nvml: Any, index: int) -> list[Json]:
    """One GPU, and its MIG instances behind it."""
    gpu: Json = {"index": index}
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        gpu["uuid"] = nvml.nvmlDeviceGetUUID(handle)
        gpu["name"] = nvml.nvmlDeviceGetName(handle)
    except nvml.NVMLError as error:
        return [gpu | _failed(error)]
    parts = nvml_state.instances(nvml, handle)
    whole = gpu | {"mig": parts is not None} | _memory(nvml, handle, gpu["name"])
    return [whole, *(_part(nvml, gpu, part) for part in parts or ())]


def _part(nvml: Any, gpu: Json, handle: Any) -> Json:
    """One MIG instance: what CUDA sees as a GPU of its own."""
    part = {"index": gpu["index"], "name": f"{gpu['name']} MIG", "parent": gpu["uuid"]}
    try:
        part["uuid"] = nvml.nvmlDeviceGetUUID(handle)
    except nvml.NVMLError as error:
        return part | _failed(error)
    return part | _memory(nvml, handle, "")


def _memory(nvml: Any, handle: Any, name: str) -> Json:
    """Total, free and processes. A GPU without memory of its own has the host's."""
    found: Json
    try:
        # v1: its `free` is right everywhere, while the meaning of `used` differs by driver
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        found = {"total_mib": _mib(memory.total), "free_mib": _mib(memory.free)}
        if not memory.total:
            found = {"fault": "unsupported", "said": "the driver reports no memory at all"}
    except nvml.NVMLError as error:
        found = _failed(error)
        if found["code"] == _NOT_SUPPORTED:
            found["fault"] = "unsupported"
    if nvml_state.shares(name) and found.get("fault") in (None, "unsupported"):
        found = nvml_state.host_memory()
    return found if found.get("fault") else found | {"procs": _processes(nvml, handle)}


def read(nvml: Any) -> Json:
    """All GPUs at this moment, through the given binding, which has to be initialised."""
    try:
        driver = nvml.nvmlSystemGetDriverVersion()
        count = nvml.nvmlDeviceGetCount()
    except nvml.NVMLError as error:
        return _failed(error)
    gpus = [gpu for index in range(count) for gpu in _gpu(nvml, index)]
    return {"driver": driver, "library": nvml_state.library(), "gpus": gpus}


def states(nvml: Any) -> Json:
    """The health of every GPU."""
    try:
        count = nvml.nvmlDeviceGetCount()
    except nvml.NVMLError as error:
        return _failed(error)
    return {"rows": [nvml_state.health(nvml, index) for index in range(count)]}


def reader() -> Callable[..., Json]:
    """A function that reads; NVML stays open between two readings, and is tried again if it failed."""
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError as error:
        said = f"the package nvidia-ml-py cannot be imported: {error}"
        return lambda _="read": {"fault": "absent", "said": said}
    ready = False

    def look(verb: str = "read") -> Json:
        nonlocal ready
        if not ready:
            try:
                nvml.nvmlInit()
            except nvml.NVMLError as error:
                return _failed(error)
            ready = True
        return states(nvml) if verb == "health" else read(nvml)

    return look


def from_smi(gpus: str, apps: str | None) -> Json:
    """What nvidia-smi printed, in the same shape; `apps` is None when it would not list them."""
    rows = [row for row in _table(gpus) if len(row) == len(SMI_GPUS)]
    found = {row[1]: _smi_gpu(row, listed=apps is not None) for row in rows}
    for row in _table(apps or ""):
        gpu = found.get(row[0])
        if len(row) != len(SMI_APPS) or gpu is None or _number(row[1]) is None:
            continue
        gpu["procs"].append({"pid": _number(row[1]), "mib": _number(row[2]), "kind": "compute"})
    return {"driver": rows[0][3] if rows else "", "gpus": list(found.values())}


def _smi_gpu(row: list[str], *, listed: bool) -> Json:
    total, free = _number(row[4]), _number(row[5])
    gpu: Json = {"index": _number(row[0]) or 0, "uuid": row[1], "name": row[2]}
    if (total is None or free is None) and nvml_state.shares(row[2]):
        return gpu | nvml_state.host_memory() | {"procs": [] if listed else None}
    if total is None or free is None:
        return gpu | {"fault": "unsupported", "said": f"memory is {row[4]}", "procs": []}
    return gpu | {"total_mib": total, "free_mib": free, "procs": [] if listed else None}


def health_from_smi(text: str) -> Json:
    """What nvidia-smi printed of health, in the same shape; what it does not know is missing."""
    rows: list[Json] = []
    for row in _table(text):
        if len(row) != len(SMI_HEALTH):
            continue
        said = dict(zip(SMI_HEALTH, row, strict=True))
        found: Json = {"index": _number(said["index"]) or 0, "uuid": said["uuid"]}
        numbers = {
            "celsius": "temperature.gpu",
            "busy": "utilization.gpu",
            "uncorrected": SMI_HEALTH[3],
        }
        found |= {name: _number(said[field]) for name, field in numbers.items()}
        words = {
            "retiring": "retired_pages.pending",
            "persistent": "persistence_mode",
            "shown": "display_active",
        }
        for name, field in words.items():
            if said[field] in ("Yes", "Enabled", "No", "Disabled"):
                found[name] = said[field] in ("Yes", "Enabled")
        rows.append({name: value for name, value in found.items() if value is not None})
    return {"rows": rows}


def _table(text: str) -> list[list[str]]:
    return [
        [field.strip() for field in row]
        for row in csv.reader(text.splitlines(), skipinitialspace=True)
        if row
    ]


def _number(text: str) -> int | None:
    try:
        return int(float(text.split(maxsplit=1)[0]))
    except (ValueError, IndexError, OverflowError):
        return None


def main() -> None:
    """Answer until the input ends."""
    look = reader()
    for line in sys.stdin:
        try:
            answer = look(json.loads(line)["verb"])
        except Exception as error:  # noqa: BLE001 - whoever asked turns it into an unknown
            answer = {"fault": "error", "said": f"{type(error).__name__}: {error}"}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
