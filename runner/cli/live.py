"""A run on a terminal, live: phase, elapsed time, deadline, tokens. Knows no run."""

import time

from rich.console import Console
from rich.live import Live as RichLive
from rich.spinner import Spinner
from rich.text import Text

from preflight.verdict import Verdict
from runner import words
from runner.progress import stem
from runner.report.alert import seen_in_passing

_STYLES = {"pass": "green", "warn": "yellow", "unknown": "yellow", "fail": "red", "skipped": "dim"}
_BAR = 24


class Live:
    """One line that moves at the bottom, and above it what has happened."""

    def __init__(self, *, beside_json: bool = False) -> None:
        self._console = Console(stderr=beside_json, highlight=False)
        self._beside_json = beside_json
        self._began = self._row_began = self._phase_began = time.monotonic()
        self._name = ""
        self._within: float | None = None
        self._tokens = (0, 0)
        self._spinner = Spinner("dots")
        self._live = RichLive(
            get_renderable=self._line, console=self._console, transient=True, refresh_per_second=8
        )
        self._live.start()

    @property
    def live(self) -> bool:
        """A person sees it, unless a program reads the answer."""
        return not self._beside_json

    def phase(self, name: str, within_s: float | None = None) -> None:
        """The phase before leaves a line with the time it took; a row of like phases leaves one."""
        if stem(name) != stem(self._name):
            self._leave()
            self._row_began = time.monotonic()
        self._name, self._within, self._tokens = words.shown(name), within_s, (0, 0)
        self._phase_began = time.monotonic()

    def note(self, text: str) -> None:
        """A line that stays."""
        self._print(Text(f"         {words.shown(text)}"))

    def tokens(self, done: int, total: int) -> None:
        """The moving line shows them."""
        self._tokens = (done, total)

    def verdict(self, verdict: Verdict) -> None:
        """A line that stays, in the colour of the answer; what was not looked at says nothing."""
        if str(verdict.state) == "skipped" and not seen_in_passing(verdict.to_json()):
            return
        style = _STYLES.get(str(verdict.state), "")
        self._print(Text(f"         {words.shown(verdict.message())}", style=style))

    def close(self) -> None:
        """The moving line goes; what happened stays."""
        self._leave()
        self._name = ""
        self._live.stop()

    def _leave(self) -> None:
        if self._name:
            took = words.duration(time.monotonic() - self._row_began)
            at = words.duration(self._row_began - self._began)
            self._print(Text(f"{at:>7}  {self._name} ({took})"))

    def _print(self, text: Text) -> None:
        self._console.print(text, soft_wrap=True)

    def _line(self) -> Text | Spinner:
        if not self._name:
            return Text("")
        elapsed = words.duration(time.monotonic() - self._phase_began)
        limit = f" of at most {words.duration(self._within)}" if self._within else ""
        self._spinner.update(text=Text(f"{self._name}  {elapsed}{limit}{self._bar()}"))
        return self._spinner

    def _bar(self) -> str:
        done, total = self._tokens
        if not total:
            return ""
        filled = min(_BAR, _BAR * done // total)
        return f"  {'━' * filled}{'╌' * (_BAR - filled)}  {done:,} of {total:,} tokens"
