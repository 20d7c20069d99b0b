"""A run that systemd started: its story and its end where the other users of the box can read them.

Who started it may see neither its journal nor its output, and once it is over systemd forgets it.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

from preflight.verdict import Verdict
from runner import public, secrets
from runner.cli import out
from runner.cli.watching import Guarded, Lines
from runner.outcome import USAGE
from runner.progress import Progress
from runner.recovery import unit
from runner.recovery.notify import notify
from runner.report.page import page


class Shown:
    """One run as others see it; outside a unit there is nobody to show it to."""

    def __init__(self, progress: Progress, story: TextIO | None = None) -> None:
        self.progress = progress
        self._story = story
        self.ended: dict[str, Any] | None = None

    def end(self, result: Mapping[str, Any]) -> None:
        """The run has ended with this result."""
        self.ended = {"result": public.outcome(result), "exit_code": result["exit_code"]}
        self.say("", *page(result, out.coloured))

    def fail(self, error: BaseException) -> None:
        """There will be no result."""
        self.ended = {"result": None, "error": str(error), "exit_code": USAGE}
        self.say(f"runner: {error}")

    def say(self, *lines: str) -> None:
        """Lines at the end of the story. A full disk changes no run."""
        if self._story is not None:
            with suppress(OSError, ValueError):
                for line in lines:
                    self._story.write(f"{secrets.redact(line)}\n")


class Both:
    """Passes everything on to two who watch."""

    def __init__(self, first: Progress, second: Progress) -> None:
        self._each = (first, second)

    @property
    def live(self) -> bool:
        """Whether a person watches the first of them."""
        return self._each[0].live

    def phase(self, name: str, within_s: float | None = None) -> None:
        """Passed on, and to systemd as the unit's status."""
        notify(f"STATUS={name}")
        for each in self._each:
            each.phase(name, within_s)

    def note(self, text: str) -> None:
        """Passed on."""
        for each in self._each:
            each.note(text)

    def tokens(self, done: int, total: int) -> None:
        """Passed on."""
        for each in self._each:
            each.tokens(done, total)

    def verdict(self, verdict: Verdict) -> None:
        """Passed on."""
        for each in self._each:
            each.verdict(verdict)

    def close(self) -> None:
        """Passed on."""
        for each in self._each:
            each.close()


@contextmanager
def shown(job: str, state_dir: Path, progress: Progress) -> Iterator[Shown]:
    """A run of this job while it is watched; shown to others where systemd started it."""
    invocation = os.environ.get("INVOCATION_ID")
    story = _open(state_dir, invocation) if invocation and unit.in_a_run() else None
    if story is None:
        yield Shown(progress)
        return
    said = {"invocation": invocation, "story": story.name, "ended": None}
    _show(state_dir, job, said)
    lines = Guarded(Lines(say=lambda text: Shown(progress, story).say(text)))
    run = Shown(Both(progress, lines), story)
    try:
        yield run
    except BaseException as error:
        run.fail(error)
        raise
    finally:
        run.progress.close()
        _show(state_dir, job, said | {"ended": run.ended})
        with suppress(OSError):
            story.close()


def _open(state_dir: Path, invocation: str) -> TextIO | None:
    try:
        return public.open_story(state_dir, invocation)
    except OSError:
        return None  # a run matters more than who may watch it


def _show(state_dir: Path, job: str, said: dict[str, Any]) -> None:
    with suppress(OSError):
        public.show_job(state_dir, job, said)
