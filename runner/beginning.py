"""Whether a run could begin at all, for who only looks: nobody has the box, nothing is owed.

A run asks the same by taking the locks and paying what is owed; a look takes and pays nothing.
"""

from collections.abc import Iterator
from pathlib import Path

from preflight.check import Check, Explained
from preflight.given import Given
from preflight.verdict import BlastRadius, State
from runner.journal import Journal
from runner.recovery import lock, recipe
from runner.settings import Settings
from runner.words import day_and_clock

EXPLAINED: tuple[tuple[Explained, BlastRadius, str], ...] = (
    (
        Explained(
            "self.config",
            reads="runner.toml and the job's file, and the command lines that the job makes of "
            "production's",
            passes="both are read, and everything in them is used",
            fails="a mistake, told with its line: an unknown key, a glob, ~, a relative path, localhost, "
            "a flag that is said twice, a value that the server would misread, a port that is missing",
            remedies=("mend the line that is named; runner schema has every key",),
        ),
        BlastRadius.SELF,
        "Whether runner.toml and the job say something that can be done.",
    ),
    (
        Explained(
            "self.journal",
            reads="recovery.json in the state directory: what a run that stopped production still owes",
            passes="nothing is owed",
            fails="a run has stopped production and died, and no restore is recorded",
            unknown="what is owed cannot be read",
            remedies=("runner recover",),
        ),
        BlastRadius.SELF,
        "Whether production is owed by an earlier run.",
    ),
    (
        Explained(
            "self.lock",
            reads="the lock in the state directory, and the name that whoever has this box answers to",
            passes="nobody has the box",
            fails="a run or a recovery has it: which, which process, since when. A lock of the dead "
            "does not exist: the kernel frees it",
            remedies=("wait for it (runner status), or end it: runner cancel",),
        ),
        BlastRadius.SELF,
        "Whether somebody else has the box.",
    ),
    (
        Explained(
            "self.drained",
            reads="the journal",
            passes="the box is not drained (nothing is said then)",
            warns="no job fires until a person says so: a restore has failed, or somebody drained it",
            remedies=("runner status, then: runner undrain --reason …",),
        ),
        BlastRadius.SELF,
        "Whether jobs fire on this box.",
    ),
)


def checks(settings: Settings, journal: Journal) -> Iterator[Check]:
    """What is known of it now. Raises JournalError."""
    state_dir = Path(settings.state_dir)
    holder = lock.holder(state_dir) or lock.box_holder(settings.lock_name)
    yield Given(
        name="self.lock",
        about="this box",
        state=State.FAIL if holder else State.PASS,
        found=f"is held by {holder}" if holder else "is free",
        wanted="nobody has it",
        remedy="wait for it (runner status), or end it: runner cancel" if holder else "",
    )
    yield _owed(state_dir, held=holder is not None)
    if drained := journal.drained():
        since = day_and_clock(drained["since"])
        yield Given(
            name="self.drained",
            about="this box",
            state=State.WARN,
            found=f"is drained since {since}, so that no job fires: {drained['reason']}",
            wanted="jobs may fire",
            remedy="runner status; when it is mended: runner undrain --reason …",
        )


def _owed(state_dir: Path, *, held: bool) -> Check:
    """A debt is no news while somebody has the box: it may be just being paid."""
    state, found, remedy = State.PASS, "nothing is owed", ""
    try:
        owed = recipe.read(state_dir)
    except recipe.Unreadable as error:
        state, found, remedy = State.UNKNOWN, str(error), "runner recover"
    else:
        if owed is not None and held:
            found = f"run {owed.run} owes production, and is at work"
        elif owed is not None:
            since = day_and_clock(owed.since)
            found = f"run {owed.run} of {since} has died, and no restore is recorded"
            state, remedy = State.FAIL, "runner recover"
    return Given(
        name="self.journal",
        about="what production is owed",
        state=state,
        found=found,
        wanted="nothing owed",
        remedy=remedy,
    )
