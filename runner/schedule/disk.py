"""The files of production, looked at each minute by a daemon that no dead mount may hold up."""

from collections.abc import Sequence
from typing import Protocol

from preflight.box import CRASH, TIMEOUT, FileFact
from preflight.linux.files import LinuxFiles
from runner.production import Files
from runner.until import Clock

AGAIN_AFTER_S = 900.0
"""After a disk that did not answer nothing is asked for so long: each such question leaves a
process behind that nobody can end.
"""

UNKNOWN = frozenset({TIMEOUT, CRASH})


class ClosableFiles(Files, Protocol):
    """Files that are looked at by somebody who can be sent home."""

    def close(self) -> None:
        """Until the next question nobody is needed."""
        ...


class Disk:
    """Asks through a child. While it is not asked, everything is unknown, and nothing is gone."""

    def __init__(self, clock: Clock, files: ClosableFiles | None = None) -> None:
        """The child is started with a question, and ends with `rest`."""
        self._clock, self._files = clock, files or LinuxFiles()
        self._not_before = 0.0

    def files(self, paths: Sequence[str], *, within: float) -> tuple[FileFact, ...]:
        """One fact a path, in order; what is not known has a `fault` of UNKNOWN."""
        if self._clock.now() < self._not_before:
            said = "not looked at: the disk gave no answer a short while ago"
            return tuple(FileFact(path, fault=TIMEOUT, said=said) for path in paths)
        facts = self._files.files(paths, within=within)
        if any(fact.fault == TIMEOUT for fact in facts):
            self._not_before = self._clock.now() + AGAIN_AFTER_S
        return facts

    def rest(self) -> None:
        """Keep no child until the next look."""
        self._files.close()
