"""A slot: one due time of a job, and how it may end. Standard library only; stores nothing."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self


class State(StrEnum):
    """What became of a slot. The first four are on their way to one of the others."""

    DUE = "due"
    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    RAN = "ran"
    LATE = "late"
    MISSED = "missed"
    SKIPPED = "skipped"
    REFUSED = "refused"
    PAUSED = "paused"
    DRAINED = "drained"
    BUSY = "busy"


OPEN = (State.DUE, State.WAITING, State.STARTING, State.RUNNING)
"""Not yet decided."""

AT_WORK = (State.STARTING, State.RUNNING)
"""Its run has the box, or is about to."""

SILENT = (State.PAUSED, State.SKIPPED)
"""By a person's own decision: nobody has to be told."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One row of the ledger. `at` and `back_by` are seconds since 1970.

    `trigger` is how its run was started: schedule, catch-up or retry. `story` are the sentences of
    what happened on the way, in order.
    """

    job: str
    at: int
    due: str
    state: State
    reason: str = ""
    run: str | None = None
    trigger: str = "schedule"
    back_by: float | None = None
    changed: float = 0.0
    story: tuple[str, ...] = ()

    @property
    def open(self) -> bool:
        """Whether something is still to come."""
        return self.state in OPEN

    def to_json(self) -> dict[str, Any]:
        """Plain JSON for answers."""
        return {
            "job": self.job,
            "at": self.due,
            "state": str(self.state),
            "reason": self.reason,
            "run": self.run,
            "trigger": self.trigger,
            "story": list(self.story),
        }

    @classmethod
    def from_row(cls, row: Mapping[str, Any], story: tuple[str, ...]) -> Self:
        """The slot in a row of the journal."""
        return cls(
            job=row["job"],
            at=int(row["at"]),
            due=row["due"],
            state=State(row["state"]),
            reason=row["reason"],
            run=row["run"],
            trigger=row["trigger"],
            back_by=row["back_by"],
            changed=row["changed"],
            story=story,
        )
