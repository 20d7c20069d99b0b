"""Chooses how a run is watched, and keeps a broken terminal away from it. Knows no run."""

import sys
import time
from collections.abc import Callable

from preflight.verdict import Verdict
from runner import words
from runner.cli import out
from runner.progress import Progress, Unwatched, stem
from runner.report.alert import seen_in_passing

_QUIET = {"pass", "skipped"}
_EVERY_S = 5.0


def watch(*, as_json: bool) -> Progress:
    """Live on a terminal, plain lines elsewhere; beside a JSON answer only on a terminal's stderr."""
    try:
        at_a_terminal = sys.stderr.isatty() if as_json else out.on_terminal()
    except (AttributeError, ValueError):  # closed
        at_a_terminal = False
    if at_a_terminal:
        from runner.cli.live import Live  # noqa: PLC0415 - rich only where somebody sees it

        return Guarded(Live(beside_json=as_json))
    return Unwatched() if as_json else Guarded(Lines())


class Lines:
    """The story as lines, each with the time since the start.

    A row of like phases, and the tokens within them, are told every few seconds only.
    """

    live = False

    def __init__(
        self, say: Callable[[str], None] = out.say, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._say, self._now = say, now
        self._began = now()
        self._stem = ""
        self._told_at = self._began
        self._passed = 0

    def phase(self, name: str, within_s: float | None = None) -> None:
        """One line a phase, with its limit."""
        self._count_up()
        if self._stem == stem(name) and self._is_soon():
            return
        self._stem = stem(name)
        limit = f" (at most {words.duration(within_s)})" if within_s else ""
        self._line(f"{words.shown(name)}{limit}")

    def note(self, text: str) -> None:
        """One line."""
        self._line(f"  {words.shown(text)}")

    def tokens(self, done: int, total: int) -> None:
        """A line every few seconds."""
        if total and not self._is_soon():
            self._line(f"  {done:,} of {total:,} tokens")

    def verdict(self, verdict: Verdict) -> None:
        """A line for what is not in order; what passed is counted."""
        if str(verdict.state) in _QUIET and not seen_in_passing(verdict.to_json()):
            self._passed += str(verdict.state) == "pass"
        else:
            self._line(f"  {out.coloured(str(verdict.state), verdict.message())}")

    def close(self) -> None:
        """The last count."""
        self._count_up()

    def _count_up(self) -> None:
        if self._passed:
            self._line(f"  {self._passed} checks passed")
            self._passed = 0

    def _is_soon(self) -> bool:
        return self._now() - self._told_at < _EVERY_S

    def _line(self, text: str) -> None:
        self._told_at = self._now()
        self._say(f"{words.duration(self._told_at - self._began):>6}  {text}")


class Guarded:
    """Passes everything on until that fails: a closed terminal must not end a run."""

    def __init__(self, watcher: Progress) -> None:
        self._watcher: Progress = watcher

    @property
    def live(self) -> bool:
        """Whether a person watches, and still can."""
        return self._watcher.live

    def phase(self, name: str, within_s: float | None = None) -> None:
        """Passed on."""
        self._try(lambda: self._watcher.phase(name, within_s))

    def note(self, text: str) -> None:
        """Passed on."""
        self._try(lambda: self._watcher.note(text))

    def tokens(self, done: int, total: int) -> None:
        """Passed on."""
        self._try(lambda: self._watcher.tokens(done, total))

    def verdict(self, verdict: Verdict) -> None:
        """Passed on."""
        self._try(lambda: self._watcher.verdict(verdict))

    def close(self) -> None:
        """Passed on."""
        self._try(self._watcher.close)

    def _try(self, say: Callable[[], None]) -> None:
        try:
            say()
        except Exception:  # noqa: BLE001 - whatever a terminal does when it goes away
            self._watcher = Unwatched()
