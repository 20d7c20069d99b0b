"""The health of a card: what it tells of itself, and what the kernel has written about it."""

from typing import Any

import pytest

from preflight.box import TIMEOUT, Gpu, GpuHealth, GpuReading, KernelLog
from preflight.gpu.health import GpuHealthy
from preflight.rings import look
from preflight.verdict import State, Verdict
from tests.fakes import FakeBox

CARD = Gpu(0, "GPU-a", "RTX 3090", 24576, 20000)
WELL = GpuHealth(0, "GPU-a", celsius=41, busy=0, uncorrected=0, pending=False, failed=False)
MODULE = {"/sys/module/nvidia/version": "580.105\n"}


def ask(health: GpuHealth | None = WELL, log: KernelLog | None = None, **more: Any) -> Verdict:
    """The answer for a card in this state, with this log."""
    known = {"paper": MODULE, "reading": GpuReading((CARD,), source="nvml")} | more
    box = FakeBox(log=log or KernelLog(), healths=[health] if health else [], **known)
    return look([GpuHealthy()], box).verdicts[0]


def xid(code: int) -> KernelLog:
    """A line as the driver writes it."""
    return KernelLog((f"5140 NVRM: Xid (PCI:0000:65:00): {code}, pid=812, name=llama-server",))


def test_a_card_that_is_well_passes() -> None:
    """With its temperature in the evidence."""
    verdict = ask()
    assert verdict.state is State.PASS
    assert verdict.evidence == ("GPU 0: 41 °C, 0 % busy",)


@pytest.mark.parametrize(
    ("state", "health", "said"),
    [
        (State.FAIL, {"uncorrected": 2}, "2 memory errors that could not be corrected"),
        (State.FAIL, {"pending": True}, "needs a reset"),
        (State.FAIL, {"retiring": True}, "needs a reset"),
        (State.FAIL, {"failed": True}, "no memory rows left"),
        (State.WARN, {"slowed": ("hardware thermal slowdown",)}, "hardware thermal slowdown"),
        (State.WARN, {"celsius": 90}, "90 °C while it idles"),
        (State.PASS, {"celsius": 90, "busy": 98}, ""),
        (State.UNKNOWN, {"fault": "error", "said": "GPU is lost"}, "does not tell how it does"),
    ],
)
def test_what_a_card_tells_of_itself(state: State, health: dict[str, Any], said: str) -> None:
    """Broken memory refuses, heat warns."""
    known = {"index": 0, "celsius": 41, "busy": 0} | health
    verdict = ask(GpuHealth(**known))
    assert verdict.state is state, verdict.message()
    assert said in verdict.found


@pytest.mark.parametrize(
    ("code", "state"),
    [(79, State.FAIL), (48, State.FAIL), (95, State.FAIL), (119, State.FAIL), (31, State.WARN), (13, State.WARN)],
)  # fmt: skip
def test_an_xid_since_the_boot_is_told_with_its_meaning(code: int, state: State) -> None:
    """A card that fell off the bus may still run what runs; an application's own fault is its own."""
    verdict = ask(log=xid(code))
    assert verdict.state is state
    assert f"Xid {code} since the boot" in verdict.found
    assert "pid=812" in verdict.found


@pytest.mark.parametrize(
    ("log", "state", "said"),
    [
        (
            KernelLog(fault="EPERM", said="Operation not permitted"),
            State.UNKNOWN,
            "may not be read",
        ),
        (KernelLog(fault=TIMEOUT, said="journalctl gave no answer"), State.UNKNOWN, "no answer"),
        (KernelLog(fault="absent"), State.WARN, "has no kernel log"),
        (KernelLog(whole=False), State.WARN, "no longer reaches back"),
        (KernelLog(("12 amdgpu 0000:03:00.0: ring gfx timeout",)), State.WARN, "ring gfx timeout"),
    ],
)
def test_a_log_that_cannot_be_read_whole_is_said(log: KernelLog, state: State, said: str) -> None:
    """P8: no line is not no error, where nobody could look."""
    verdict = ask(log=log)
    assert verdict.state is state
    assert said in verdict.found


def test_without_a_module_the_kernel_has_nothing_to_write() -> None:
    """WSL, or a tool that only plays a card: the log is not asked for."""
    assert ask(log=KernelLog(fault="EPERM"), paper={}).state is State.PASS


def test_a_driver_that_does_not_tell_is_unknown() -> None:
    """AMD's files tell memory only, and are not held against it."""
    verdict = ask(None)
    assert verdict.state is State.UNKNOWN
    assert verdict.found == "the driver does not tell how it does"
    assert ask(None, reading=GpuReading((CARD,), source="amd")).state is State.PASS


def test_no_gpu_has_no_health() -> None:
    """Skipped: gpu.driver tells why."""
    assert ask(reading=GpuReading(fault="absent")).state is State.SKIPPED
