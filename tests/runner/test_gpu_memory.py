"""The GPU after the stop: its memory is back, stays so, and what the job needs fits into it."""

from dataclasses import replace

from preflight.box import Gpu, GpuProc, GpuReading
from preflight.gpu.budget import GpuBudget
from preflight.ports.owner import ExpectedOwner
from runner.gpu_memory import MEMORY_BACK_S, held_by, memory_back, residency
from tests.fakes import FakeBox, a_process
from tests.fakes_runner import FakeClock

GIB = 1024
OTHER = a_process(777, "python3", "train.py", user="alice")
NEED = GpuBudget(
    need_mib=20 * GIB, asked=True, production=(ExpectedOwner(name="llm", idents=((100, 1000),)),)
)


def a_box(free: int, *rows: GpuProc) -> FakeBox:
    """A card of 24 GiB with so much free, in GiB."""
    card = Gpu(0, "GPU-a", "RTX 3090", 24 * GIB, free * GIB, procs=rows)
    box = FakeBox(reading=GpuReading((card,), source="nvml"))
    box.processes = {777: OTHER, 100: a_process(100, "llama-server")}
    return box


def test_memory_that_is_back_is_enough() -> None:
    """Two looks that agree, and room for the job."""
    assert memory_back({100}, a_box(23), FakeClock(), [NEED]) == ""


def test_a_member_of_production_that_holds_memory_is_named_with_it() -> None:
    """An engine that ends last, or never."""
    clock = FakeClock()
    said = memory_back({100}, a_box(3, GpuProc(100, 20 * GIB)), clock, [NEED])
    assert said == "GPU memory is still held by pid 100 (20.0 GiB); 3.0 GiB of 24.0 GiB free"
    assert clock.now() >= MEMORY_BACK_S


def test_memory_that_somebody_else_took_keeps_the_job_from_starting() -> None:
    """Who came in the moment between: production's share counts no more, it is down."""
    said = memory_back({100}, a_box(3, GpuProc(777, 20 * GIB, proc=OTHER)), FakeClock(), [NEED])
    assert said.startswith("the GPU has too little memory after the stop: free 3.0 GiB")
    assert "held by pid 777 python3 train.py (alice, 20.0 GiB)" in said


def test_memory_that_nobody_owns_is_not_there_either() -> None:
    """A zombie holds it, or a driver that does not let go: production's own name is no excuse."""
    said = memory_back({100}, a_box(3), FakeClock(), [NEED])
    assert "too little memory after the stop" in said
    assert "short by 17.5 GiB" in said


def test_nobody_holding_anything_says_nothing() -> None:
    """Words only where there is something to say."""
    assert held_by({100}, a_box(20).reading) == ""
    assert held_by({100}, GpuReading(fault="TIMEOUT")) == ""


class Falling(FakeBox):
    """A card whose memory comes back bit by bit: a GiB at each look, up to what is free at last."""

    last = 23 * GIB

    def gpus(self, *, within: float) -> GpuReading:
        """The next look."""
        shown = super().gpus(within=within)
        (card,) = shown.gpus
        more = min(card.free_mib + GIB, self.last)
        self.reading = replace(shown, gpus=(replace(card, free_mib=more),))
        return shown


def test_memory_that_is_still_coming_back_is_waited_for() -> None:
    """Room for the job is not enough: what comes next may be less than what was measured."""
    box, clock = Falling(reading=a_box(10).reading), FakeClock()
    assert memory_back({100}, box, clock) == ""
    assert box.reading.gpus[0].free_mib == 23 * GIB
    assert clock.now() - 1000 >= 1.3


def test_a_card_that_moves_a_little_is_steady() -> None:
    """A desktop draws."""
    box = Falling(reading=a_box(10).reading)
    box.last = 10 * GIB + 15
    assert memory_back({100}, box, FakeClock()) == ""


def test_what_a_driver_does_not_say_is_no_number() -> None:
    """One process of two without a number: the sum would be too small."""
    rows = (GpuProc(100, 5 * GIB), GpuProc(101, None), GpuProc(777, 9 * GIB))
    box = a_box(3, *rows)
    held = residency(box)
    assert held({100}) == 5 * GIB
    assert held({100, 777}) == 14 * GIB
    assert held({100, 101}) is None
    box.reading = GpuReading(fault="TIMEOUT")
    assert held({100}) is None
