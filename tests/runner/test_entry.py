"""The way into the program and out of it, with a signal at the wrong moment."""

import signal
import subprocess
import sys

import pytest

LEAVING = """
import os, signal, sys
from runner import entry
from runner.stopping import StopFlag

class Late:
    # what a module holds is taken down after Python has given the signals their defaults back
    def __del__(self, kill=os.kill, pid=os.getpid(), number=signal.{name}):
        kill(pid, number)

late = Late()
StopFlag().install()
sys.argv = ["runner", "--version"]
entry.main()
"""

LOADING = """
import sys
from runner import entry

def interrupted(*_):
    raise KeyboardInterrupt

entry._without_third_parties = interrupted
sys.argv = ["runner", "recover", *{words}]
entry.main()
"""


def _python(text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-c", text], check=False, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGTERM])
def test_a_signal_on_the_way_out_changes_no_exit_code(number: signal.Signals) -> None:
    """The run has ended and said how; a second Ctrl-C that comes late must not make it another."""
    ran = _python(LEAVING.format(name=number.name))
    assert ran.returncode == 0, ran
    assert ran.stdout.startswith("runner ")


@pytest.mark.parametrize(("words", "stream"), [([], "stderr"), (["--json"], "stdout")])
def test_an_interrupt_is_told_in_a_sentence(words: list[str], stream: str) -> None:
    """Ctrl-C in the first moment, or in the middle of a recovery: no traceback, and what to do."""
    ran = _python(LOADING.format(words=words))
    assert ran.returncode == 130, ran
    said = getattr(ran, stream)
    assert "interrupted" in said
    assert "runner status" in said
    assert "Traceback" not in ran.stderr
