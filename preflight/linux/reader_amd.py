"""The part of the reading child that reads AMD GPUs from /sys, where no library is needed.

Memory from amdgpu's own files, processes from the compute driver (kfd) and from DRM's usage
statistics: Documentation/gpu/amdgpu, drm-usage-stats of the kernel. Standard library only.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from preflight.linux.nvml_state import host_memory
from preflight.linux.reader_base import Json

_AMD = "0x1002"
_MIB = 1 << 20
_CARVED_MIB = 4096
"""An APU sets at most so much aside for itself and takes the rest from the host (GTT)."""
_STAT = re.compile(r"^(drm-[\w-]+):[ \t]*(\S+)(?:[ \t]+(\w+))?", re.MULTILINE)
_FACTORS = {"KiB": 1 << 10, "MiB": 1 << 20, "": 1}
_VRAM = ("drm-resident-vram0", "drm-resident-vram", "drm-memory-vram")


def read_amd(asked: Json) -> Json:
    """Every AMD GPU with its memory and its processes; `absent` where there is none."""
    system, processes = Path(asked.get("sys", "/sys")), Path(asked.get("proc", "/proc"))
    gpus: list[Json] = []
    cards = sorted(_cards(system / "class/drm"))
    held = _held(system, processes) if cards else {}
    for index, device in enumerate(cards):
        gpus.append(_gpu(device, index, held, processes))
    if not gpus:
        return {"fault": "absent", "said": "no AMD GPU in /sys"}
    return {"driver": "amdgpu", "gpus": gpus}


def _cards(place: Path) -> list[Path]:
    """The devices behind the cards, each once, in the order of the PCI bus."""
    try:
        names = os.listdir(place)
    except OSError:
        return []
    devices = {
        Path(os.path.realpath(place / name / "device"))
        for name in names
        if re.fullmatch(r"card\d+", name)
    }
    return [one for one in devices if _text(one / "vendor") == _AMD]


def _gpu(device: Path, index: int, held: dict[str, dict[int, int]], processes: Path) -> Json:
    slot = device.name
    name = _text(device / "product_name") or "AMD GPU"
    gpu: Json = {"index": index, "uuid": f"AMD-{_text(device / 'unique_id') or slot}", "name": name}
    total, used = _number(device / "mem_info_vram_total"), _number(device / "mem_info_vram_used")
    shared = _number(device / "mem_info_gtt_total") or 0
    if total is None or used is None:
        return gpu | {"fault": "unsupported", "said": "amdgpu tells no memory for it"}
    if total // _MIB <= _CARVED_MIB and shared > total:
        gpu |= host_memory(_text(processes / "meminfo") + "\n")
    else:
        gpu |= {"total_mib": total // _MIB, "free_mib": max(0, total - used) // _MIB}
    rows = [
        {"pid": pid, "mib": size // _MIB, "kind": "compute"}
        for pid, size in sorted(held.get(slot, {}).items())
        if size
    ]
    return gpu | {"procs": rows}


def _held(system: Path, processes: Path) -> dict[str, dict[int, int]]:
    """PCI address → pid → bytes of its memory."""
    found: dict[str, dict[int, int]] = {}
    for slot, pid, size in [*_by_kfd(system / "class/kfd/kfd"), *_by_drm(processes)]:
        of_gpu = found.setdefault(slot, {})
        of_gpu[pid] = max(of_gpu.get(pid, 0), size)
    return found


def _by_kfd(place: Path) -> list[tuple[str, int, int]]:
    """What the compute driver charges each process with: proc/PID/vram_GPUID, in bytes."""
    slots: dict[str, str] = {}
    for node in _listed(place / "topology/nodes"):
        number = _text(node / "gpu_id")
        said = dict(
            line.split()[:2] for line in _text(node / "properties").splitlines() if " " in line
        )
        at = int(said.get("location_id", 0))
        if number and number != "0":
            domain, bus, rest = int(said.get("domain", 0)), at >> 8, at & 0xFF
            slots[number] = f"{domain:04x}:{bus:02x}:{rest >> 3:02x}.{rest & 7}"
    rows: list[tuple[str, int, int]] = []
    for one in _listed(place / "proc"):
        for file in _listed(one):
            number = file.name.removeprefix("vram_")
            if file.name.startswith("vram_") and number in slots and one.name.isdigit():
                rows.append((slots[number], int(one.name), _number(file) or 0))
    return rows


def _by_drm(processes: Path) -> list[tuple[str, int, int]]:
    """What DRM counts for each open device; a client that is open twice counts once."""
    rows: list[tuple[str, int, int]] = []
    for one in _listed(processes):
        if not one.name.isdigit():
            continue
        clients: dict[tuple[str, str], int] = {}
        for descriptor in _listed(one / "fd"):
            try:
                target = os.readlink(descriptor)
            except OSError:
                continue
            if not target.startswith("/dev/dri/"):
                continue
            said = {
                name: (value, unit)
                for name, value, unit in _STAT.findall(_text(one / "fdinfo" / descriptor.name))
            }
            slot, client = said.get("drm-pdev", ("", ""))[0], said.get("drm-client-id", ("", ""))[0]
            value, unit = next((said[key] for key in _VRAM if key in said), ("", ""))
            if slot and value.isdigit():
                clients[slot, client] = int(value) * _FACTORS.get(unit, 1)
        for (slot, _), size in clients.items():
            rows.append((slot, int(one.name), size))
    return _summed(rows)


def _summed(rows: list[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
    """Several clients of one process together."""
    found: dict[tuple[str, int], int] = {}
    for slot, pid, size in rows:
        found[slot, pid] = found.get((slot, pid), 0) + size
    return [(slot, pid, size) for (slot, pid), size in found.items()]


def _listed(place: Path) -> list[Path]:
    try:
        return [place / name for name in sorted(os.listdir(place))]
    except OSError:
        return []


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text.isdigit() else None
