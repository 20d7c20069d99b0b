"""Are a job's files the ones it last passed with? Compared with what was recorded then.

Metadata that is equal is enough; where it differs a header and a few windows of the content tell a
copy from another file. Nothing else of a large file is read.
"""

from collections.abc import Sequence
from typing import ClassVar, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from preflight.box import Box, FileFact, Sampled
from preflight.check import Check, Deadline, Explained
from preflight.files.recorded import KnownFile, Record
from preflight.verdict import BlastRadius, State, Verdict
from preflight.wording import named, size, when

_LESS_MATTERS = ("binary",)
"""Another build of a program is a reason to look twice, and no other model."""


class Watched(BaseModel):
    """One file that must not change unseen, and its part."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    role: str = "other"


class _Change(NamedTuple):
    """How one file differs from its record."""

    state: State
    said: str
    unseen: bool = False
    """It could not be looked at."""


class Unchanged(Check):
    """All files of a job, compared with the record of its last pass."""

    id: ClassVar[str] = "file.fingerprint"
    radius: ClassVar[BlastRadius] = BlastRadius.FILES
    explains: ClassVar[tuple[Explained, ...]] = (
        Explained(
            "file.fingerprint",
            reads="size, mtime, inode and target of each file, compared with what was recorded when "
            "the job last passed (runner check JOB --record, and every proven run); where they "
            "differ, sha256 of the header and of 17 windows of 64 KiB",
            passes="every file is as it was recorded",
            warns="nothing is recorded yet; a file is new to the record; metadata differs and the "
            "content sample is equal (touched, or copied); the program is another build; with "
            "--record whatever changed, since it is recorded anew",
            fails="size or content sample of a file differ: it changed since it was validated",
            unknown="a file could not be looked at, or not within the deadline; one is not recorded "
            'yet, and the job says [needs] unrecorded = "refuse"',
            skipped="a missing file, which file.exists tells about",
            remedies=(
                "put the old file back",
                "if the new one is meant: runner check JOB --record",
            ),
        ),
    )

    kind: Literal["unchanged"] = "unchanged"
    job: str
    files: tuple[Watched, ...]
    record: Record | None = Field(default=None, exclude=True, repr=False)
    required: bool = False
    """What is not recorded yet refuses."""
    recording: bool = False
    """A person records them as they are now: a change is told, and refuses nothing."""
    deadline_s: float = 10.0

    @property
    def subject(self) -> str:
        """The job."""
        return f"the files of {self.job}"

    def look(self, box: Box) -> Verdict:
        """Stat all of them, and sample those whose metadata differ."""
        if self.record is None:
            if self.recording:
                return self._says(State.PASS, "nothing was recorded of them before")
            return self._says(
                self._unrecorded,
                "nothing is recorded of them yet, so no change can be seen",
                remedy=f"when they are right: runner check {self.job} --record",
            )
        time = Deadline(self.deadline_s)
        facts = box.files([file.path for file in self.files], within=time.left())
        changes = self._changes(box, facts, self.record, time)
        if not changes:
            return self._says(State.PASS, f"{_count(facts)} as recorded at {self.record.when}")
        if self.recording:
            changes = [_meant(change) for change in changes]
        worst = min((change.state for change in changes), key=_ORDER.index)
        told = [change.said for change in changes if change.state is worst]
        return self._says(
            worst,
            f"{named(told, 2)} (recorded {self.record.when})",
            remedy=self._remedy(changes, worst),
            evidence=tuple(change.said for change in changes),
        )

    @property
    def _unrecorded(self) -> State:
        return State.UNKNOWN if self.required and not self.recording else State.WARN

    def _remedy(self, changes: Sequence[_Change], worst: State) -> str:
        if self.recording and worst is State.WARN:
            return ""  # it is just being done
        if any(change.unseen for change in changes if change.state is worst):
            return "see why it cannot be looked at"
        return f"put back what changed, or if it is meant so: runner check {self.job} --record"

    def _changes(
        self, box: Box, facts: tuple[FileFact, ...], record: Record, time: Deadline
    ) -> list[_Change]:
        changes: list[_Change] = []
        suspects: list[tuple[Watched, KnownFile]] = []
        for file, fact in zip(self.files, facts, strict=True):
            known = record.file(file.path)
            if fact.fault == "ENOENT":
                continue  # file.exists says so, with all that is known of it
            if fact.fault:
                changes.append(_Change(State.UNKNOWN, f"{_last(file.path)}: {fact.said}", True))
            elif known is None:
                said = f"{_last(file.path)} is not recorded yet"
                changes.append(_Change(self._unrecorded, said))
            elif _metadata(fact) != (known.target, known.size, known.inode, known.mtime_ns):
                suspects.append((file, known))
        samples = box.sampled([file.path for file, _ in suspects], within=time.left())
        for (file, known), seen in zip(suspects, samples, strict=True):
            changes.append(_compared(file, known, seen))
        return changes

    def _says(
        self, state: State, found: str, *, remedy: str = "", evidence: tuple[str, ...] = ()
    ) -> Verdict:
        wanted = "the files it last passed with"
        return self.says(state, found, wanted=wanted, remedy=remedy, evidence=evidence)


_ORDER = (State.FAIL, State.UNKNOWN, State.WARN)


def _meant(change: _Change) -> _Change:
    """The same where a person records it anew: what was seen is right so."""
    return change if change.unseen else change._replace(state=State.WARN)


def _metadata(fact: FileFact) -> tuple[str, int, int, int]:
    return fact.target, fact.size, fact.inode, fact.mtime_ns


def _compared(file: Watched, known: KnownFile, seen: Sampled) -> _Change:
    """One file whose metadata differ: touched, copied, or another file."""
    name = _last(file.path)
    if seen.fault:
        return _Change(State.UNKNOWN, f"{name} differs, and cannot be read: {seen.said}", True)
    written = f"written {when(seen.mtime_ns / 1e9)} by {seen.user}"
    if (seen.size, seen.head, seen.sample) == (known.size, known.head, known.sample):
        return _Change(
            State.WARN, f"{name} was touched or copied ({written}); its content is equal"
        )
    how = f"was {size(known.size)}, is {size(seen.size)}"
    if seen.size == known.size:
        how = "its header differs" if seen.head != known.head else "its content differs"
    state = State.WARN if file.role in _LESS_MATTERS else State.FAIL
    return _Change(state, f"{name} changed since it was validated: {how}, {written}")


def _count(facts: tuple[FileFact, ...]) -> str:
    there = sum(not fact.fault for fact in facts)
    return "it is" if there == 1 else f"all {there} are"


def _last(path: str) -> str:
    return path.rsplit("/", 1)[-1]
