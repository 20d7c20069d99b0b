"""The driver: whether it answers, and whether it would still answer to a process that starts now."""

from typing import Any

import pytest

from preflight.box import CRASH, TIMEOUT, Gpu, GpuHealth, GpuReading, Ran
from preflight.files.recorded import Record
from preflight.gpu.budget import GpuBudget
from preflight.gpu.driver import GpuDriver, GpuPending
from preflight.rings import look
from preflight.verdict import State, Verdict
from tests.fakes import FakeBox

CARD = Gpu(0, "GPU-a", "RTX 3090", 24576, 20000)
MODINFO = ("modinfo", "-F", "version", "nvidia")
LOADED = "/sys/module/nvidia/version"
PACKAGES = "/run/reboot-required.pkgs"


def ask(reading: GpuReading, *healths: GpuHealth, asked: bool = True) -> Verdict:
    """The answer of gpu.driver."""
    box = FakeBox(reading=reading, healths=list(healths))
    return look([GpuDriver(asked=asked)], box).verdicts[0]


def test_a_driver_that_answers_passes() -> None:
    """By whom it is read, and what it has."""
    verdict = ask(GpuReading((CARD,), source="nvml", driver="580.105"))
    assert verdict.state is State.PASS
    assert verdict.found == "580.105 answers through nvml: RTX 3090"


@pytest.mark.parametrize(
    ("before", "state"), [("580.105", State.PASS), ("", State.PASS), ("580.95", State.WARN)]
)
def test_another_driver_than_last_time_is_a_warning(before: str, state: State) -> None:
    """What was proven was proven with the old one."""
    box = FakeBox(reading=GpuReading((CARD,), source="nvml", driver="580.105"))
    record = Record(job="night", at=1.0, driver=before)
    verdict = look([GpuDriver(asked=True, record=record)], box).verdicts[0]
    assert verdict.state is state
    assert ("was 580.95 when the job last passed" in verdict.found) is (state is State.WARN)


def test_a_driver_without_persistence_is_a_warning() -> None:
    """The first start after the stop initialises the card anew."""
    verdict = ask(GpuReading((CARD,), source="nvml"), GpuHealth(0, persistent=False))
    assert verdict.state is State.WARN
    assert "persistence mode is off for GPU 0" in verdict.found
    assert (
        ask(GpuReading((CARD,), source="nvml"), GpuHealth(0, persistent=True)).state is State.PASS
    )


@pytest.mark.parametrize(
    ("fault", "state", "said"),
    [
        ("mismatch", State.FAIL, "nothing new can start on the GPU until a reboot"),
        ("lost", State.FAIL, "has fallen off the bus"),
        (
            "absent",
            State.FAIL,
            "no NVIDIA driver library, and nvidia-smi not found in PATH=/usr/bin",
        ),
        ("not-loaded", State.FAIL, "is not loaded"),
        (TIMEOUT, State.UNKNOWN, "timeout"),
        (CRASH, State.UNKNOWN, "the GPU reader died"),
        ("error", State.UNKNOWN, "the driver answers"),
        ("new-fault", State.UNKNOWN, "the driver answers"),
    ],
)
def test_a_driver_that_does_not_answer_is_told_by_its_kind(
    fault: str, state: State, said: str
) -> None:
    """Some of it no reboot can wait for; some of it nobody knows."""
    verdict = ask(GpuReading(fault=fault, said="nvidia-smi not found in PATH=/usr/bin"))
    assert verdict.state is state
    assert said in verdict.found


@pytest.mark.parametrize("reading", [GpuReading(fault="absent"), GpuReading(fault="not-loaded"), GpuReading()])  # fmt: skip
def test_no_gpu_and_none_asked_for_is_skipped(reading: GpuReading) -> None:
    """Said plainly."""
    assert ask(reading, asked=False).state is State.SKIPPED


def test_the_driver_is_asked_before_the_others() -> None:
    """What the others rest on comes first in its ring."""
    verdicts = look([GpuBudget(), GpuDriver()], FakeBox()).verdicts
    assert [verdict.id for verdict in verdicts] == ["gpu.driver", "gpu.budget"]


def pending(
    loaded: str = "580.105.08",
    disk: str | None = "580.105.08",
    library: str = "",
    packages: str | None = None,
    **more: Any,
) -> Verdict:
    """The answer of gpu.pending for these versions."""
    paper = {LOADED: f"{loaded}\n"} if loaded else {}
    if packages is not None:
        paper |= {"/run/reboot-required": "*** System restart required ***\n", PACKAGES: packages}
    path = f"/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.{library}" if library else ""
    reading = GpuReading((CARD,), source="nvml", library=path)
    box = FakeBox(paper=paper, reading=reading, **more)
    if disk is not None:
        box.commands[MODINFO] = Ran(0, f"{disk}\n")
    return look([GpuPending()], box).verdicts[0]


def test_one_version_everywhere_passes() -> None:
    """Module, disk and library."""
    assert pending().state is State.PASS
    assert pending(library="580.105.08").state is State.PASS
    assert pending(disk=None, library="580.105.08").state is State.PASS


@pytest.mark.parametrize(
    "versions",
    [
        {"disk": "580.126.01"},
        {"disk": "580.126.01", "library": "580.126.01"},
        {"library": "580.126.01"},
        {"packages": "linux-base\nlibnvidia-compute-580\n", "library": "580.105.08"},
    ],
)
def test_an_upgraded_driver_means_that_production_could_not_come_back(
    versions: dict[str, str],
) -> None:
    """It runs on happily; whatever starts now fails until the machine is rebooted."""
    verdict = pending(**versions)
    assert verdict.state is State.FAIL
    assert "580.105.08 is loaded" in verdict.found
    assert "stopping it now means that it cannot come back" in verdict.found
    assert verdict.remedy == "reboot first"


def test_a_reboot_for_the_kernel_is_a_warning() -> None:
    """Nothing of the GPU waits for it."""
    assert pending(packages="linux-image-6.1.0-30-amd64\n").state is State.WARN
    assert pending(disk="580.126.01", library="580.105.08").state is State.WARN


def test_what_is_installed_and_cannot_be_read_is_unknown() -> None:
    """P8: neither modinfo nor the library's name tells."""
    assert pending(disk=None).state is State.UNKNOWN


def test_without_a_module_there_is_nothing_to_wait_for() -> None:
    """No NVIDIA here, or another kernel's business (WSL)."""
    assert pending(loaded="").state is State.SKIPPED
