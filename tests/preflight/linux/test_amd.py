"""AMD GPUs from the kernel's own files: memory, processes, boards that share the host's memory."""

import os
from pathlib import Path
from typing import Any

import pytest

from preflight.linux.box import LinuxBox
from preflight.linux.reader_amd import read_amd

GIB = 1 << 30
SLOT = "0000:03:00.0"


class Machine:
    """/sys and /proc of a machine, as far as anybody reads them."""

    def __init__(self, room: Path) -> None:
        self.sys, self.proc = room / "sys", room / "proc"

    def write(self, path: Path, text: object) -> None:
        """One file of the kernel."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")

    def card(self, number: int, slot: str, vendor: str = "0x1002", **files: object) -> None:
        """One card on the bus."""
        device = self.sys / "devices" / slot
        for name, value in {"vendor": vendor, **files}.items():
            self.write(device / name, value)
        link = self.sys / f"class/drm/card{number}/device"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(device)
        (self.sys / f"class/drm/card{number}-DP-1").mkdir()

    def client(self, pid: int, fd: int, client: int, text: str, slot: str = SLOT) -> None:
        """One open device of a process, with what DRM counts for it."""
        place = self.proc / str(pid)
        (place / "fd").mkdir(parents=True, exist_ok=True)
        (place / "fd" / str(fd)).symlink_to("/dev/dri/renderD128")
        said = f"drm-driver:\tamdgpu\ndrm-pdev:\t{slot}\ndrm-client-id:\t{client}\n{text}"
        self.write(place / "fdinfo" / str(fd), said)

    def read(self) -> dict[str, Any]:
        """What the reader makes of it."""
        return read_amd({"sys": str(self.sys), "proc": str(self.proc)})


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine without any card."""
    return Machine(tmp_path)


def test_a_machine_without_an_amd_card_is_told(machine: Machine) -> None:
    """Other makers' cards are none of it."""
    assert machine.read()["fault"] == "absent"
    machine.card(0, "0000:00:02.0", vendor="0x8086")
    assert machine.read()["fault"] == "absent"


def test_a_card_tells_its_memory(machine: Machine) -> None:
    """By its own id where it has one, else by its place on the bus."""
    machine.card(
        1, SLOT, mem_info_vram_total=24 * GIB, mem_info_vram_used=4 * GIB, unique_id="f00d"
    )
    machine.card(0, "0000:83:00.0", mem_info_vram_total=16 * GIB, mem_info_vram_used=GIB)
    first, second = machine.read()["gpus"]
    assert (first["uuid"], first["total_mib"], first["free_mib"]) == ("AMD-f00d", 24576, 20480)
    assert (second["uuid"], second["index"], second["free_mib"]) == ("AMD-0000:83:00.0", 1, 15360)


def test_a_card_that_tells_no_memory_is_unsupported(machine: Machine) -> None:
    """An old driver: no number is made up."""
    machine.card(0, SLOT, product_name="Radeon")
    (card,) = machine.read()["gpus"]
    assert card["fault"] == "unsupported"


def test_an_apu_has_the_hosts_memory(machine: Machine) -> None:
    """Half a GiB set aside, the rest is the host's."""
    machine.card(
        0, SLOT, mem_info_vram_total=GIB // 2, mem_info_vram_used=0, mem_info_gtt_total=60 * GIB
    )
    machine.write(machine.proc / "meminfo", "MemTotal: 131072000 kB\nMemAvailable: 65536000 kB")
    (card,) = machine.read()["gpus"]
    assert (card["unified"], card["free_mib"]) == (True, 64_000)


def test_the_compute_driver_charges_each_process(machine: Machine) -> None:
    """kfd: a file for each process and GPU, in bytes."""
    machine.card(0, SLOT, mem_info_vram_total=24 * GIB, mem_info_vram_used=20 * GIB)
    node = machine.sys / "class/kfd/kfd/topology/nodes/1"
    machine.write(node / "gpu_id", 4711)
    machine.write(node / "properties", "cpu_cores_count 0\nlocation_id 768\ndomain 0")
    machine.write(machine.sys / "class/kfd/kfd/proc/812/vram_4711", 19 * GIB)
    machine.write(machine.sys / "class/kfd/kfd/proc/813/vram_4711", 0)
    machine.write(machine.sys / "class/kfd/kfd/proc/814/vram_9", GIB)
    (card,) = machine.read()["gpus"]
    assert card["procs"] == [{"pid": 812, "mib": 19 * 1024, "kind": "compute"}]


def test_drm_counts_each_client_once(machine: Machine) -> None:
    """A device that is open twice is one client; two clients of a process are added."""
    machine.card(0, SLOT, mem_info_vram_total=24 * GIB, mem_info_vram_used=20 * GIB)
    machine.client(900, 5, 1, "drm-memory-vram:\t1048576 KiB\n")
    machine.client(900, 6, 1, "drm-memory-vram:\t1048576 KiB\n")
    machine.client(900, 7, 2, "drm-resident-vram0:\t512 MiB\n")
    machine.client(901, 5, 3, "drm-memory-vram:\tnonsense\n")
    (card,) = machine.read()["gpus"]
    assert card["procs"] == [{"pid": 900, "mib": 1536, "kind": "compute"}]


def test_this_machine_is_read_as_it_is() -> None:
    """With or without a card: an answer, and none that nobody gave."""
    with LinuxBox(reader="amd") as box:
        reading = box.gpus(within=10)
    place = Path("/sys/class/drm")
    cards = place.is_dir() and any(name.startswith("card") for name in os.listdir(place))
    assert reading.fault == "absent" or cards
