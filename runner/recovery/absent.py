"""Which files are not there, asked through a child: a dead mount must not hang whoever restores."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

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

    def close(self) -> None:
        """End the child; the next question starts another one."""
        self._files.close()


def absent(paths: Sequence[str]) -> list[str]:
    """Those of some files that are certainly not there."""
    with contextlib.closing(Absent()) as looking:
        return looking.of(paths)
