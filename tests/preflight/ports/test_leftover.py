"""Engines that outlived their server, and servers of our models that nobody accounts for."""

from typing import Any

import pytest

from preflight.box import Gpu, GpuProc, GpuReading, Running
from preflight.ports.leftover import Leftovers
from preflight.ports.owner import ExpectedOwner
from preflight.rings import look
from preflight.verdict import State, Verdict
from tests.fakes import FakeBox, a_process

INIT = Running(1, 0, "S", "systemd", ("/sbin/init",))
ENGINE = Running(222, 1, "S", "VLLM::EngineCor", ("VLLM::EngineCore",), 1001)
MODEL = "/models/job.gguf"
LLM = ExpectedOwner(name="llm", idents=((100, 1000),))


def ask(box: FakeBox, **more: Any) -> Verdict:
    """The answer about one machine."""
    check = Leftovers.model_validate(
        {"production": (LLM,), "models": (MODEL,), "programs": ("/opt/server.py",)} | more
    )
    return look([check], box).verdicts[0]


def with_processes(*processes: Running, held: int | None = None, **more: Any) -> FakeBox:
    """A box with these processes; the first of them may hold GPU memory."""
    rows = () if held is None else (GpuProc(processes[0].pid, held),)
    gpu = Gpu(0, "GPU-a", "RTX 3090", 24576, 3000, procs=rows)
    box = FakeBox(
        all_processes=[INIT, *processes], reading=GpuReading((gpu,), source="nvml"), **more
    )
    box.processes = {one.pid: a_process(one.pid, *one.argv) for one in processes}
    box.processes[100] = a_process(100, "llama-server")
    return box


def test_nothing_left_passes_and_asks_no_gpu() -> None:
    """Whoever is not suspected is not looked into."""
    other = Running(5, 1, "S", "python3", ("python3", "train.py"))
    assert ask(with_processes(other)).state is State.PASS


@pytest.mark.parametrize(
    "title",
    [
        "VLLM::EngineCore",
        "VLLM::Worker_TP0",
        "sglang::scheduler",
        "/usr/bin/ollama runner --model x",
    ],
)
def test_an_engine_whose_server_has_ended_and_that_holds_memory_is_a_fail(title: str) -> None:
    """Case: the API process was killed; the port is free and the card is full."""
    engine = Running(222, 1, "S", title[:15], tuple(title.split(" ")), 1001)
    verdict = ask(with_processes(engine, held=21_500))
    assert verdict.state is State.FAIL
    assert "pid 222" in verdict.found
    assert "21.0 GiB" in verdict.found
    assert "anna" in verdict.who


def test_an_idle_leftover_is_a_warning() -> None:
    """It holds nothing that we need."""
    verdict = ask(with_processes(ENGINE))
    assert verdict.state is State.WARN
    assert "without GPU memory" in verdict.found


@pytest.mark.parametrize(
    "reading",
    [
        GpuReading(fault="TIMEOUT", said="NVML: no answer within 20 s"),
        GpuReading((Gpu(0, "GPU-a", "A", 1, 1, procs=None),), source="nvml"),
    ],
)
def test_a_leftover_of_which_the_gpu_does_not_tell_is_unknown(reading: GpuReading) -> None:
    """P8: what it holds is neither nothing nor everything."""
    box = with_processes(ENGINE)
    box.reading = reading
    assert ask(box).state is State.UNKNOWN


def test_an_engine_with_its_server_is_none() -> None:
    """Somebody else's server with its child: gpu.budget names what it holds."""
    server = Running(200, 1, "S", "vllm", ("vllm", "serve"), 1001)
    engine = Running(222, 200, "S", "VLLM::EngineCor", ("VLLM::EngineCore",), 1001)
    assert ask(with_processes(engine, server, held=21_500)).state is State.PASS


def test_productions_own_engine_is_production() -> None:
    """Also when init has inherited it, as long as it shares its unit or session."""
    box = with_processes(ENGINE, held=21_500)
    box.families[100] = {222}
    assert ask(box).state is State.PASS


@pytest.mark.parametrize(
    ("argv", "state"),
    [
        (("/opt/llama/llama-server", "-m", MODEL), State.WARN),
        (("llama-server", f"--model={MODEL}"), State.WARN),
        (("python3", "/opt/server.py", "-m", MODEL), State.WARN),
        (("python3", "other.py", "-m", MODEL), State.PASS),
        (("sha256sum", MODEL), State.PASS),
        (("llama-server", "-m", "/models/other.gguf"), State.PASS),
    ],
)
def test_a_server_of_our_model_that_is_not_production_is_named(
    argv: tuple[str, ...], state: State
) -> None:
    """Somebody tried the job by hand, and forgot it; who only reads the file is left alone."""
    verdict = ask(with_processes(Running(300, 50, "S", argv[0][-15:], argv, 1001)))
    assert verdict.state is state
    if state is State.WARN:
        assert "serves one of these models, and is not production" in verdict.found


def test_a_wrappers_child_that_serves_productions_model_is_production() -> None:
    """Its parents lead to production."""
    wrapper = Running(100, 1, "S", "sh", ("sh", "run.sh"))
    server = Running(300, 100, "S", "llama-server", ("llama-server", "-m", MODEL))
    assert ask(with_processes(server, wrapper)).state is State.PASS


def test_a_user_who_sees_only_its_own_processes_does_not_know() -> None:
    """hidepid: a short table is not an empty machine."""
    box = with_processes()
    box.all_processes = [Running(5, 4, "S", "bash", ("bash",))]
    verdict = ask(box)
    assert verdict.state is State.UNKNOWN
    assert "hidepid" in verdict.found


def test_a_process_that_vanishes_while_it_is_looked_at_is_none() -> None:
    """It was in the table, and is gone."""
    box = with_processes(ENGINE)
    del box.processes[222]
    assert ask(box).state is State.PASS
