"""Which files are not there, asked through a child: a dead mount must not hang whoever restores."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from preflight.box import TIMEOUT
from preflight.linux.files import LinuxFiles

_WITHIN_S = 2.0
_NOT_THERE = frozenset({"ENOENT", "ENOTDIR"})


class Absent:
    """Looks at files as long as their disks answer. After one that does not, nothing is asked any
    more: each such question leaves a process behind that nobody can end.
    """

    def __init__(self) -> None:
        self._files, self._hangs = LinuxFiles(), False

    def of(self, paths: Sequence[str]) -> list[str]:
        """Those that are certainly not there."""
        asked = [path for path in paths if path]
        if self._hangs or not asked:
            return []
        facts = self._files.files(asked, within=_WITHIN_S)
        self._hangs = any(fact.fault == TIMEOUT for fact in facts)
        return [fact.path for fact in facts if fact.fault in _NOT_THERE]

    def __enter__(self) -> Self:
        """The child is started with the first question."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the child."""
        self._files.close()


def absent(paths: Sequence[str]) -> list[str]:
    """Those of some files that are certainly not there."""
    with Absent() as looking:
        return looking.of(paths)
