"""How busy the machine is, since numbers of a contended one are not worth much."""

from typing import Any

import pytest

from preflight.box import Me, Running
from preflight.host.pressure import Quiet
from preflight.linux.box import LinuxBox
from preflight.ports.owner import ExpectedOwner
from preflight.rings import look
from preflight.verdict import State, Verdict
from tests.fakes import UID, FakeBox, a_process

MAKE = Running(10, 1, "R", "make", ("make", "-j16"), 1001, 5000)
IDLE = Running(11, 1, "S", "sleep", ("sleep", "9"), 1001, 1)
SERVER = Running(100, 1, "R", "llama-server", ("llama-server",), 1000, 99_000)
OURS = Running(12, 99, "R", "python3", ("python3", "reader"), 1000, 9)


def pressure(cpu: float = 0.0, memory: float = 0.0, io: float = 0.0) -> dict[str, str]:
    """The kernel's three files."""
    rest = "avg60=1.00 avg300=1.00 total=1"
    return {
        f"/proc/pressure/{kind}": f"some avg10={value:.2f} {rest}\nfull avg10=0.00 {rest}\n"
        for kind, value in (("cpu", cpu), ("memory", memory), ("io", io))
    }


def ask(paper: dict[str, str], *running: Running, **more: Any) -> Verdict:
    """The answer for a machine with this pressure and these processes."""
    box = FakeBox(paper=paper, all_processes=list(running))
    box.processes = {one.pid: a_process(one.pid, *one.argv, user="carol") for one in running}
    box.who = Me(UID, "runner", None, None, (99, 1))
    check = Quiet.model_validate(
        {"production": (ExpectedOwner(name="llm", idents=((100, 0),)),)} | more
    )
    return look([check], box).verdicts[0]


def test_a_quiet_machine_passes() -> None:
    """All three numbers are told."""
    verdict = ask(pressure(cpu=3.2))
    assert verdict.state is State.PASS
    assert verdict.found == "cpu pressure 3 %, memory pressure 0 %, io pressure 0 %"


@pytest.mark.parametrize("busy", [{"cpu": 34}, {"memory": 6}, {"io": 25}])
def test_pressure_is_a_warning_that_tags_results(busy: dict[str, float]) -> None:
    """Whoever runs now is named, but neither production nor we ourselves."""
    verdict = ask(pressure(**busy), IDLE, SERVER, OURS, MAKE)
    assert verdict.state is State.WARN
    assert "(make -j16, carol)" in verdict.found
    assert "llama-server" not in verdict.found
    assert "reader" not in verdict.found
    assert "tagged as contended" in verdict.wanted
    assert "carol" in verdict.remedy


def test_a_job_may_set_a_limit() -> None:
    """[needs] cpu_pressure_at_most: then it is refused instead of tagged."""
    verdict = ask(pressure(cpu=34), MAKE, at_most=20)
    assert verdict.state is State.FAIL
    assert verdict.wanted == "at most 20 % pressure"
    assert ask(pressure(cpu=34), MAKE, at_most=50).state is State.WARN


@pytest.mark.parametrize(
    ("load", "cores", "state"),
    [
        ("0.50 1 1 1/2 3", "0-3", State.PASS),
        ("6.10 1 1 1/2 3", "0-3,8", State.WARN),
        ("6.10 1 1 1/2 3", "nonsense", State.PASS),
        ("", "0-3", State.UNKNOWN),
    ],
)
def test_without_pressure_the_load_has_to_do(load: str, cores: str, state: State) -> None:
    """Kernels without PSI; neither of them is unknown."""
    paper = {"/sys/devices/system/cpu/online": cores}
    if load:
        paper["/proc/loadavg"] = load
    assert ask(paper).state is state


def test_this_machine_tells_its_pressure_or_its_load() -> None:
    """The real files."""
    with LinuxBox() as box:
        verdict = look([Quiet()], box).verdicts[0]
    assert verdict.state in (State.PASS, State.WARN)
