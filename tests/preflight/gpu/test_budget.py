"""GPU memory against the need: what fits, what never will, and what nobody can tell."""

import pytest

from preflight.box import CRASH, TIMEOUT, Gpu, GpuProc, GpuReading, Running
from preflight.gpu.attribution import budget_of
from preflight.gpu.budget import GpuBudget
from preflight.ports.owner import ExpectedOwner
from preflight.rings import Gate, gate, look
from preflight.verdict import State, Verdict
from tests.fakes import FakeBox, a_file, a_process, listens

GIB = 1024
SERVER = a_process(100, "/opt/llama-server", user="llm")
TRAINER = a_process(777, "python3", "train.py", user="alice")
LLM = ExpectedOwner(name="llm", idents=((100, 1000),))


def card(free: int, *procs: GpuProc, **more: object) -> Gpu:
    """A 24 GiB card with this much free, in GiB."""
    return Gpu(
        **{
            "index": 0,
            "uuid": "GPU-aaaa-1",
            "name": "RTX 3090",
            "total_mib": 24 * GIB,
            "free_mib": free * GIB,
            "procs": procs,
            **more,
        }
    )


def held(process: object, gib: int | None) -> GpuProc:
    """A row of the driver's list."""
    mib = None if gib is None else gib * GIB
    return GpuProc(process.pid, mib, proc=process)


def a_box(*gpus: Gpu, **more: object) -> FakeBox:
    """A box with these GPUs, and production running on it."""
    box = FakeBox(reading=GpuReading(tuple(gpus), source="nvml"), **more)
    box.processes = {100: SERVER, 777: TRAINER}
    return box


def ask(box: FakeBox, need: int | None = 22, **more: object) -> Verdict:
    """The answer about so many GiB."""
    check = GpuBudget.model_validate(
        {
            "need_mib": None if need is None else need * GIB,
            "production": (LLM,),
            "asked": need is not None,
            **more,
        }
    )
    return look([check], box).verdicts[0]


def test_it_fits_once_production_gives_its_memory_back() -> None:
    """Free plus production minus headroom, as every number of it is shown."""
    verdict = ask(a_box(card(3, held(SERVER, 20))))
    assert verdict.state is State.PASS
    assert verdict.found == "free 3.0 GiB + production 20.0 GiB - headroom 512 MiB = 22.5 GiB"


def test_what_fits_with_less_to_spare_than_the_headroom_is_a_warning() -> None:
    """A need is a number of yesterday, and somebody opens a window at midnight."""
    for headroom, state in ((500, State.PASS), (513, State.WARN)):
        verdict = ask(a_box(card(3, held(SERVER, 20))), headroom_mib=headroom)
        assert verdict.state is state, verdict.message()
    assert verdict.found.endswith("= 22.5 GiB: only 511 MiB to spare")


def test_it_may_fit_beside_production() -> None:
    """Then memory is no reason to stop it, and that is said."""
    assert "beside production" in ask(a_box(card(3, held(SERVER, 20))), need=2).found


def test_somebody_elses_memory_is_named_and_refused() -> None:
    """It is not ours to give back."""
    verdict = ask(a_box(card(3, held(TRAINER, 20))))
    assert verdict.state is State.FAIL
    assert "short by 19.5 GiB" in verdict.found
    assert "held by pid 777 python3 train.py (alice, 20.0 GiB)" in verdict.found
    assert verdict.who.startswith("alice, pid 777")


def test_the_engine_of_production_is_production() -> None:
    """The process with the memory is often a child of the one that listens."""
    engine = a_process(101, "VLLM::EngineCore", user="llm")
    box = a_box(card(3, held(engine, 20)))
    assert ask(box).state is State.FAIL
    box.families[100] = {101}
    assert ask(box).state is State.PASS


@pytest.mark.parametrize(
    "known", [{"production_pids": (100,)}, {"production_ports": (("127.0.0.1", 8080),)}]
)
def test_production_is_known_by_pid_or_by_its_port_too(known: dict[str, object]) -> None:
    """A command supervisor names no process; whoever holds its port was checked before."""
    box = a_box(card(3, held(SERVER, 20)))
    box.rows.append(listens(8080, SERVER))
    assert ask(box, production=(), **known).state is State.PASS
    assert ask(box, production=()).state is State.FAIL


def test_what_the_card_does_not_have_can_never_fit() -> None:
    """No stop helps: said at once, with the most there could be."""
    verdict = ask(a_box(card(24)), need=24)
    assert verdict.state is State.FAIL
    assert "can never fit: 24.0 GiB in all, at most 23.5 GiB" in verdict.found


