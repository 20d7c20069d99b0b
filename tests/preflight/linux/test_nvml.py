"""The GPU reader: NVML in a child that may hang or die, nvidia-smi where there is no NVML."""

import ctypes
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest

from preflight.box import CRASH, TIMEOUT, Gpu, GpuHealth, GpuReading
from preflight.gpu.budget import GpuBudget
from preflight.gpu.driver import GpuDriver
from preflight.linux import nvml
from preflight.linux.box import LinuxBox
from preflight.linux.nvml_state import host_memory
from preflight.rings import look
from preflight.verdict import State

GIB = 1 << 30
SOURCE = Path(__file__).with_name("nvml_double.c")
CARD = f"gpu GPU-aaaa {24 * GIB} {3 * GIB} NVIDIA GeForce RTX 3090\n"


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory with our own libnvidia-ml.so.1; skipped, and said so, without a C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler: the NVML double cannot be built, so the child was not tried")
    directory = tmp_path_factory.mktemp("nvml")
    name = directory / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", name, SOURCE], check=True)
    return directory


@pytest.fixture
def say(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Tell the double what machine to be; it may be told again while it is looked at."""
    scenario = tmp_path / "gpus"
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library))
    monkeypatch.setenv("NVML_DOUBLE", str(scenario))
    scenario.touch()

    def tell(text: str) -> None:
        scenario.write_text(text)

    return tell


@pytest.fixture
def box() -> Iterator[LinuxBox]:
    """This machine, with a reader of its own."""
    with LinuxBox(reader="nvml") as here:
        yield here


def read(box: LinuxBox, within: float = 20) -> GpuReading:
    """One reading."""
    return box.gpus(within=within)


# the child, with a library of our own behind the real binding


def test_the_real_binding_reads_the_double(box: LinuxBox, say: Callable[[str], None]) -> None:
    """Identity, free memory and every process, once, with the larger of two contexts."""
    own = os.getpid()
    say(
        CARD
        + f"process 0 {own} {2 * GIB} g\nprocess 0 {own} {20 * GIB} c\nprocess 0 4194304 na c\n"
    )
    reading = read(box)
    assert (reading.fault, reading.driver, reading.source) == ("", "580.105", "nvml")
    (gpu,) = reading.gpus
    assert (gpu.index, gpu.uuid, gpu.name) == (0, "GPU-aaaa", "NVIDIA GeForce RTX 3090")
    assert (gpu.total_mib, gpu.free_mib) == (24 * 1024, 3 * 1024)
    assert gpu.procs is not None
    ours, other = gpu.procs
    assert (ours.pid, ours.mib) == (own, 20 * 1024)
    assert ours.proc is not None
    assert (other.pid, other.mib, other.proc) == (4194304, None, None)


def test_the_child_stays_warm_and_sees_every_change(
    box: LinuxBox, say: Callable[[str], None]
) -> None:
    """Memory that comes back after a stop is seen by the same child, without a new start."""
    say(CARD)
    assert read(box).gpus[0].free_mib == 3 * 1024
    say(CARD.replace(str(3 * GIB), str(23 * GIB)))
    assert read(box).gpus[0].free_mib == 23 * 1024


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("init 9", "not-loaded"),
        ("init 12", "absent"),
        ("init 18", "mismatch"),
        ("init 999", "error"),
    ],
)
def test_a_driver_that_does_not_start_is_told_by_its_kind(
    box: LinuxBox, say: Callable[[str], None], line: str, fault: str
) -> None:
    """18 means that nothing new can start on the GPU: production would not come back."""
    say(line + "\n")
    reading = read(box)
    assert reading.fault == fault
    assert reading.said


def test_a_driver_that_comes_up_later_is_seen(box: LinuxBox, say: Callable[[str], None]) -> None:
    """A failed start is tried again at the next question."""
    say("init 9\n")
    assert read(box).fault == "not-loaded"
    say(CARD)
    assert len(read(box).gpus) == 1


@pytest.mark.parametrize(
    ("line", "fault"),
    [("handle 0 15", "lost"), ("memory 0 3", "unsupported"), ("memory 0 15", "lost")],
)
def test_one_bad_gpu_does_not_hide_the_others(
    box: LinuxBox, say: Callable[[str], None], line: str, fault: str
) -> None:
    """Plain nvidia-smi gives up for all of them; each is opened on its own here."""
    say(f"{CARD}gpu GPU-bbbb {24 * GIB} {24 * GIB} NVIDIA GeForce RTX 3090\n{line}\n")
    bad, good = read(box).gpus
    assert bad.fault == fault
    assert (good.fault, good.free_mib) == ("", 24 * 1024)


def test_a_list_without_permission_is_not_an_empty_list(
    box: LinuxBox, say: Callable[[str], None]
) -> None:
    """Nobody listed is not nobody there."""
    say(f"{CARD}list 0 4\n")
    assert read(box).gpus[0].procs is None


def test_a_hanging_driver_is_abandoned(box: LinuxBox, say: Callable[[str], None]) -> None:
    """Case: the query never returns. The answer names its limit, and nobody waits on."""
    say("hang\n")
    reading = read(box, within=0.5)
    assert reading.fault == TIMEOUT
    assert "no answer within 0.5 s" in reading.said
    say(CARD)
    assert len(read(box).gpus) == 1


def test_a_driver_that_takes_its_process_along_is_survived(
    box: LinuxBox, say: Callable[[str], None]
) -> None:
    """A lost GPU can end whoever asks by SIGSEGV: the child dies, and we say of what."""
    say("crash\n")
    reading = read(box)
    assert (reading.fault, reading.said) == (CRASH, "it died of SIGSEGV")
    say(CARD)
    assert len(read(box).gpus) == 1


def test_a_budget_on_the_double_from_end_to_end(box: LinuxBox, say: Callable[[str], None]) -> None:
    """The whole way: library, binding, child, Box, check."""
    own = os.getpid()
    say(f"{CARD}process 0 {own} {20 * GIB} c\n")
    check = GpuBudget(need_mib=22 * 1024, asked=True, production_pids=(own,))
    assert look([check], box).verdicts[0].state is State.PASS
    say("hang\n")
    verdict = look([check.model_copy(update={"deadline_s": 0.3})], box).verdicts[0]
    assert verdict.state is State.UNKNOWN
    assert "no answer within 0.3 s" in verdict.message()


def test_a_divided_card_is_told_with_its_instances(
    box: LinuxBox, say: Callable[[str], None]
) -> None:
    """MIG: what CUDA sees are the instances; the card itself only says that it is divided."""
    say(f"{CARD}mig 0 MIG-bbbb {9 * GIB} {8 * GIB}\nmig 0 MIG-cccc {4 * GIB} {1 * GIB}\n")
    card, first, second = read(box).gpus
    assert (card.mig, card.parent) == (True, "")
    assert (first.uuid, first.parent, first.index) == ("MIG-bbbb", "GPU-aaaa", 0)
    assert (first.total_mib, first.free_mib) == (9 * 1024, 8 * 1024)
    assert second.uuid == "MIG-cccc"
    check = GpuBudget(need_mib=7 * 1024, gpu="MIG-bbbb", asked=True)
    assert look([check], box).verdicts[0].state is State.PASS


@pytest.mark.parametrize("line", ["memory 0 3", ""])
def test_a_card_without_memory_of_its_own_has_the_hosts(
    box: LinuxBox, say: Callable[[str], None], line: str
) -> None:
    """GB10: some drivers say that memory is not supported, some say none, some say all of it."""
    say(f"gpu GPU-aaaa {0 if not line else GIB} 0 NVIDIA GB10\n{line}\n")
    (card,) = read(box).gpus
    assert (card.unified, card.fault) == (True, "")
    assert 0 < card.free_mib <= card.total_mib


def test_the_hosts_memory_counts_as_llama_cpp_counts_it() -> None:
    """Huge pages that were set aside are what such a card gets; else what is available."""
    text = (
        "MemTotal: 131072000 kB\nMemFree: 1 kB\nMemAvailable: 65536000 kB\nHugepagesize: 2048 kB\n"
    )
    assert host_memory(text + "HugePages_Total: 0\n") == {
        "total_mib": 128_000,
        "free_mib": 64_000,
        "unified": True,
    }
    pages = "HugePages_Total: 1000\nHugePages_Free: 400\n"
    assert host_memory(text + pages) == {"total_mib": 2000, "free_mib": 800, "unified": True}


def test_the_health_of_a_card_is_read(box: LinuxBox, say: Callable[[str], None]) -> None:
    """Temperature, slowdowns, memory errors, what waits for a reset, who draws on it."""
    say(f"{CARD}health 0 91 72 3 1 0 1 0 1 7\n")
    (card,) = box.gpu_health(within=20)
    assert card == GpuHealth(
        0,
        "GPU-aaaa",
        celsius=91,
        busy=7,
        slowed=("hardware slowdown", "hardware thermal slowdown"),
        uncorrected=3,
        pending=True,
        failed=False,
        retiring=True,
        persistent=False,
        shown=True,
    )


def test_what_a_card_does_not_support_is_none_and_no_error(
    box: LinuxBox, say: Callable[[str], None]
) -> None:
    """A GeForce counts no memory errors."""
    say(CARD)
    assert box.gpu_health(within=20) == (GpuHealth(0, "GPU-aaaa"),)
    say(f"{CARD}handle 0 15\n")
    assert box.gpu_health(within=20)[0].fault == "error"


def test_one_ring_reads_the_driver_once(box: LinuxBox, say: Callable[[str], None]) -> None:
    """A driver that hangs is waited for once, not by each check that needs it."""
    say("hang\n")
    began = time.monotonic()
    checks = [
        GpuDriver(asked=True, deadline_s=2.0),
        GpuBudget(need_mib=1, asked=True, deadline_s=2.0),
    ]
    verdicts = look(checks, box).verdicts
    assert [verdict.state for verdict in verdicts] == [State.UNKNOWN, State.UNKNOWN]
    assert time.monotonic() - began < 3.8


def test_the_library_says_where_it_lies(box: LinuxBox, say: Callable[[str], None]) -> None:
    """Its name ends in its version on a real machine."""
    say(CARD)
    assert read(box).library.endswith("/libnvidia-ml.so.1")


# the words of nvidia-smi


def smi(directory: Path, body: str) -> str:
    """A program under the name nvidia-smi."""
    path = directory / "nvidia-smi"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


ANSWERS = """case "$1" in
--query-gpu=*) echo "0, GPU-aaaa, NVIDIA GeForce RTX 3090, 550.90, 24576, 3072";;
*) echo "GPU-aaaa, 4194304, 20480"; echo "GPU-zzzz, 5, 1"; echo nonsense;;
esac"""


def test_without_nvml_nvidia_smi_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From PATH, as no driver library loads here."""
    smi(tmp_path, ANSWERS)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with LinuxBox(reader="nvidia-smi") as box:
        reading = read(box)
    assert (reading.source, reading.fault, reading.driver) == ("nvidia-smi", "", "550.90")
    assert reading.gpus[0].free_mib == 3072
    assert reading.gpus[0].procs is not None
    assert [(row.pid, row.mib) for row in reading.gpus[0].procs] == [(4194304, 20480)]


