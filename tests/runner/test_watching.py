"""Watching a run: lines for files, one moving line on a terminal, and never a reason to fail."""

import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable

import pytest

from preflight.verdict import State, Verdict
from runner.cli.watching import Guarded, Lines, watch
from runner.progress import Unwatched

STORY = """
import sys
from preflight.verdict import State, Verdict
from runner.cli.watching import watch
progress = watch(as_json="json" in sys.argv)
progress.phase("preflight")
progress.verdict(Verdict("file.exists", State.PASS, "weights", "a file", "is there"))
progress.verdict(Verdict("port.owner", State.FAIL, "port \\x1b[32m8080", "free", "is anna's"))
progress.phase("stopping production", 120)
progress.note("restore: tried")
progress.tokens(50, 100)
progress.close()
print("live" if progress.live else "not live")
"""


def verdict(state: State, found: str = "is there") -> Verdict:
    """One answer."""
    return Verdict("file.exists", state, "weights /m.gguf", "a readable file", found)


def test_lines_tell_the_story_with_the_time_since_the_start() -> None:
    """What passed is counted, what did not is told."""
    said: list[str] = []
    now = [100.0]
    lines = Lines(said.append, lambda: now[0])
    lines.phase("preflight")
    lines.verdict(verdict(State.PASS))
    lines.verdict(verdict(State.PASS))
    lines.verdict(verdict(State.SKIPPED))
    lines.verdict(verdict(State.FAIL, "is gone"))
    now[0] += 72
    lines.phase("waiting for the candidate", 900)
    lines.note("half \x1b[1m done")
    lines.close()
    assert said == [
        "    0s  preflight",
        "    0s    FAIL file.exists: weights /m.gguf — is gone, wanted a readable file",
        "   72s    2 checks passed",
        "   72s  waiting for the candidate (at most 15m)",
        r"   72s    half \x1b[1m done",
    ]


def test_a_row_of_like_phases_does_not_fill_the_screen() -> None:
    """Twenty-five requests within a second are one line; long ones are told every few seconds."""
    said: list[str] = []
    now = [0.0]
    lines = Lines(said.append, lambda: now[0])
    for n in range(25):
        lines.phase(f"candidate: request {n + 1} of 25 (code)")
        lines.tokens(100, 200)
        now[0] += 0.04
    for done in range(0, 20_000, 1000):
        lines.tokens(done, 20_000)
        now[0] += 1
    lines.phase("ending the candidate")
    assert [line.strip() for line in said] == [
        "0s  candidate: request 1 of 25 (code)",
        "5s    4,000 of 20,000 tokens",
        "10s    9,000 of 20,000 tokens",
        "15s    14,000 of 20,000 tokens",
        "20s    19,000 of 20,000 tokens",
        "21s  ending the candidate",
    ]


def test_a_watcher_that_fails_is_left_alone() -> None:
    """A terminal that was closed must not end a run."""

    class Gone(Unwatched):
        live = True
        asked = 0

        def note(self, text: str) -> None:
            self.asked += len(text) > 0
            raise OSError(5, "Input/output error")

    gone = Gone()
    guarded = Guarded(gone)
    assert guarded.live
    guarded.note("one")
    guarded.note("two")
    guarded.phase("three")
    guarded.close()
    assert gone.asked == 1
    assert not guarded.live


def test_nobody_is_told_beside_a_json_answer() -> None:
    """Standard output holds exactly one object; standard error is no terminal here."""
    assert isinstance(watch(as_json=True), Unwatched)


@pytest.mark.parametrize("as_json", [False, True])
def test_on_a_terminal_it_is_live(read_all: Callable[[int], str], *, as_json: bool) -> None:
    """Elapsed time, deadline and tokens; beside JSON on standard error."""
    main, terminal = pty.openpty()
    options = ["json"] if as_json else []
    done = subprocess.Popen(
        [sys.executable, "-c", STORY, *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if as_json else terminal,
        stderr=terminal,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
    )
    os.close(terminal)
    seen = read_all(main)
    out, _ = done.communicate(timeout=30)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen)
    assert "PASS file.exists" in plain
    assert r"FAIL port.owner: port \x1b[32m8080" in plain
    assert "stopping production" in plain
    assert "restore: tried" in plain
    assert (out.decode() if as_json else plain).strip().endswith("not live" if as_json else "live")


@pytest.fixture
def read_all() -> Callable[[int], str]:
    """Everything that a terminal shows until its program has ended."""

    def read(fd: int) -> str:
        seen = b""
        try:
            while part := os.read(fd, 65536):
                seen += part
        except OSError:  # the other side was closed
            pass
        os.close(fd)
        return seen.decode()

    return read
