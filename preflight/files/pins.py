"""Are the pinned bytes of a file still the ones that were pinned? It must not make or remove a pin."""

from collections.abc import Sequence
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
    reflink: bool = False
    """It is a file of its own, so another inode lies at the path."""


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
            warns="a file of production is gone from its path, and the run puts its pin back before "
            "production is stopped; another file lies there now, which is not pinned",
            fails="a pin is gone, or was written to: a hard link survives deleting and renaming, "
            "and no overwriting; a pin of production could not be put back from here",
            unknown="a pin could not be looked at, or not within the deadline",
            skipped="",
            remedies=(
                "runner unpin JOB, then runner pin JOB once the files are right",
                "sudo runner pin --put-back",
            ),
        ),
    )

    kind: Literal["pinned"] = "pinned"
    owner: str
    pins: tuple[Pin, ...]
    back: bool = False
    """They are there to be put back to their paths: production's."""

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
            names = _named(wrong)
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
        if self.back and (verdict := self._at_their_paths(facts, box, time, seen)):
            return verdict
        count = len(self.pins)
        found = f"{count} {'file is' if count == 1 else 'files are'} kept, as pinned"
        return self.says(State.PASS, found, wanted=wanted, seen=seen)

    def _at_their_paths(
        self, kept: Sequence[FileFact], box: Box, time: Deadline, seen: str
    ) -> Verdict | None:
        """What is wrong with the files that the pins are of; None where nothing is."""
        facts = box.files([one.path for one in self.pins], within=time.left())
        whole = list(zip(self.pins, kept, facts, strict=True))
        gone = [one for one in whole if one[2].fault == "ENOENT"]
        uid = box.me().uid if gone else 0
        fixed = [pin for pin, bytes_, fact in gone if not _may_link(bytes_, fact, uid)]
        others = [pin for pin, _, fact in whole if not fact.fault and not _is_of(pin, fact)]
        if fixed:
            found = f"gone from its path, and {box.me().user} may not put it back: {_named(fixed)}"
            wanted, remedy = "the file at its path", "sudo runner pin --put-back"
            return self.says(State.FAIL, found, wanted=wanted, remedy=remedy, seen=seen)
        if gone:
            names = _named([pin for pin, _, _ in gone])
            found = f"gone from its path: {names}; the pin is put back before production is stopped"
            wanted, remedy = "the file at its path", "runner pin --put-back"
            return self.says(State.WARN, found, wanted=wanted, remedy=remedy, seen=seen)
        if others:
            found = f"another file lies there now, and is not pinned: {_named(others)}"
            remedy = "runner pin --production"
            wanted = "a pin of what production runs from"
            return self.says(State.WARN, found, wanted=wanted, remedy=remedy, seen=seen)
        return None


def _named(pins: Sequence[Pin]) -> str:
    return named([one.path.rsplit("/", 1)[-1] for one in pins])


def _may_link(kept: FileFact, gone: FileFact, uid: int) -> bool:
    """Whether this user may link the bytes to where they are gone from (fs.protected_hardlinks)."""
    return uid == 0 or (gone.nearest_writable and (kept.uid == uid or kept.writable))


def _is_of(pin: Pin, fact: FileFact) -> bool:
    if pin.reflink:
        return (fact.size, fact.mtime_ns) == (pin.size, pin.mtime_ns)
    return fact.inode == pin.inode


def _same(pin: Pin, fact: FileFact) -> bool:
    return not fact.fault and (fact.inode, fact.size, fact.mtime_ns) == (
        pin.inode,
        pin.size,
        pin.mtime_ns,
    )
