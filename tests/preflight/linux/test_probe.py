"""Children that may be abandoned: whatever hangs or dies in them, we go on."""

import fcntl
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from preflight.box import CRASH, TIMEOUT
from preflight.files.exists import FileExists
from preflight.linux import probe, proc
from preflight.linux.box import LinuxBox
from preflight.models.shards import Shards
from preflight.rings import look
from preflight.verdict import State
from tests.servers import held

ECHO = "import sys\nfor line in sys.stdin: print(line, end='', flush=True)"


@pytest.fixture
def helper() -> Iterator[Callable[[str], probe.Helper]]:
    """Make a helper from a piece of Python; all of them are ended."""
    made: list[probe.Helper] = []

    def make(code: str) -> probe.Helper:
        made.append(probe.Helper([sys.executable, "-I", "-S", "-c", code]))
        return made[-1]

    yield make
    for one in made:
        one.close()


def pid_of(helper: probe.Helper) -> int:
    """The pid of a helper's child."""
    assert helper._child is not None
    return helper._child.pid


def test_a_helper_stays_warm(helper: Callable[[str], probe.Helper]) -> None:
    """Two questions, one child."""
    echo = helper(ECHO)
    assert echo.ask({"a": 1}, within=10) == {"a": 1}
    first = pid_of(echo)
    assert echo.ask({"b": "ü\udcff"}, within=10) == {"b": "ü\udcff"}
    assert pid_of(echo) == first


def test_a_helper_that_hangs_is_lost_in_time_and_replaced(
    helper: Callable[[str], probe.Helper],
) -> None:
    """As on a dead mount: the answer names its limit, the child is killed, the next one works."""
    echo = helper(ECHO)
    echo.ask({}, within=10)
    hung = pid_of(echo)
    os.kill(hung, signal.SIGSTOP)
    began = time.monotonic()
    with pytest.raises(probe.Lost, match=r"no answer within 0\.2 s") as lost:
        echo.ask({}, within=0.2)
    assert lost.value.fault == TIMEOUT
    assert time.monotonic() - began < 2
    assert proc.ident(hung) is None
    assert echo.ask({"again": 1}, within=10) == {"again": 1}


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "it died of SIGSEGV"),
        ("raise SystemExit(7)", "it ended with 7"),
        ("input(); print('no JSON', flush=True); input()", "it answered nonsense"),
        ("input(); print('[1]', flush=True); input()", "it answered nonsense"),
    ],
)
def test_a_helper_that_dies_or_lies_is_lost(
    helper: Callable[[str], probe.Helper], code: str, said: str
) -> None:
    """Of what it died is said: a signal points at a driver, an exit code at us."""
    with pytest.raises(probe.Lost) as lost:
        helper(code).ask({}, within=10)
    assert (lost.value.fault, lost.value.said) == (CRASH, said)


def test_no_time_left_asks_nobody(helper: Callable[[str], probe.Helper]) -> None:
    """Not even a child is started."""
    echo = helper(ECHO)
    with pytest.raises(probe.Lost, match="no time was left"):
        echo.ask({}, within=0)
    assert echo._child is None


def test_a_helper_that_cannot_be_started_is_lost() -> None:
    """A broken installation is no traceback."""
    with pytest.raises(probe.Lost, match="No such file"):
        probe.Helper(["/nonexistent/python"]).ask({}, within=1)


def test_a_command_is_run_with_its_output_apart() -> None:
    """Exit code, stdout and stderr; no input and no terminal."""
    ran = probe.run(["/bin/sh", "-c", "cat; echo out; echo err >&2; exit 3"], within=10)
    assert (ran.code, ran.out, ran.err, ran.fault) == (3, "out\n", "err\n", "")
    assert ran.last_line == "err"


def test_a_command_that_hangs_is_killed_with_its_children() -> None:
    """TERM is ignored, and the whole family is gone."""
    script = "trap '' TERM; echo $$; sleep 1000 & echo $!; wait"
    ran = probe.run(["/bin/sh", "-c", script], within=0.3)
    assert (ran.code, ran.fault) == (None, TIMEOUT)
    assert "sh gave no answer within 0.3 s" in ran.said


def test_a_command_whose_child_keeps_the_pipe_does_not_hold_us_up() -> None:
    """It ended; that something of it still holds our pipe is no reason to wait."""
    began = time.monotonic()
    ran = probe.run(["/bin/sh", "-c", "echo done; exec 2>&-; sleep 3 &"], within=10)
    assert (ran.code, ran.out) == (0, "done\n")
    assert time.monotonic() - began < 2


def test_endless_output_is_bounded() -> None:
    """A megabyte is enough of anything."""
    ran = probe.run(["/bin/sh", "-c", "yes | head -c 3000000"], within=20)
    assert ran.code == 0
    assert len(ran.out) == 1 << 20


@pytest.mark.parametrize(
    ("argv", "fault"),
    [(["/nonexistent"], "ENOENT"), (["/etc"], "EACCES"), ([], "EINVAL"), (["a\0b"], "EINVAL")],
)
def test_what_cannot_be_started_is_told_by_its_errno(argv: list[str], fault: str) -> None:
    """Values, and no exceptions."""
    assert probe.run(argv, within=5).fault == fault


def test_a_probe_never_holds_our_lock(tmp_path: Path) -> None:
    """A hung child that inherited the lock would block every later run."""
    with (tmp_path / "lock").open("w") as lock, LinuxBox() as box:
        os.set_inheritable(lock.fileno(), True)
        fcntl.flock(lock, fcntl.LOCK_EX)
        box.files([str(tmp_path)], within=10)
        child = box._reader._child
        assert child is not None
        assert str(tmp_path / "lock") not in held(child.pid)


def test_files_on_a_dead_mount_cost_one_deadline(tmp_path: Path) -> None:
    """Thirty-three shards behind a reader that hangs: unknown, in one check's time."""
    with LinuxBox() as box:
        box.files([str(tmp_path)], within=10)
        child = box._reader._child
        assert child is not None
        os.kill(child.pid, signal.SIGSTOP)
        check = Shards(path=f"{tmp_path}/big-00001-of-00033.gguf", deadline_s=0.3)
        looked = look([check, FileExists(path=str(tmp_path / "x"))], box)
    assert [verdict.state for verdict in looked.verdicts] == [State.UNKNOWN, State.FAIL]
    assert "gave no answer within 0.3 s (timeout)" in looked.verdicts[0].found
    assert sum(verdict.took_ms for verdict in looked.verdicts) < 3000