def test_a_named_nvidia_smi_is_asked_after_nvml_only(
    tmp_path: Path, say: Callable[[str], None]
) -> None:
    """Where NVML answers, the tool's words are not needed; where none loads, they are."""
    tool = smi(tmp_path, ANSWERS)
    say(CARD)
    with LinuxBox(nvidia_smi=tool) as box:
        assert read(box).source == "nvml"
    say("init 12\n")
    with LinuxBox(nvidia_smi=tool) as box:
        assert read(box).source == "nvidia-smi"


@pytest.mark.parametrize(
    ("body", "fault", "said"),
    [
        ("echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18", "mismatch", "mismatch"),
        ("echo \"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\"; exit 9", "not-loaded", "driver"),
        ("echo 'Unable to determine the device handle'; exit 1", "error", "device handle"),
        ("echo 'No devices were found'; exit 6", "", ""),
    ],
)  # fmt: skip
def test_what_nvidia_smi_says_in_words_is_understood(
    tmp_path: Path, body: str, fault: str, said: str
) -> None:
    """Its exit codes differ by version; its sentences have not."""
    with LinuxBox(nvidia_smi=smi(tmp_path, body), reader="nvidia-smi") as box:
        reading = read(box)
    assert reading.fault == fault
    assert said in reading.said


