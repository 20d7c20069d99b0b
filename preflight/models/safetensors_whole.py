"""Are the safetensors files of a model whole, and are all there that its index names?

It must not pick a file, and reads nothing of them but their headers.
"""

from collections.abc import Sequence
from typing import ClassVar, Literal

from preflight.box import Box, FileFact, SafetensorsFact
from preflight.check import Deadline, Explained
from preflight.files.exists import LET_US_READ
from preflight.files.paths import Trouble, trouble_of, unfinished, what_it_is
from preflight.models.named import NamedModel
from preflight.verdict import BlastRadius, State, Verdict
from preflight.wording import named, short_path, size

ENDING, INDEX = ".safetensors", ".safetensors.index.json"
_ORDER = (State.FAIL, State.UNKNOWN, State.WARN)


class SafetensorsWhole(NamedModel):
    """One safetensors file, or every file that the index of a split model names."""

    id: ClassVar[str] = "file.safetensors"
    radius: ClassVar[BlastRadius] = BlastRadius.FILES
    cheap: ClassVar[bool] = True
    explains: ClassVar[tuple[Explained, ...]] = (
        Explained(
            "file.safetensors",
            reads="stat and header of the file, or of each file that model.safetensors.index.json "
            "names, the length, holes (SEEK_HOLE), and whether a download marker lies beside it",
            passes="every file is there and as long as its header says",
            warns="a file that the index of production names may only be read by production",
            fails="a web page, a Git LFS pointer or no header; shorter or longer than its header says; "
            "a hole where a tensor should be; a download that goes on; a file that the index names is "
            "missing, empty or not readable",
            unknown="one cannot be looked at, or not within the deadline; a hole on zfs",
            skipped="the file that is named is missing: file.exists tells",
            remedies=("fetch or copy the file again",),
        ),
    )

    kind: Literal["safetensors"] = "safetensors"

    def look(self, box: Box) -> Verdict:
        """Stat and header of each file."""
        time = Deadline(self.deadline_s)
        paths: Sequence[str] = (self.path,)
        facts = box.files(paths, within=time.left())
        if trouble_of(facts[0]) is not None:
            return self.says(State.SKIPPED, "not looked at: see file.exists", wanted="")
        if self.path.endswith(INDEX):
            (index,) = box.safetensors(paths, within=time.left())
            trouble = _of_index(index, facts[0])
            if trouble is not None:
                return self._judged([(self.path, trouble)], 0, facts[0].fingerprint)
            directory = self.path.rpartition("/")[0]
            paths = [f"{directory}/{name}" for name in index.names]
            facts = (*facts, *box.files(paths, within=time.left()))
        seen = " ".join(fact.fingerprint for fact in facts)
        parts = facts[-len(paths) :]
        headers = box.safetensors(paths, within=time.left())
        pairs = [
            (fact.path, self._trouble(fact) or _of_weights(header, fact))
            for fact, header in zip(parts, headers, strict=True)
        ]
        return self._judged(pairs, sum(fact.size for fact in parts), seen)

    def _trouble(self, fact: FileFact) -> Trouble | None:
        """What stat tells; that only production may read its own files is its own business."""
        trouble = trouble_of(fact)
        closed = fact.read_fault in ("EACCES", "EPERM")
        if trouble is not None and closed and self.owner == "production":
            return trouble._replace(state=State.WARN, remedy=LET_US_READ)
        return trouble

    def _judged(
        self, pairs: Sequence[tuple[str, Trouble | None]], bytes_: int, seen: str
    ) -> Verdict:
        """The worst of what was found."""
        bad = [(path, trouble) for path, trouble in pairs if trouble is not None]
        if not bad:
            count = f"all {len(pairs)} files are" if len(pairs) > 1 else "it is"
            return self._says(State.PASS, f"{count} whole, {size(bytes_)}", seen=seen)
        bad.sort(key=lambda one: _ORDER.index(one[1].state))
        path, worst = bad[0]
        others = named([other.rpartition("/")[2] for other, _ in bad[1:]])
        which = "" if path == self.path else f"{short_path(path)} "
        return self._says(
            worst.state,
            f"{which}{worst.found}{f'; also wrong: {others}' if others else ''}",
            remedy=worst.remedy,
            evidence=tuple(f"{other}: {trouble.found}" for other, trouble in bad),
            seen=seen,
        )

    def _says(
        self,
        state: State,
        found: str,
        *,
        remedy: str = "",
        evidence: tuple[str, ...] = (),
        seen: str = "",
    ) -> Verdict:
        return self.says(
            state, found, wanted="whole files", remedy=remedy, evidence=evidence, seen=seen
        )


def _unread(header: SafetensorsFact) -> Trouble:
    said = f"cannot be read: {header.said} ({header.fault.lower()})"
    return Trouble(State.UNKNOWN, said, "see whether the file system it lies on still answers")


def _of_index(index: SafetensorsFact, fact: FileFact) -> Trouble | None:
    """How a readable file is no index."""
    if index.fault:
        return _unread(index)
    if index.bad:
        other = "" if fact.head.startswith(b"{") else what_it_is(fact.head)
        return Trouble(State.FAIL, other or f"is no index: {index.bad}", "fetch it again")
    return unfinished(index)


def _of_weights(header: SafetensorsFact, fact: FileFact) -> Trouble | None:
    """How a readable file is no whole safetensors file."""
    if header.fault:
        return _unread(header)
    if header.bad:
        found = what_it_is(fact.head) or f"is broken: {header.bad}"
        return Trouble(State.FAIL, found, "fetch it again")
    if header.needed != header.size:
        off = header.needed - header.size
        how = f"short by {off} bytes" if off > 0 else f"{-off} bytes too long"
        found = f"is {how} (has {header.size}, its header needs {header.needed})"
        return Trouble(State.FAIL, found, "fetch it again: a download or a copy did not finish")
    return unfinished(header)
