"""What the daemon asks of others at each tick: deliver the outbox, recover what a dead run owes.

Under systemd the recovery is a unit of its own, since the daemon's sandbox may not empty cgroups.
"""

from pathlib import Path

from alerts.deliver import is_due
from runner.journal import Journal
from runner.recovery import limbo, lock, recipe, unit
from runner.schedule.children import Children
from runner.schedule.moments import Moment

RECOVER_UNIT = "runner-recover.service"
RECOVER_EVERY_S = 20.0
RECOVER_WITHIN_S = 6 * 3600.0
FLUSH_WITHIN_S = 300.0
STATUS_WITHIN_S = 120.0


class Post:
    """The errands."""

    def __init__(self, journal: Journal, errands: Children, state_dir: Path, *, units: bool):
        """`units`: recovery is systemd's to start."""
        self._journal, self._errands, self._state_dir = journal, errands, state_dir
        self._units = units
        self._asked_at: float | None = None

    def fds(self) -> list[int]:
        """Descriptors that have news when an errand is done."""
        return list(self._errands.fds())

    def tick(self, now: Moment) -> None:
        """Start what is due. Raises JournalError."""
        self._errands.ended()
        self._recover(now)
        if any(is_due(row, now.wall) for row in self._journal.outbox(unsent=True)):
            words = ["tell", "--json"]
            self._errands.start("flush", words, within=FLUSH_WITHIN_S)

    def show_status(self) -> None:
        """Have `public/status.json` written anew: beside us, since a server that hangs is asked
        patiently.
        """
        self._errands.start("status", ["status", "--json"], within=STATUS_WITHIN_S)

    def _recover(self, now: Moment) -> None:
        """A debt that nobody who lives is paying. Recovery itself looks again, and locks."""
        if not (self._state_dir / recipe.NAME).exists():
            self._asked_at = None
            if self._journal.open_runs() and lock.holder(self._state_dir) is None:
                # a run that died before it owed anything; to write that down starts nothing
                limbo.close_dead(self._state_dir, self._errands.clock)
            return
        if lock.holder(self._state_dir) is not None:
            return
        if self._asked_at is not None and now.boot - self._asked_at < RECOVER_EVERY_S:
            return
        self._asked_at = now.boot
        if self._units:
            try:
                unit.start(RECOVER_UNIT, block=False)
            except unit.Refused:
                self._units = False  # told by `doctor`; from now on it is done from here
        if not self._units:
            self._errands.start("recover", ["recover", "--quiet"], within=RECOVER_WITHIN_S)