def test_an_nvidia_smi_that_hangs_is_killed_and_named(tmp_path: Path) -> None:
    """Case: it sleeps and ignores TERM. Unknown within its limit, and no child is left behind."""
    marker = tmp_path / "pid"
    tool = smi(tmp_path, f"trap '' TERM; echo $$ > {marker}; while :; do sleep 1000; done")
    with LinuxBox(nvidia_smi=tool, reader="nvidia-smi") as box:
        check = GpuBudget(need_mib=1024, asked=True, deadline_s=0.5)
        verdict = look([check], box).verdicts[0]
    assert verdict.state is State.UNKNOWN
    assert "nvidia-smi gave no answer within 0.5 s (timeout" in verdict.found
    pid = int(marker.read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_missing_nvidia_smi_is_told_with_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Case: cron's PATH is not the shell's."""
    monkeypatch.setenv("PATH", "/nonexistent")
    with LinuxBox(reader="nvidia-smi") as box:
        assert read(box).said == "nvidia-smi not found in PATH=/nonexistent"
    with LinuxBox(nvidia_smi="/opt/gone/nvidia-smi", reader="nvidia-smi") as box:
        reading = read(box)
    assert reading.fault == "absent"
    assert "/opt/gone/nvidia-smi cannot be started" in reading.said


def test_memory_that_nvidia_smi_does_not_know_is_unsupported() -> None:
    """[N/A] is no number, and is not taken for one."""
    seen = nvml.from_smi(
        "0, GPU-a, NVIDIA A2, 580.1, [N/A], [N/A]\n", "GPU-a, 7, [N/A]\nGPU-a, [N/A], 5\n"
    )
    (gpu,) = seen["gpus"]
    assert gpu["fault"] == "unsupported"
    assert gpu["procs"] == [{"pid": 7, "mib": None, "kind": "compute"}]
    assert nvml.from_smi("0, GPU-a, A100, 580.1, 40960, 40000\n", None)["gpus"][0]["procs"] is None
    assert nvml.from_smi("garbage\n\n\x00,,\n", "") == {"driver": "", "gpus": []}


def test_nvidia_smi_tells_health_in_words(tmp_path: Path) -> None:
    """[N/A] is nothing known; Yes and Enabled are."""
    body = """case "$1" in
--query-gpu=index,uuid,temp*) echo "0, GPU-aaaa, 45, [N/A], Yes, Disabled, Enabled, 3";;
--query-gpu=*) echo "0, GPU-aaaa, NVIDIA GeForce RTX 3090, 550.90, 24576, 3072";;
esac"""
    with LinuxBox(nvidia_smi=smi(tmp_path, body), reader="nvidia-smi") as box:
        (card,) = box.gpu_health(within=5)
    assert card == GpuHealth(
        0, "GPU-aaaa", celsius=45, busy=3, retiring=True, persistent=False, shown=True
    )
    assert nvml.health_from_smi("nonsense\n") == {"rows": []}


def test_nvidia_smi_of_a_shared_memory_board_is_understood() -> None:
    """It prints [N/A] for the memory that it does not have."""
    seen = nvml.from_smi("0, GPU-a, NVIDIA GB10, 580.1, [N/A], [N/A]\n", "GPU-a, 7, 900\n")
    (gpu,) = seen["gpus"]
    assert gpu["unified"]
    assert gpu["procs"] == [{"pid": 7, "mib": 900, "kind": "compute"}]


# the same through a double in Python, for machines without a compiler


class Function:
    """A library function: the binding sets attributes on it."""

    def __init__(self, does: Callable[..., int]) -> None:
        self.does = does

    def __call__(self, *arguments: Any) -> int:
        return self.does(*arguments)


class Library:
    """One card of 24 GiB, as the binding's own structures want it."""

    def __getattr__(self, name: str) -> Function:
        does = vars(type(self)).get(f"do_{name}")
        if does is None:
            raise AttributeError(name)
        return Function(lambda *arguments: does(self, *arguments))

    def do_nvmlSystemGetDriverVersion(self, text: Any, _size: Any) -> int:  # noqa: N802 - NVML's name
        text.value = b"580.105"
        return 0

    def do_nvmlDeviceGetCount_v2(self, count: Any) -> int:  # noqa: N802 - NVML's name
        count._obj.value = 1
        return 0

    def do_nvmlDeviceGetHandleByIndex_v2(self, index: Any, handle: Any) -> int:  # noqa: N802 - NVML's name
        del index
        ctypes.cast(handle, ctypes.POINTER(ctypes.c_void_p))[0] = 1
        return 0

    def do_nvmlDeviceGetUUID(self, handle: Any, text: Any, _size: Any) -> int:  # noqa: N802 - NVML's name
        del handle
        text.value = b"GPU-aaaa"
        return 0

    def do_nvmlDeviceGetName(self, handle: Any, text: Any, _size: Any) -> int:  # noqa: N802 - NVML's name
        del handle
        text.value = b"RTX 3090"
        return 0

    def do_nvmlDeviceGetMemoryInfo(self, handle: Any, memory: Any) -> int:  # noqa: N802 - NVML's name
        del handle
        memory._obj.total, memory._obj.free = 24 * GIB, 3 * GIB
        return 0

    def do_nvmlDeviceGetComputeRunningProcesses_v3(self, handle: Any, count: Any, rows: Any) -> int:  # noqa: N802 - NVML's name
        del handle
        if rows is None:
            count._obj.value = 1
            return 7
        rows[0].pid, rows[0].usedGpuMemory = 4242, 20 * GIB
        count._obj.value = 1
        return 0


def test_the_reading_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """The binding is the real one; missing functions are an old driver, not a crash."""
    monkeypatch.setattr(pynvml, "nvmlLib", Library())
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    seen = nvml.read(pynvml)
    assert seen["driver"] == "580.105"
    (gpu,) = seen["gpus"]
    assert Gpu(**{**gpu, "procs": ()}).free_mib == 3 * 1024
    assert gpu["procs"] == [{"pid": 4242, "mib": 20 * 1024, "kind": "compute"}]
