"""Files by explicit path: is each one there, readable and whole, and if not, how not.

It must not pick a file, and reads nothing of a model but its header.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from preflight.box import Box, FileFact, GgufFact
from preflight.check import Check, Deadline
from preflight.paths import Trouble, beside, gguf_trouble, swept, trouble_of
from preflight.shard_names import ShardName, shard_name
from preflight.verdict import BlastRadius, State, Verdict
from preflight.wording import named, size, when

Role = Literal["weights", "draft", "mmproj", "binary", "prompt", "other"]

_WORDS: dict[str, str] = {
    "weights": "model",
    "draft": "draft model",
    "mmproj": "vision projector",
    "binary": "program",
    "prompt": "prompt file",
    "other": "file",
}
_LET_US_READ = "let the runner's user read it, so that it can be looked at"
_WANTED = "a readable, non-empty file"


class FileExists(Check):
    """A file that has to be there, with its magic letters and length if it is a GGUF file."""

    id: ClassVar[str] = "file.exists"
    radius: ClassVar[BlastRadius] = BlastRadius.FILES
    cheap: ClassVar[bool] = True

    kind: Literal["file"] = "file"
    path: str
    role: Role = "other"
    gguf: bool = False
    owner: Literal["job", "production"] = "job"

    @property
    def subject(self) -> str:
        """The role in words, and the path as it was written."""
        whose = "production's " if self.owner == "production" else ""
        return f"{whose}{_WORDS[self.role]} {self.path}"

    @property
    def acceptable(self) -> bool:
        """Production's own files are part of its way back."""
        return self.owner != "production"

    def look(self, box: Box) -> Verdict:
        """Stat, first bytes, header: nothing behind the header is read."""
        time = Deadline(self.deadline_s)
        (fact,) = box.files([self.path], within=time.left())
        trouble = trouble_of(fact)
        if trouble is not None:
            return self._refusal(box, fact, trouble, time)
        if self.gguf:
            trouble, _ = gguf_trouble(box, fact, within=time.left())
            if trouble is not None:
                state, found, remedy = trouble
                return self.says(
                    state,
                    found,
                    wanted="a whole GGUF file",
                    remedy=remedy,
                    id="file.gguf",
                    evidence=(f"path: {self.path}",),
                    seen=fact.fingerprint,
                )
        return self._consent(fact)

    def _refusal(self, box: Box, fact: FileFact, trouble: Trouble, time: Deadline) -> Verdict:
        state, found, remedy = trouble
        hints: tuple[str, ...] = ()
        who = ""
        if fact.fault == "ENOENT":
            hints, who = beside(box, self.path, without=[_last(self.path)], within=time.left())
        if self.owner == "production" and fact.read_fault in ("EACCES", "EPERM"):
            # it is there, and the user that production runs as is the one that has to read it
            state, remedy = State.WARN, _LET_US_READ
        return self.says(
            state,
            found,
            wanted=_WANTED,
            remedy=remedy,
            who=who,
            evidence=(f"path: {self.path}", *hints),
            seen=fact.fingerprint,
        )

    def _consent(self, fact: FileFact) -> Verdict:
        evidence: tuple[str, ...] = (f"path: {self.path}",)
        if fact.links:
            evidence += (f"links to: {fact.target}",)
        found = f"{size(fact.size)}, written {when(fact.mtime_ns / 1e9)}"
        cleaned = swept(fact)
        return self.says(
            State.WARN if cleaned else State.PASS,
            f"{found}; {cleaned}" if cleaned else found,
            wanted=_WANTED,
            remedy="move it to a directory that nobody cleans" if cleaned else "",
            evidence=evidence,
            seen=fact.fingerprint,
        )


