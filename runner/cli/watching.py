"""Chooses how a run is watched, and keeps a broken terminal away from it. Knows no run."""

import sys
import time
from collections.abc import Callable

from preflight.verdict import Verdict
from runner import words
from runner.cli import out
from runner.progress import Progress, Unwatched

_QUIET = {"pass", "skipped"}
_STEPS = 10


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
    """The story as lines, each with the time since the start."""

    live = False

    def __init__(self, say: Callable[[str], None] = out.say) -> None:
        self._say = say
        self._began = time.monotonic()
        self._told = 0
        self._passed = 0

    def phase(self, name: str, within_s: float | None = None) -> None:
        """One line a phase, with its limit."""
        self._count_up()
        self._told = 0
        limit = f" (at most {words.duration(within_s)})" if within_s else ""
        self._line(f"{words.shown(name)}{limit}")

    def note(self, text: str) -> None:
        """One line."""
        self._line(f"  {words.shown(text)}")

    def tokens(self, done: int, total: int) -> None:
        """A line at each tenth."""
        step = _STEPS * done // total if total else 0
        if step > self._told:
            self._told = step
            self._line(f"  {done:,} of {total:,} tokens")

    def verdict(self, verdict: Verdict) -> None:
        """A line for what is not in order; what passed is counted."""
        if str(verdict.state) in _QUIET:
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

    def _line(self, text: str) -> None:
        self._say(f"{words.duration(time.monotonic() - self._began):>6}  {text}")


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
