"""Two signs for a model that is not where it should be, and when nothing is said at all."""

from dataclasses import replace

import pytest

from preflight.box import Gpu, GpuProc, GpuReading
from preflight.gpu.budget import GpuBudget
from preflight.models.fit import Load
from runner.placement import Placement, expected
from tests.fakes import FakeBox, a_model

GIB = 1024
LOG = "0.01 W warning: no usable GPU found, --gpu-layers option will be ignored\n"


def a_reading(free: int, *rows: GpuProc) -> GpuReading:
    """One card of 24 GiB."""
    return GpuReading((Gpu(0, "GPU-a", "RTX 3090", 24 * GIB, free, rows),), source="nvml")


def found(before: GpuReading, after: GpuReading, *, log: str = "") -> str | None:
    """The answer when a server of pid 7 has become ready."""
    box = FakeBox(reading=before)
    placement = Placement({"candidate": 8 * GIB}, box)
    placement.begin()
    box.reading = after
    return placement.missing("candidate", {7}, log)


def test_an_empty_card_is_told_with_the_line_of_the_log() -> None:
    """Card and log say the same."""
    said = found(a_reading(24 * GIB), a_reading(23 * GIB), log=LOG)
    assert said is not None
    assert "1.0 GiB more are used than before it loaded, at least 8.0 GiB were expected" in said
    assert "its processes hold 0 MiB there" in said
    assert "no usable GPU found" in said


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (a_reading(24 * GIB), a_reading(10 * GIB)),
        (a_reading(24 * GIB), a_reading(24 * GIB, GpuProc(7, 9 * GIB))),  # somebody else left
        (a_reading(24 * GIB), a_reading(10 * GIB, GpuProc(7, None))),  # no numbers for processes
    ],
)
def test_one_sign_that_it_is_there_is_enough(before: GpuReading, after: GpuReading) -> None:
    """A neighbour that comes or goes must not end a run."""
    assert found(before, after) is None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (GpuReading(fault="absent"), a_reading(24 * GIB)),
        (a_reading(24 * GIB), GpuReading(fault="TIMEOUT")),
        (GpuReading(), GpuReading()),
    ],
)
def test_where_no_card_tells_nothing_is_said(before: GpuReading, after: GpuReading) -> None:
    """A box without a GPU, or with one that cannot be read, proves nothing."""
    assert found(before, after, log=LOG) is None


def test_a_lost_card_proves_nothing() -> None:
    """Its numbers mean nothing."""
    lost = replace(a_reading(0), gpus=(Gpu(0, fault="lost"),))
    assert found(a_reading(24 * GIB), lost) is None
    assert found(lost, a_reading(24 * GIB)) is None


def test_only_arms_that_go_to_the_gpu_are_expected_there() -> None:
    """Half of the weights, or a quarter of a number that a person named."""
    box = FakeBox()
    box.models["/m/large.gguf"] = a_model(blocks=(2 << 30,) * 4)
    loads = {
        "large": Load(arm="large", model="/m/large.gguf"),
        "host": Load(arm="host", model="/m/large.gguf", on_gpu=0),
        "small": Load(arm="small", model="/m/tiny.gguf"),
    }
    box.models["/m/tiny.gguf"] = a_model(blocks=(1 << 20,) * 4, outside={})
    assert expected([GpuBudget(loads=tuple(loads.values()))], box) == {"large": 4152}
    named = GpuBudget(need_mib=20_000, loads=(loads["small"],))
    assert expected([named], box) == {"small": 5000}
    on_the_cpu = GpuBudget(need_mib=20_000, loads=(loads["host"],))
    assert expected([on_the_cpu], box) == {}
    another_kind = GpuBudget(need_mib=20_000)
    assert expected([another_kind], box) == {"candidate": 5000, "baseline": 5000}


def test_without_expectations_no_card_is_read() -> None:
    """It costs nothing where it cannot tell anything."""
    box = FakeBox(reading=a_reading(1))
    placement = Placement({}, box)
    placement.begin()
    assert placement.missing("candidate", {7}, LOG) is None