class Shards(Check):
    """All files of a split model, by the names that the server derives from the first."""

    id: ClassVar[str] = "file.shards"
    radius: ClassVar[BlastRadius] = BlastRadius.FILES
    cheap: ClassVar[bool] = True

    kind: Literal["shards"] = "shards"
    path: str
    owner: Literal["job", "production"] = "job"
    deadline_s: float = 10.0

    @property
    def subject(self) -> str:
        """The first shard's path."""
        whose = "production's model" if self.owner == "production" else "model"
        return f"{whose} {self.path}"

    @property
    def acceptable(self) -> bool:
        """Production's own files are part of its way back."""
        return self.owner != "production"

    def look(self, box: Box) -> Verdict:
        """Every shard is there, readable and whole, and counts itself as the name does."""
        time = Deadline(self.deadline_s)
        name = shard_name(self.path)
        if name is None:
            return self._alone(box, time)
        if name.number != 1:
            return self._says(
                State.FAIL,
                f"is shard {name.number} of {name.count}",
                name,
                remedy=f"name the first one: {name.path(1)}",
            )
        facts = box.files(name.paths(), within=time.left())
        seen = " ".join(fact.fingerprint for fact in facts)
        return self._there(box, name, facts, time, seen) or self._whole(
            box, name, facts, time, seen
        )

    def _alone(self, box: Box, time: Deadline) -> Verdict:
        """A name that says nothing of shards, while the header may say it is one of many."""
        wanted = "one whole file"
        header = box.gguf(self.path, within=time.left())
        count = _number(header, "split.count") or 0
        if header.fault or header.bad:
            said = header.bad or f"{header.said} ({header.fault.lower()})"
            return self.says(
                State.UNKNOWN, f"its header does not say: {said}", wanted=wanted, remedy=""
            )
        if count > 1:
            number = (_number(header, "split.no") or 0) + 1
            return self.says(
                State.FAIL,
                f"is shard {number} of {count} under another name",
                wanted=wanted,
                remedy=f"give all shards their names again (…-{number:05d}-of-{count:05d}.gguf)",
                evidence=(f"path: {self.path}",),
            )
        return self.says(
            State.PASS, "is not split", wanted=wanted, evidence=(f"path: {self.path}",)
        )

    def _there(
        self, box: Box, name: ShardName, facts: Sequence[FileFact], time: Deadline, seen: str
    ) -> Verdict | None:
        troubles = [(fact, trouble_of(fact)) for fact in facts]
        bad = [(fact, trouble) for fact, trouble in troubles if trouble is not None]
        if not bad:
            return None
        missing = [fact.path for fact, _ in bad if fact.fault == "ENOENT" and not fact.links]
        fact, (state, found, remedy) = next(
            (pair for pair in bad if pair[1][0] is State.FAIL), bad[0]
        )
        said = f"{_last(fact.path)} {found}"
        hints: tuple[str, ...] = ()
        who = ""
        if missing:
            verb = "is" if len(missing) == 1 else "are"
            said = f"{len(missing)} of {name.count} {verb} missing: {named([_last(p) for p in missing])}"
            state, remedy = State.FAIL, "put every shard back, or name the file that replaces them"
            without = [_last(path) for path in name.paths()]
            hints, who = beside(box, f"{name.stem}.gguf", without=without, within=time.left())
        elif self.owner == "production" and all(one.read_fault == "EACCES" for one, _ in bad):
            state, remedy = State.WARN, _LET_US_READ
        return self._says(
            state,
            said,
            name,
            remedy=remedy,
            who=who,
            evidence=(*(f"{one.path}: {text[1]}" for one, text in bad), *hints),
            seen=seen,
        )

    def _whole(
        self, box: Box, name: ShardName, facts: Sequence[FileFact], time: Deadline, seen: str
    ) -> Verdict:
        total = sum(fact.size for fact in facts)
        tensors = promised = 0
        for position, fact in enumerate(facts):
            trouble, header = gguf_trouble(box, fact, within=time.left())
            if trouble is None:
                trouble = _miscounted(header, position, name.count)
            if trouble is not None:
                state, found, remedy = trouble
                said = f"{_last(fact.path)} {found}"
                evidence = (f"path: {fact.path}",)
                return self._says(
                    state, said, name, remedy=remedy, evidence=evidence, seen=seen, id="file.gguf"
                )
            tensors += header.tensors
            promised = _number(header, "split.tensors.count") or promised
        if promised and promised != tensors:
            return self._says(
                State.FAIL,
                f"the shards hold {tensors} tensors, and say that there are {promised}",
                name,
                remedy="fetch them again: they are not of one set",
                seen=seen,
            )
        found = f"all {name.count} are there, {size(total)}"
        return self._says(State.PASS, found, name, seen=seen)

    def _says(
        self,
        state: State,
        found: str,
        name: ShardName,
        *,
        remedy: str = "",
        who: str = "",
        evidence: tuple[str, ...] = (),
        seen: str = "",
        id: str | None = None,  # noqa: A002 - the Verdict's own word
    ) -> Verdict:
        wanted = f"all {name.count} shards, the first one given"
        evidence = evidence or (f"path: {self.path}",)
        return self.says(
            state, found, wanted=wanted, remedy=remedy, who=who, evidence=evidence, seen=seen, id=id
        )


def _last(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def _number(header: GgufFact, key: str) -> int | None:
    found = header.keys.get(key)
    return found if isinstance(found, int) else None


def _miscounted(header: GgufFact, position: int, count: int) -> Trouble | None:
    """Whether a shard counts itself otherwise than its name does (split.no starts at 0)."""
    number, counted = _number(header, "split.no"), _number(header, "split.count")
    if counted is None or number is None:
        # a set that was cut by another tool; the server refuses it
        return Trouble(State.FAIL, "does not say that it is a shard", "fetch the set again")
    if (number, counted) != (position, count):
        return Trouble(
            State.FAIL,
            f"says that it is shard {number + 1} of {counted}",
            "fetch it again: it is not of this set",
        )
    return None
