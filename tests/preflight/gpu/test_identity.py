"""Which GPU is meant, and which one the candidate will see."""

from typing import Any

import pytest

from preflight.box import Gpu, GpuReading
from preflight.files.recorded import Record
from preflight.gpu.identity import GpuIdentity, Visible
from preflight.rings import look
from preflight.verdict import State, Verdict
from tests.fakes import FakeBox

OLD = Gpu(0, "GPU-aaaa-1", "RTX 3090", 24576, 20000)
NEW = Gpu(1, "GPU-bbbb-2", "RTX 5090", 32768, 30000)
TWIN = Gpu(1, "GPU-cccc-3", "RTX 3090", 24576, 20000)
DIVIDED = Gpu(0, "GPU-dddd-4", "A100", 40960, 40000, mig=True)
PART = Gpu(0, "MIG-eeee-5", "A100 MIG", 9728, 9000, parent="GPU-dddd-4")


def ask(*gpus: Gpu, named: tuple[int | str, ...] = (), asked: bool = True, **seen: Any) -> Verdict:
    """The answer for these cards, these names, and this environment."""
    visible = (Visible(arm="candidate", **seen),)
    box = FakeBox(reading=GpuReading(gpus, source="nvml"))
    return look([GpuIdentity(gpus=named, visible=visible, asked=asked)], box).verdicts[0]


@pytest.mark.parametrize(
    ("gpus", "named", "state", "said"),
    [
        ((OLD,), (), State.PASS, "0: GPU-aaaa-1 RTX 3090"),
        ((OLD,), (0,), State.PASS, ""),
        ((OLD, NEW), ("GPU-bbbb",), State.WARN, "sees all 2 GPUs, and the job names 1"),
        ((OLD, NEW), ("GPU-aaaa-1", "GPU-bbbb-2"), State.PASS, ""),
        ((OLD, NEW), (0,), State.WARN, "an index may be another card after a reboot"),
        ((OLD, NEW), ("GPU-zzzz",), State.FAIL, "GPU-zzzz is not here"),
        ((OLD, NEW), ("GPU-",), State.FAIL, "names several GPUs"),
        ((OLD,), (3,), State.FAIL, "GPU 3 is not here"),
        ((Gpu(0, "GPU-aaaa-1", fault="lost", said="off the bus"),), (0,), State.FAIL, "is lost"),
        ((DIVIDED, PART), (0,), State.FAIL, "name one of MIG-eeee-5"),
        ((DIVIDED,), ("GPU-dddd-4",), State.FAIL, "and it has no instance"),
        ((DIVIDED, PART), ("MIG-eeee",), State.PASS, ""),
    ],
)
def test_a_name_means_exactly_one_card(
    gpus: tuple[Gpu, ...], named: tuple[int | str, ...], state: State, said: str
) -> None:
    """By UUID, its beginning, its index, or an instance of a divided card."""
    verdict = ask(*gpus, named=named)
    assert verdict.state is state, verdict.message()
    assert said in verdict.found