@pytest.mark.parametrize(
    "rows",
    [
        (held(SERVER, None),),  # WSL: no bytes a process
        (),  # a container: no rows at all
        (GpuProc(9_999_999, 20 * GIB),),  # pids of another namespace
    ],
)
def test_memory_that_nobody_owns_is_unknown_and_never_production(rows: tuple[GpuProc, ...]) -> None:
    """P8: 21 GiB are used and the driver does not say by whom. No value is invented."""
    verdict = ask(a_box(card(3, *rows)))
    assert verdict.state is State.UNKNOWN
    assert "21.0 GiB are used and the driver names no owner" in verdict.found


def test_a_list_that_the_driver_refuses_is_unknown() -> None:
    """No permission to list is not the same as nobody there."""
    assert ask(a_box(card(3, procs=None))).state is State.UNKNOWN


def test_rows_that_add_up_to_more_than_is_used_are_not_believed() -> None:
    """R535 drivers swapped pids and bytes: such a list proves nothing."""
    verdict = ask(a_box(card(3, held(SERVER, 20), held(TRAINER, 20))))
    assert verdict.state is State.UNKNOWN


def test_reserved_memory_is_no_mystery() -> None:
    """Up to a GiB is charged to nobody on a healthy card: short is short."""
    verdict = ask(a_box(card(10, held(SERVER, 1), held(TRAINER, 12))))
    assert verdict.state is State.FAIL


def test_without_a_number_the_weights_alone_have_to_fit() -> None:
    """A floor is no proof, and the answer says so."""
    box = a_box(card(3, held(SERVER, 20))).has(a_file("/m/big.gguf", size=15 << 30))
    verdict = ask(box, need=None, weights=("/m/big.gguf",))
    assert verdict.state is State.WARN
    assert "the weights alone are 15.0 GiB" in verdict.found
    box.has(a_file("/m/big.gguf", size=30 << 30))
    assert ask(box, need=None, weights=("/m/big.gguf",)).state is State.FAIL
    assert ask(box, need=None, weights=("/m/gone.gguf",)).state is State.UNKNOWN


def test_no_gpu_and_none_asked_for_is_skipped_plainly() -> None:
    """A box without a GPU is no reason to refuse a job that needs none."""
    for reading in (GpuReading(fault="absent"), GpuReading(fault="not-loaded"), GpuReading()):
        assert ask(FakeBox(reading=reading), need=None).state is State.SKIPPED


def test_no_gpu_though_one_is_asked_for_is_a_fail() -> None:
    """Case: cron's bare PATH has no nvidia-smi, and the answer shows that PATH."""
    reading = GpuReading(fault="absent", said="nvidia-smi not found in PATH=/usr/bin:/bin")
    verdict = ask(FakeBox(reading=reading))
    assert verdict.state is State.FAIL
    assert "nvidia-smi not found in PATH=/usr/bin:/bin" in verdict.found
    assert ask(FakeBox(reading=GpuReading())).state is State.FAIL


@pytest.mark.parametrize(
    ("fault", "state", "said"),
    [
        (TIMEOUT, State.UNKNOWN, "timeout"),
        (CRASH, State.UNKNOWN, "reader died"),
        ("error", State.UNKNOWN, "driver answers"),
        ("mismatch", State.FAIL, "production could not come back"),
        ("lost", State.FAIL, "fallen off the bus"),
        ("not-loaded", State.FAIL, "not loaded"),
    ],
)
def test_each_way_of_not_answering_has_its_own_words(fault: str, state: State, said: str) -> None:
    """Also when no GPU was asked for, a stuck driver blocks: production needs it to come back."""
    reading = GpuReading(fault=fault, said="no answer within 20 s")
    verdict = ask(FakeBox(reading=reading))
    assert verdict.state is state
    assert said in verdict.found
    assert "no answer within 20 s" in verdict.found


def test_a_lost_gpu_fails_and_one_without_memory_is_unknown() -> None:
    """One of them needs a reboot, the other a person who knows the machine."""
    assert ask(a_box(card(3, fault="lost", said="GPU is lost"))).state is State.FAIL
    assert ask(a_box(card(3, fault="unsupported"))).state is State.UNKNOWN
    assert ask(a_box(card(3, fault="error", said="NVML error 999"))).state is State.UNKNOWN


def test_the_gpu_is_chosen_by_index_or_uuid() -> None:
    """The beginning of a UUID is enough, if there is no other that begins so."""
    cards = (card(3), card(23, index=1, uuid="GPU-bbbb-2"))
    for name in (1, "GPU-bbbb", "GPU-bbbb-2"):
        assert ask(a_box(*cards), gpu=name).state is State.PASS
    assert ask(a_box(*cards), gpu=0).state is not State.PASS
    missing = ask(a_box(*cards), gpu="GPU-cccc")
    assert missing.state is State.FAIL
    assert "GPU-aaaa-1" in missing.found


