"""What a run tells whoever watches it, while it goes on. Knows no terminal and no log."""

import re
from typing import Protocol

from preflight.verdict import Verdict


class Progress(Protocol):
    """Somebody who watches a run; nothing said here may change or delay it."""

    @property
    def live(self) -> bool:
        """Whether a person watches: at the end of a manual run that counts as told."""
        ...

    def phase(self, name: str, within_s: float | None = None) -> None:
        """A new phase begins; it may take `within_s` seconds, None where nothing bounds it."""
        ...

    def note(self, text: str) -> None:
        """Something worth a line of its own."""
        ...

    def tokens(self, done: int, total: int) -> None:
        """How far the workload has come."""
        ...

    def verdict(self, verdict: Verdict) -> None:
        """A check has answered."""
        ...

    def close(self) -> None:
        """Nothing more will come."""
        ...


def stem(phase: str) -> str:
    """What a row of like phases shares: `request 8 of 25 (code)` and its neighbours are one row."""
    return re.split(r"\d", phase, maxsplit=1)[0]


class Unwatched:
    """Nobody watches."""

    live = False

    def phase(self, name: str, within_s: float | None = None) -> None:
        """Said to nobody."""

    def note(self, text: str) -> None:
        """Said to nobody."""

    def tokens(self, done: int, total: int) -> None:
        """Said to nobody."""

    def verdict(self, verdict: Verdict) -> None:
        """Said to nobody."""

    def close(self) -> None:
        """Nothing was opened."""
