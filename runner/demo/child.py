"""The run of the demo: the real `runner`, as a child that has the terminal to itself."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from preflight.linux import proc
from runner.demo.box import JOB, Box
from runner.journal import Journal
from runner.journal_file import JournalError
from runner.recovery import world
from runner.until import RealClock, until

_LONGEST = 3600.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Json = dict[str, Any]


def command(box: Box, *words: str) -> list[str]:
    """`runner` with these words on this box, whatever directory is the current one."""
    return [sys.executable, "-I", "-m", "runner", "--config", str(box.config), *words]


def run(box: Box, *, as_json: bool) -> tuple[int, Json]:
    """Run the job to its end; returns its exit code and its result object.

    With `as_json` its words go to a file and not to the terminal. A signal to us is one to the
    run, which ends orderly, production first; nothing else ends it from here.
    """
    said = box.directory / "run.json"
    words = ("run", JOB, "--json") if as_json else ("run", JOB)
    with said.open("w", encoding="utf-8") as file:
        child = subprocess.Popen(command(box, *words), stdout=file if as_json else None)
        with _handing_on(child):
            fd = _pidfd(child)
            code = until(
                child.poll, within=_LONGEST, clock=RealClock(), every=0.5, wake=[fd] if fd else []
            )
            world.close_all([fd] if fd else [])
    return code, _printed(said) if as_json else _remembered(box)


def _pidfd(child: subprocess.Popen[bytes]) -> int | None:
    who = proc.ident(child.pid)
    return None if who is None else world.open_pidfd(who)


@contextmanager
def _handing_on(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """While the run goes on every signal is its own; a second one changes nothing there."""

    def hand_on(number: int, _: FrameType | None) -> None:
        child.send_signal(number)

    before = {number: signal.signal(number, hand_on) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _printed(path: Path) -> Json:
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _remembered(box: Box) -> Json:
    try:
        with Journal.open(box.state, read_only=True) as journal:
            return journal.run() or {}
    except JournalError:  # it ended before it had anything to remember
        return {}
