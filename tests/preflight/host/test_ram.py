"""Memory of the host and limits of processes: what is copied or locked needs both."""

from typing import Any

import pytest

from preflight.box import TIMEOUT, Me
from preflight.host.limits import HostLimits
from preflight.host.ram import HostRam
from preflight.linux.box import LinuxBox
from preflight.ports.owner import ExpectedOwner
from preflight.rings import look
from preflight.verdict import State, Verdict
from tests.fakes import UID, FakeBox, a_file, a_process, missing

MODEL = "/m/model.gguf"  # 1 GiB, by the fake
MEMINFO = "MemTotal: {total} kB\nMemFree: 1 kB\nMemAvailable: {available} kB\nSwapTotal: 8388608 kB\nSwapFree: {swap} kB\n"
LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max core file size        {core}                    unlimited            bytes
Max open files            {files}                 524288               files
Max locked memory         {locked}              8388608              bytes
"""


def memory(available_mib: int, swapped_mib: int = 0) -> dict[str, str]:
    """/proc/meminfo with so much available."""
    text = MEMINFO.format(
        total=32 << 20, available=available_mib << 10, swap=8388608 - (swapped_mib << 10)
    )
    return {"/proc/meminfo": text}


def ram(box: FakeBox, *copied: str, **more: Any) -> Verdict:
    """The answer for these files copied into memory."""
    return look([HostRam(copied=copied, **more)], box.has(a_file(MODEL))).verdicts[0]


def test_mapped_weights_need_no_memory_of_the_host() -> None:
    """They lie in the page cache, which counts as free."""
    verdict = ram(FakeBox(paper=memory(900)))
    assert verdict.state is State.PASS
    assert verdict.found == "900 MiB available, nothing is copied or locked"


def test_what_is_copied_has_to_fit_beside_the_headroom() -> None:
    """--no-mmap and --mlock."""
    assert ram(FakeBox(paper=memory(2000)), MODEL).state is State.PASS
    verdict = ram(FakeBox(paper=memory(1400)), MODEL)
    assert verdict.state is State.FAIL
    assert verdict.found == "1.4 GiB available, 1.0 GiB are copied or locked"


def test_what_production_holds_for_itself_comes_back() -> None:
    """Its anonymous memory, not what it maps from files."""
    box = FakeBox(
        paper=memory(1000) | {"/proc/100/status": "Name: x\nRssAnon:\t 1048576 kB\nRssFile: 9 kB\n"}
    )
    box.processes[100] = a_process(100, "llama-server")
    llm = ExpectedOwner(name="llm", idents=((100, 1000),))
    verdict = ram(box, MODEL, production=(llm,))
    assert verdict.state is State.PASS
    assert "production 1.0 GiB" in verdict.found


def test_the_control_group_that_this_runs_in_has_the_last_word() -> None:
    """MemoryMax= of our own service, or of a slice above it."""
    box = FakeBox(paper=memory(20_000))
    box.who = Me(UID, "runner", "/system.slice/runner.service", "runner.service")
    box.paper["/sys/fs/cgroup/system.slice/runner.service/memory.max"] = "max\n"
    assert ram(box, MODEL).state is State.PASS
    box.paper["/sys/fs/cgroup/system.slice/memory.max"] = f"{1 << 30}\n"
    verdict = ram(box, MODEL)
    assert verdict.state is State.FAIL
    assert "system.slice allows 1.0 GiB" in verdict.found


@pytest.mark.parametrize("paper", [memory(20_000, swapped_mib=2048), memory(300)])
def test_a_machine_that_swaps_or_is_nearly_full_is_a_warning(paper: dict[str, str]) -> None:
    """It fits, and everything will be slow."""
    assert ram(FakeBox(paper=paper)).state is State.WARN


def test_memory_that_is_not_told_is_unknown() -> None:
    """Neither the kernel's word nor the size of the weights is made up."""
    assert ram(FakeBox()).state is State.UNKNOWN
    hung = FakeBox(paper=memory(20_000)).has(missing("/nfs/m", fault=TIMEOUT, said="no answer"))
    assert ram(hung, "/nfs/m").state is State.UNKNOWN
    assert ram(FakeBox(paper=memory(20_000)), "/m/gone").state is State.FAIL


def limits(locked: str = "8388608", files: str = "1024", core: str = "0") -> str:
    """/proc/PID/limits."""
    return LIMITS.format(locked=locked, files=files, core=core)


def ask(box: FakeBox, **more: Any) -> Verdict:
    """The answer about limits."""
    return look([HostLimits.model_validate(more)], box.has(a_file(MODEL))).verdicts[0]


def ours(text: str | None = None, **more: str) -> FakeBox:
    """A box on which we have these limits."""
    return FakeBox(paper={"/proc/self/limits": text or limits(), **more})


def test_limits_that_are_needed_pass() -> None:
    """Nothing is locked, nothing comes back smaller."""
    assert ask(ours()).state is State.PASS


def test_a_lock_above_its_limit_is_a_fail() -> None:
    """The server only warns, and measures something else."""
    verdict = ask(ours(), locked=(MODEL,))
    assert verdict.state is State.FAIL
    assert (
        verdict.found
        == "--mlock wants 1.0 GiB, and 8.0 MiB may be locked: the server would only warn"
    )
    assert ask(ours(limits(locked="unlimited")), locked=(MODEL,)).state is State.PASS
    may = {"/proc/self/status": "CapEff:\t0000000000004000\n"}  # CAP_IPC_LOCK
    assert (
        ask(FakeBox(paper={"/proc/self/limits": limits(), **may}), locked=(MODEL,)).state
        is State.PASS
    )


@pytest.mark.parametrize(
    ("pattern", "core", "state"),
    [
        ("core\n", "unlimited", State.WARN),
        ("|/usr/lib/systemd/systemd-coredump %P\n", "unlimited", State.PASS),
        ("core\n", "0", State.PASS),
    ],
)
def test_a_core_file_without_limit_is_a_warning(pattern: str, core: str, state: State) -> None:
    """It would be as large as the server, and has hung whole machines."""
    box = FakeBox(
        paper={"/proc/self/limits": limits(core=core), "/proc/sys/kernel/core_pattern": pattern}
    )
    assert ask(box).state is state


@pytest.mark.parametrize(
    ("theirs", "locks", "state", "said"),
    [
        (limits(files="65536"), False, State.WARN, "llm may open 65536 files, and started from here 1024"),
        (limits(locked="unlimited"), True, State.FAIL, "llm locks its weights"),
        (limits(locked="unlimited"), False, State.PASS, ""),
        (limits(), True, State.PASS, ""),
    ],
)  # fmt: skip
def test_production_would_come_back_with_our_limits(
    theirs: str, locks: bool, state: State, said: str
) -> None:
    """Where it is a plain process; a unit has its own."""
    box = FakeBox(paper={"/proc/self/limits": limits(), "/proc/100/limits": theirs})
    verdict = ask(box, processes=(("llm", 100, locks),))
    assert verdict.state is state
    assert said in verdict.found


def test_limits_that_cannot_be_read_are_unknown() -> None:
    """P8."""
    assert ask(FakeBox()).state is State.UNKNOWN
    assert ask(ours(), locked=("/m/gone",)).state is State.UNKNOWN


def test_this_machine_tells_memory_and_limits() -> None:
    """The real files are read as they are."""
    with LinuxBox() as box:
        states = [one.state for one in look([HostRam(), HostLimits()], box).verdicts]
    assert all(state in (State.PASS, State.WARN) for state in states)
