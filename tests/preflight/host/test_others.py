"""Others at work on the machine: package runs, reservations of the GPU, people at a terminal."""

from typing import Any

import pytest

from preflight.box import TIMEOUT, Held, Ran, Running, Terminal
from preflight.host.others import OthersAtWork
from preflight.rings import look
from preflight.verdict import State, Verdict
from tests.fakes import UID, FakeBox

HOST = {"/proc/sys/kernel/hostname": "box.example.org\n"}
SQUEUE = ("squeue", "-h", "-w", "box", "-t", "R", "-o", "%i|%u|%b")
STATUS = """GPU  STATUS      USER     DURATION     TYPE
---  ------      ----     --------     ----
0    AVAILABLE   -        -            -
1    IN_USE      alice    0h 15m 30s   RUN
2    IN_USE      runner   0h 15m 30s   RUN
3    UNRESERVED  user bob -            -
"""
OLD_STATUS = "GPU 0: AVAILABLE (last released 0h 30m ago)\nGPU 1: IN USE by alice for 0h 15m\n"


def ask(box: FakeBox, **more: Any) -> Verdict:
    """The answer about one machine."""
    return look([OthersAtWork.model_validate(more)], box).verdicts[0]


def test_a_machine_on_which_nobody_works_passes() -> None:
    """No lock, no scheduler, no terminal."""
    assert ask(FakeBox(paper=HOST)).state is State.PASS


def test_a_package_run_is_named_by_the_lock_it_holds() -> None:
    """It would restart services and replace drivers under us."""
    box = FakeBox(locked={"/var/lib/dpkg/lock-frontend": (812,)})
    box.all_processes = [Running(812, 1, "S", "apt-get", ("apt-get", "upgrade"))]
    verdict = ask(box)
    assert verdict.state is State.FAIL
    assert "being installed or upgraded (pid 812 apt-get upgrade)" in verdict.found


def test_a_lock_of_a_hidden_process_counts() -> None:
    """/proc/locks names a pid that this user may not see."""
    verdict = ask(FakeBox(locked={"/var/lib/rpm/.rpm.lock": (0,)}))
    assert verdict.state is State.FAIL
    assert "by a hidden process" in verdict.found


@pytest.mark.parametrize(
    ("comm", "argv", "state"),
    [
        ("dpkg", ("/usr/bin/dpkg", "--unpack", "x.deb"), State.FAIL),
        ("unattended-upgr", ("/usr/bin/python3", "/usr/bin/unattended-upgrade"), State.FAIL),
        (
            "unattended-upgr",
            ("/usr/bin/python3", "/usr/share/x/unattended-upgrade-shutdown", "--wait-for-signal"),
            State.PASS,
        ),
        ("dpkg", ("dpkg", "-l"), State.PASS),
        ("dnf", ("/usr/bin/python3", "/usr/bin/dnf", "makecache"), State.PASS),
        ("dnf", ("/usr/bin/python3", "/usr/bin/dnf", "upgrade"), State.FAIL),
        ("rpm", ("rpm", "-qa"), State.PASS),
    ],
)
def test_a_program_that_installs_is_one_and_that_only_looks_is_none(
    comm: str, argv: tuple[str, ...], state: State
) -> None:
    """The service that waits for a shutdown runs on every Ubuntu, and does nothing."""
    assert ask(FakeBox(all_processes=[Running(7, 1, "S", comm, argv)])).state is state


def test_a_lock_that_cannot_be_looked_at_is_unknown() -> None:
    """P8."""

    class Blind(FakeBox):
        def locks(self, paths: Any, *, within: float) -> tuple[Held, ...]:
            del within
            return tuple(Held(path, fault="EACCES", said="Permission denied") for path in paths)

    assert ask(Blind()).state is State.UNKNOWN


@pytest.mark.parametrize(
    ("ran", "state", "said"),
    [
        (Ran(0, "4711|anna|gres/gpu:1\n4712|bob|N/A\n"), State.FAIL, "job 4711 of anna"),
        (Ran(0, "4712|bob|N/A\n"), State.PASS, ""),
        (Ran(0, ""), State.PASS, ""),
        (Ran(1, "", "slurm_load_jobs error: Invalid node name specified"), State.PASS, ""),
        (Ran(1, "", "Unable to contact slurm controller"), State.UNKNOWN, "contact slurm"),
        (Ran(None, fault=TIMEOUT, said="squeue gave no answer within 5 s"), State.UNKNOWN, "(timeout)"),
    ],
)  # fmt: skip
def test_a_gpu_that_slurm_gave_away_is_not_ours(ran: Ran, state: State, said: str) -> None:
    """A scheduler believes that the GPU is its own; on a machine that is no node of it, it does not."""
    box = FakeBox(paper=HOST)
    box.commands[SQUEUE] = ran
    verdict = ask(box)
    assert verdict.state is state
    assert said in verdict.found
    assert ask(box, in_slurm=True).state is State.PASS


@pytest.mark.parametrize("said", [STATUS, OLD_STATUS])
def test_a_reservation_of_somebody_else_is_respected(said: str) -> None:
    """canhazgpu, in both of its ways to print; our own reservation is no obstacle."""
    box = FakeBox(paper=HOST)
    box.commands["canhazgpu", "status"] = Ran(0, said)
    verdict = ask(box)
    assert verdict.state is State.FAIL
    assert verdict.found == "reserved through canhazgpu: GPU 1 by alice"
    assert ask(box, gpus=(2,)).state is State.PASS
    box.commands["canhazgpu", "status"] = Ran(1, "", "redis: connection refused")
    assert ask(box).state is State.UNKNOWN


@pytest.mark.parametrize(
    ("uid", "idle", "state"),
    [(1001, 30.0, State.WARN), (1001, 3600.0, State.PASS), (UID, 5.0, State.PASS)],
)
def test_somebody_at_a_terminal_is_worth_a_word(uid: int, idle: float, state: State) -> None:
    """They may be about to do something; whoever runs this is not somebody else."""
    box = FakeBox(open_terminals=[Terminal("pts/3", uid, "anna", idle)])
    verdict = ask(box)
    assert verdict.state is state
    if state is State.WARN:
        assert verdict.found == "anna is at work on pts/3 (idle 30 s)"


def test_the_worst_is_told_first_and_nothing_is_lost() -> None:
    """A person at work stands in the evidence of a package run."""
    box = FakeBox(
        locked={"/var/lib/dpkg/lock": (1,)}, open_terminals=[Terminal("pts/3", 7, "anna", 1)]
    )
    verdict = ask(box)
    assert verdict.state is State.FAIL
    assert any("anna is at work" in said for said in verdict.evidence)
