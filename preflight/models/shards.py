"""A split model: are all of its files there, whole, and of one set?

Names are derived from the first as the server derives them. It must not pick a file, and reads
nothing of them but their headers.
"""

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from preflight.box import Box, FileFact, GgufFact, ModelFact
from preflight.check import Deadline, Explained
from preflight.files.exists import LET_US_READ, TOLD_BY_EXISTS
from preflight.files.paths import Around, Trouble, beside, gguf_trouble, trouble_of
from preflight.files.recorded import Record
from preflight.models.named import NamedModel
from preflight.models.shard_names import ShardName, shard_name
from preflight.verdict import BlastRadius, State, Verdict
from preflight.wording import named, size


class Shards(NamedModel):
    """All files of a split model, by the names that the server derives from the first."""

    id: ClassVar[str] = "file.shards"
    radius: ClassVar[BlastRadius] = BlastRadius.FILES
    cheap: ClassVar[bool] = True
    explains: ClassVar[tuple[Explained, ...]] = (
        Explained(
            "file.shards",
            reads="stat and header of every file of the set, named as the server derives them from "
            "the first; of a file that stands alone what its header says of a set",
            passes="all are there, count themselves as their names do, and hold each tensor once; or "
            "the file is not split",
            warns="one of them is odd in a way that file.gguf warns about; a merged file or another "
            "set of the same name lies beside them; or only production may read them",
            fails="one is missing, empty, unreadable or broken; another than the first is named; a "
            "shard of another set; tensors that are there twice, or not at all",
            unknown="one cannot be looked at, or not within the deadline",
            skipped="a file that stands alone and is missing, broken or not readable: file.exists or "
            "file.gguf tells",
            remedies=("put every shard back", "name the first one", "fetch the set again"),
        ),
    )

    kind: Literal["shards"] = "shards"
    record: Record | None = Field(default=None, exclude=True, repr=False)
    """What was recorded when its job last passed, to tell what happened since."""

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
        if header.bad or header.fault in TOLD_BY_EXISTS:
            other = "file.gguf" if header.bad else "file.exists"
            return self.says(State.SKIPPED, f"not looked at: see {other}", wanted=wanted)
        if header.fault:
            said = f"{header.said} ({header.fault.lower()})"
            return self.says(State.UNKNOWN, f"its header does not say: {said}", wanted=wanted)
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
            around = self._around(box, name, missing[0], time)
            hints, who = around.hints, around.who
            said += f" ({around.was}){around.changes}" if around.was else ""
            remedy = around.remedy or remedy
        elif self.owner == "production" and all(one.read_fault == "EACCES" for one, _ in bad):
            state, remedy = State.WARN, LET_US_READ
        return self._says(
            state,
            said,
            name,
            remedy=remedy,
            who=who,
            evidence=(*(f"{one.path}: {text[1]}" for one, text in bad), *hints),
            seen=seen,
        )

    def _around(self, box: Box, name: ShardName, missing: str, time: Deadline) -> Around:
        """What lies around a missing shard; what was made of the set is called like its stem."""
        without = [_last(path) for path in name.paths()]
        near = beside(box, f"{name.stem}.gguf", without=without, record=None, within=time.left())
        past = beside(box, missing, without=without, record=self.record, within=time.left())
        return past._replace(hints=near.hints)

    def _whole(
        self, box: Box, name: ShardName, facts: Sequence[FileFact], time: Deadline, seen: str
    ) -> Verdict:
        odd: tuple[str, Trouble] | None = None
        promised: set[int] = set()
        for position, fact in enumerate(facts):
            trouble, header = gguf_trouble(box, fact, within=time.left())
            if trouble is None or trouble.state is State.WARN:
                odd = odd or (None if trouble is None else (fact.path, trouble))
                trouble = _miscounted(header, position, name.count)
            if trouble is not None:
                return self._odd(name, fact.path, trouble, seen)
            promised.add(_number(header, "split.tensors.count") or 0)
        model = box.model(name.paths(), within=time.left())
        mixed = _mixed(model, promised)
        if mixed is not None:
            return self._says(mixed.state, mixed.found, name, remedy=mixed.remedy, seen=seen)
        if odd is not None:
            return self._odd(name, *odd, seen)
        total = sum(fact.size for fact in facts)
        found = f"all {name.count} are there, {size(total)}"
        alike = _alike(name, box, time)
        if alike:
            return self._says(
                State.WARN,
                f"{found}; beside them lies {named(alike)}",
                name,
                remedy="see which of them is meant, and move the other away",
                seen=seen,
            )
        return self._says(State.PASS, found, name, seen=seen)

    def _odd(self, name: ShardName, path: str, trouble: Trouble, seen: str) -> Verdict:
        """One of them, told as a file of its own would be."""
        return self._says(
            trouble.state,
            f"{_last(path)} {trouble.found}",
            name,
            remedy=trouble.remedy,
            evidence=(f"path: {path}",),
            seen=seen,
            id="file.gguf",
        )

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


def _alike(name: ShardName, box: Box, time: Deadline) -> list[str]:
    """What could be taken for this set: a merged file, shards of another count."""
    directory, _, stem = name.stem.rpartition("/")
    found: dict[str, None] = {}
    for other in box.neighbours(directory or "/", within=time.left()):
        shard = shard_name(other.name)
        if other.name == f"{stem}.gguf":
            found[other.name] = None
        elif shard is not None and shard.stem == stem and shard.count != name.count:
            found[f"a set of {shard.count}"] = None
    return list(found)


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


def _mixed(model: ModelFact, promised: set[int]) -> Trouble | None:
    """Whether files that count themselves rightly are of one set all the same."""
    again = "fetch them again: they are not of one set"
    if model.fault or model.bad:
        found = f"cannot be put together: {model.said or model.bad}"
        return Trouble(State.UNKNOWN, found, "see whether the file system still answers")
    if len(promised) > 1:
        counts = named([str(count) for count in sorted(promised)])
        return Trouble(
            State.FAIL, f"the shards disagree on how many tensors there are: {counts}", again
        )
    (count,) = promised
    if model.repeated:
        found = f"{model.repeated[0]} is in more than one of the shards"
        return Trouble(State.FAIL, found, again)
    if count and count != model.tensors:
        found = f"the shards hold {model.tensors} tensors, and say that there are {count}"
        return Trouble(State.FAIL, found, again)
    return None
