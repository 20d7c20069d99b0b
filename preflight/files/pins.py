"""Are the pinned bytes of a file still the ones that were pinned? It must not make or remove a pin."""

from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict

from preflight.box import Box, FileFact
from preflight.check import Check, Deadline, Explained
from preflight.verdict import BlastRadius, State, Verdict
from preflight.wording import named


class Pin(BaseModel):
    """One pinned file: the path that is pinned, where its bytes are kept, and what they were."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    pin: str
    inode: int
    size: int
    mtime_ns: int


class Pinned(Check):
    """All pins of a job, or of a service of production."""

    id: ClassVar[str] = "file.pin"
    radius: ClassVar[BlastRadius] = BlastRadius.FILES
    cheap: ClassVar[bool] = True
    explains: ClassVar[tuple[Explained, ...]] = (
        Explained(
            "file.pin",
            reads="inode, size and mtime of each pinned file, compared with what was pinned",
            passes="every pin holds the bytes that were pinned",
            fails="a pin is gone, or was written to: a hard link survives deleting and renaming, "
            "and no overwriting",
            unknown="a pin could not be looked at, or not within the deadline",
            skipped="",
            remedies=("runner unpin JOB, then runner pin JOB once the files are right",),
        ),
    )

    kind: Literal["pinned"] = "pinned"
    owner: str
    pins: tuple[Pin, ...]

    @property
    def subject(self) -> str:
        """Whose pins."""
        return f"the pins of {self.owner}"

    @property
    def acceptable(self) -> bool:
        """What the way back may rest on is never accepted unknown."""
        return False

    def look(self, box: Box) -> Verdict:
        """Stat each of them."""
        time = Deadline(self.deadline_s)
        facts = box.files([one.pin for one in self.pins], within=time.left())
        pairs = list(zip(self.pins, facts, strict=True))
        seen = " ".join(fact.fingerprint for fact in facts)
        unseen = [one for one, fact in pairs if fact.fault and fact.fault != "ENOENT"]
        wrong = [one for one, fact in pairs if not _same(one, fact) and one not in unseen]
        wanted = "the bytes that were pinned"
        if wrong:
            names = named([one.path.rsplit("/", 1)[-1] for one in wrong])
            return self.says(
                State.FAIL,
                f"no longer what was pinned: {names}",
                wanted=wanted,
                remedy="runner unpin it, and pin again once the files are right",
                evidence=tuple(f"pin of {one.path}: {one.pin}" for one in wrong),
                seen=seen,
            )
        if unseen:
            said = f"{unseen[0].pin} cannot be looked at"
            return self.says(State.UNKNOWN, said, wanted=wanted, seen=seen)
        count = len(self.pins)
        found = f"{count} {'file is' if count == 1 else 'files are'} kept, as pinned"
        return self.says(State.PASS, found, wanted=wanted, seen=seen)


def _same(pin: Pin, fact: FileFact) -> bool:
    return not fact.fault and (fact.inode, fact.size, fact.mtime_ns) == (
        pin.inode,
        pin.size,
        pin.mtime_ns,
    )