def test_a_number_for_one_of_several_gpus_needs_its_name() -> None:
    """Which card is meant is not ours to choose."""
    verdict = ask(a_box(card(23), card(23, index=1, uuid="GPU-bbbb-2")))
    assert verdict.state is State.UNKNOWN
    assert "GPU-bbbb-2" in verdict.found
    assert ask(a_box(card(23), card(23, uuid="GPU-aaaa-2")), gpu="GPU-aaaa").state is State.UNKNOWN


def test_the_sums_of_a_budget() -> None:
    """Several cards add up, and what nobody is charged with is kept apart."""
    cards = (card(3, held(SERVER, 20)), card(20, held(TRAINER, 2)))
    budget = budget_of(cards, frozenset({100}))
    assert (budget.free, budget.production, budget.gap) == (23 * GIB, 20 * GIB, 3 * GIB)
    assert [row.pid for row in budget.foreign] == [777]
    assert budget.after_stop() == 43 * GIB


def test_memory_that_nobody_seen_holds_is_told_with_all_that_is_known() -> None:
    """A zombie, a number of another namespace, and whoever has the device open."""
    rows = (GpuProc(50, 9 * GIB), GpuProc(9_999_999, 8 * GIB))
    box = a_box(card(3, *rows), all_processes=[Running(50, 1, "Z", "python3")])
    box.openers = [TRAINER, SERVER]
    verdict = ask(box)
    assert verdict.state is State.UNKNOWN
    said = " ".join(verdict.evidence)
    assert "pid 50 is a zombie that holds 9.0 GiB: only a reboot may free it" in said
    assert "pid 9999999 on the driver's list is not to be seen here, and holds 8.0 GiB" in said
    assert "has the device open, and is not on the driver's list: pid 777 python3 train.py" in said
    assert "llama-server" not in said


def test_shared_memory_is_judged_by_what_the_host_has_available() -> None:
    """GB10: what production holds for itself comes back, once, whoever counts it."""
    shared = Gpu(0, "GPU-gb10", "NVIDIA GB10", 120 * GIB, 40 * GIB, procs=(), unified=True)
    box = a_box(shared, paper={"/proc/100/status": f"RssAnon: {60 << 20} kB\n"})
    assert ask(box, 90).state is State.PASS
    assert "production 60.0 GiB" in ask(box, 90).found
    assert ask(box, 110).state is State.FAIL
    listed = Gpu(
        0, "GPU-gb10", "GB10", 120 * GIB, 40 * GIB, procs=(held(SERVER, 50),), unified=True
    )
    assert budget_of((listed,), frozenset({100}), 60 * GIB).production == 60 * GIB
    assert budget_of((listed,), frozenset({100}), 10 * GIB).production == 50 * GIB


def test_a_divided_card_is_used_by_its_parts() -> None:
    """Its own numbers are those of all instances together."""
    whole = Gpu(0, "GPU-a", "A100", 40 * GIB, 40 * GIB, mig=True)
    part = Gpu(0, "MIG-b", "A100 MIG", 10 * GIB, 10 * GIB, parent="GPU-a")
    assert ask(a_box(whole, part), 8).state is State.PASS
    assert ask(a_box(whole, part), 8, gpu="MIG-b").state is State.PASS
    assert ask(a_box(whole, part), 20).state is State.FAIL


def test_a_desktop_on_the_card_is_a_warning() -> None:
    """It takes more whenever somebody opens a window."""
    xorg = a_process(60, "/usr/lib/xorg/Xorg", user="root")
    drawn = GpuProc(60, 400, kind="graphics", proc=xorg)
    verdict = ask(a_box(card(3, held(SERVER, 20), drawn)))
    assert verdict.state is State.WARN
    assert "a desktop is drawn on it: pid 60 Xorg" in verdict.found


def test_whoever_comes_or_goes_before_the_gate_closes_it() -> None:
    """Even where it still fits: somebody is at work on the card."""
    box = a_box(card(3, held(SERVER, 20)))
    check = GpuBudget(need_mib=20 * GIB, production=(LLM,), asked=True)
    looked = look([check], box)
    assert looked.passed is not None
    assert isinstance(gate(looked.passed, box, lambda: 0.0), Gate)
    small = GpuProc(777, 100, proc=TRAINER)
    box.reading = GpuReading((card(3, held(SERVER, 20), small),), source="nvml")
    refused = gate(looked.passed, box, lambda: 0.0)
    assert isinstance(refused, tuple)
    assert refused[0].id == "gate.recheck"
