"""The child that reads the GPUs through NVML, and the words of nvidia-smi where there is no NVML.

NVML can hang for ever and can take its process with it when a GPU falls off the bus, so it is only
ever loaded in here: `python -I -m preflight.nvml` answers one JSON line to each line of its input.
It must not judge what it reads.
"""

from __future__ import annotations

import csv
import importlib
import json
import sys
from collections.abc import Callable
from typing import Any

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
_NO_SUCH_INDEX = 2

SMI_GPUS = ("index", "uuid", "name", "driver_version", "memory.total", "memory.free")
SMI_APPS = ("gpu_uuid", "pid", "used_memory")


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


def _gpu(nvml: Any, index: int) -> Json:
    gpu: Json = {"index": index}
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        gpu["uuid"] = nvml.nvmlDeviceGetUUID(handle)
        gpu["name"] = nvml.nvmlDeviceGetName(handle)
    except nvml.NVMLError as error:
        return gpu | _failed(error)
    try:
        # v1: its `free` is right everywhere, while the meaning of `used` differs by driver
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    except nvml.NVMLError as error:
        failed = _failed(error)
        if failed["code"] == _NOT_SUPPORTED:
            failed["fault"] = "unsupported"
        return gpu | failed
    if not memory.total:
        return gpu | {"fault": "unsupported", "said": "the driver reports no memory at all"}
    gpu |= {"total_mib": _mib(memory.total), "free_mib": _mib(memory.free)}
    return gpu | {"procs": _processes(nvml, handle)}


def read(nvml: Any) -> Json:
    """All GPUs at this moment, through the given binding, which has to be initialised."""
    try:
        driver = nvml.nvmlSystemGetDriverVersion()
        count = nvml.nvmlDeviceGetCount()
    except nvml.NVMLError as error:
        return _failed(error)
    return {"driver": driver, "gpus": [_gpu(nvml, index) for index in range(count)]}


def reader() -> Callable[[], Json]:
    """A function that reads; NVML stays open between two readings, and is tried again if it failed."""
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError as error:
        said = f"the package nvidia-ml-py cannot be imported: {error}"
        return lambda: {"fault": "absent", "said": said}
    ready = False

    def look() -> Json:
        nonlocal ready
        if not ready:
            try:
                nvml.nvmlInit()
            except nvml.NVMLError as error:
                return _failed(error)
            ready = True
        return read(nvml)

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
    if total is None or free is None:
        return gpu | {"fault": "unsupported", "said": f"memory is {row[4]}", "procs": []}
    return gpu | {"total_mib": total, "free_mib": free, "procs": [] if listed else None}


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
    for _ in sys.stdin:
        try:
            answer = look()
        except Exception as error:  # noqa: BLE001 - whoever asked turns it into an unknown
            answer = {"fault": "error", "said": f"{type(error).__name__}: {error}"}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
