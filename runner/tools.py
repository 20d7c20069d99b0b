"""What a run works with, and the few things it says in more than one place."""

import traceback
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from preflight.box import Box
from preflight.verdict import State, Verdict
from runner import logs
from runner.journal import Journal, JournalError
from runner.outcome import Outcome
from runner.progress import Progress
from runner.recovery import world
from runner.recovery.account import Scale
from runner.result import Draft, Ending
from runner.settings import Settings
from runner.stopping import StopFlag
from runner.until import Clock, Stopped

log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class Tools:
    """Everything a run touches; tests hand in a Box and a Clock of their own."""

    settings: Settings
    journal: Journal
    box: Box
    clock: Clock
    progress: Progress
    stop: StopFlag

    @property
    def state_dir(self) -> Path:
        """The state directory."""
        return Path(self.settings.state_dir)

    def scale(self) -> Scale:
        """How moments of the clock read on the wall now."""
        return Scale(self.clock.now(), self.clock.wall(), self.settings.zone)

    def interrupted(self, stopped: Stopped) -> Ending:
        """The end of a run that was asked to end, or that ran out of time."""
        by = self.stop.by
        if by is None:
            return Ending(Outcome.BROKEN, stopped.reason)
        return Ending(Outcome.INTERRUPTED, stopped.reason, by)

    def bug(self, draft: Draft, error: BaseException) -> Ending:
        """The end of a run by a fault of ours, its traceback where a person can find it."""
        lines = "".join(traceback.format_exception(error))
        log.error("a fault of the runner", error=repr(error))
        with suppress(JournalError):
            self.journal.event(draft.run, "bug", traceback=lines)
        with suppress(OSError):
            (draft.directory / "bug.txt").write_text(lines, encoding="utf-8")
        return Ending(Outcome.BUG, f"a fault of the runner: {type(error).__name__}: {error}")


def refuse(
    draft: Draft,
    check: str,
    subject: str,
    found: str,
    *,
    wanted: str = "fit to be stopped",
    remedy: str = "try again later, or see: runner check",
) -> Ending:
    """A refusal that no check of the rings makes, in the same words as theirs."""
    draft.verdicts.append(
        Verdict(
            id=check,
            state=State.FAIL,
            subject=subject,
            wanted=wanted,
            found=found,
            remedy=remedy,
        )
    )
    return Ending(Outcome.REFUSED)


def machine_goes_down() -> str | None:
    """The only reason to cut a restore."""
    return "the machine is going down" if world.shutting_down() else None