@pytest.mark.parametrize(
    ("gpus", "named", "seen", "state", "said"),
    [
        ((OLD, NEW), ("GPU-bbbb",), {"devices": "GPU-bbbb-2"}, State.PASS, ""),
        ((OLD, NEW), ("GPU-bbbb",), {"devices": "GPU-aaaa-1"}, State.FAIL, "and the job names another"),
        ((OLD, NEW), ("GPU-bbbb",), {"devices": "1"}, State.WARN, "CUDA counts the fastest first"),
        ((OLD, NEW), ("GPU-bbbb",), {"devices": "1", "order": "PCI_BUS_ID"}, State.PASS, ""),
        ((OLD, NEW), ("GPU-bbbb",), {"devices": "0", "order": "PCI_BUS_ID"}, State.FAIL, "names another"),
        ((OLD, TWIN), ("GPU-cccc",), {"devices": "1"}, State.PASS, ""),
        ((OLD,), (0,), {"devices": "GPU-gone"}, State.FAIL, "names GPU-gone, which is not here"),
        ((OLD,), (0,), {"devices": "7"}, State.FAIL, "names 7, which is not here"),
        ((OLD,), (0,), {"devices": ""}, State.FAIL, "hides every GPU from the candidate"),
        ((OLD,), (0,), {"devices": "-1"}, State.FAIL, "hides every GPU"),
        ((OLD, NEW), (), {"devices": "0,1"}, State.WARN, "fastest first"),
    ],
)  # fmt: skip
def test_the_environment_shows_the_card_that_is_meant(
    gpus: tuple[Gpu, ...],
    named: tuple[int | str, ...],
    seen: dict[str, str],
    state: State,
    said: str,
) -> None:
    """The driver counts along the bus, CUDA by speed: a number is not a name."""
    verdict = ask(*gpus, named=named, **seen)
    assert verdict.state is state, verdict.message()
    assert said in verdict.found


@pytest.mark.parametrize(
    ("before", "named", "state", "said"),
    [
        ({"GPU-aaaa-1": 0, "GPU-bbbb-2": 1}, ("GPU-bbbb",), State.PASS, ""),
        ({"GPU-aaaa-1": 1, "GPU-bbbb-2": 0}, ("GPU-bbbb",), State.WARN, "is GPU 1 now, and was GPU 0"),
        ({"GPU-aaaa-1": 1, "GPU-bbbb-2": 0}, (), State.WARN, "is GPU 0 now, and was GPU 1 when the job"),
        ({"GPU-aaaa-1": 0}, ("GPU-bbbb",), State.WARN, "is GPU 1 now, and was not here when the job last passed: 1: GPU-bbbb-2"),
        ({"GPU-aaaa-1": 0, "GPU-old": 1}, ("GPU-aaaa",), State.PASS, ""),
        ({}, ("GPU-bbbb",), State.PASS, ""),
    ],
)  # fmt: skip
def test_a_card_that_is_counted_otherwise_than_last_time_is_a_warning(
    before: dict[str, int], named: tuple[int | str, ...], state: State, said: str
) -> None:
    """A card was put in, or the bus was counted anew: whatever goes by number means another one."""
    check = GpuIdentity(gpus=named, asked=True, record=Record(job="night", at=1.0, gpus=before))
    box = FakeBox(reading=GpuReading((OLD, NEW), source="nvml"))
    verdict = look([check], box).verdicts[0]
    assert verdict.state is state, verdict.message()
    assert said in verdict.found


def test_the_parts_of_a_divided_card_have_no_number_of_their_own() -> None:
    """An instance goes by its UUID alone."""
    check = GpuIdentity(
        gpus=("MIG-eeee",), asked=True, record=Record(job="night", at=1.0, gpus={"GPU-dddd-4": 0})
    )
    box = FakeBox(reading=GpuReading((DIVIDED, PART), source="nvml"))
    assert look([check], box).verdicts[0].state is State.PASS


def test_a_candidate_that_hides_the_gpu_on_purpose_is_left_alone() -> None:
    """A job for the CPU asks for none."""
    assert ask(OLD, asked=False, devices="").state is State.PASS


def test_no_gpu_is_the_drivers_business() -> None:
    """Said once."""
    assert ask(asked=False).state is State.SKIPPED
    for fault in ("absent", "mismatch", "TIMEOUT"):
        box = FakeBox(reading=GpuReading(fault=fault))
        assert look([GpuIdentity(asked=True)], box).verdicts[0].state is State.SKIPPED


def test_a_gpu_that_nobody_reads_is_unknown() -> None:
    """An Intel card is a GPU too."""
    box = FakeBox(paper={"/sys/class/drm/card0/device/vendor": "0x8086\n"})
    verdict = look([GpuIdentity(asked=True)], box).verdicts[0]
    assert verdict.state is State.UNKNOWN
    assert "a GPU of Intel is here" in verdict.found
