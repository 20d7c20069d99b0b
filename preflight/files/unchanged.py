"""Are a job's files the ones it last passed with? Compared with what was recorded then.

Metadata that is equal is enough; where it differs a header and a few windows of the content tell a
copy from another file. Nothing else of a large file is read.
"""

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
            "content sample is equal (touched, or copied); the program is another build",
            fails="size or content sample of a file differ: it changed since it was validated",
            unknown="a file could not be looked at, or not within the deadline",
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
    deadline_s: float = 10.0

    @property
    def subject(self) -> str:
        """The job."""
        return f"the files of {self.job}"

    def look(self, box: Box) -> Verdict:
        """Stat all of them, and sample those whose metadata differ."""
        if self.record is None:
            return self._says(
                State.WARN,
                "nothing is recorded of them yet, so no change can be seen",
                remedy=f"when they are right: runner check {self.job} --record",
            )
        time = Deadline(self.deadline_s)
        facts = box.files([file.path for file in self.files], within=time.left())
        changes = self._changes(box, facts, self.record, time)
        if not changes:
            return self._says(State.PASS, f"{_count(facts)} as recorded at {self.record.when}")
        worst = min((change.state for change in changes), key=_ORDER.index)
        told = [change.said for change in changes if change.state is worst]
        return self._says(
            worst,
            f"{named(told, 2)} (recorded {self.record.when})",
            remedy=f"put back what changed, or if it is meant so: runner check {self.job} --record"
            if worst is not State.UNKNOWN
            else "see why it cannot be looked at",
            evidence=tuple(change.said for change in changes),
        )

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
                changes.append(_Change(State.UNKNOWN, f"{_last(file.path)}: {fact.said}"))
            elif known is None:
                changes.append(_Change(State.WARN, f"{_last(file.path)} is not recorded yet"))
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


def _metadata(fact: FileFact) -> tuple[str, int, int, int]:
    return fact.target, fact.size, fact.inode, fact.mtime_ns


def _compared(file: Watched, known: KnownFile, seen: Sampled) -> _Change:
    """One file whose metadata differ: touched, copied, or another file."""
    name = _last(file.path)
    if seen.fault:
        return _Change(State.UNKNOWN, f"{name} differs, and cannot be read: {seen.said}")
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
