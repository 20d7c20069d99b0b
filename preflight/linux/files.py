"""The files of this machine, looked at through a child that can be abandoned. It must not judge."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

from preflight.box import (
    TIMEOUT,
    Disk,
    FileFact,
    GgufFact,
    ModelFact,
    Neighbour,
    Readable,
    SafetensorsFact,
    Sampled,
    Vocabularies,
)
from preflight.linux import probe
from preflight.wording import seconds

One = TypeVar("One", FileFact, SafetensorsFact, Sampled, Readable)
Fact = TypeVar(
    "Fact",
    FileFact,
    GgufFact,
    ModelFact,
    SafetensorsFact,
    Vocabularies,
    Sampled,
    Readable,
    Disk,
)

_ROOT = str(Path(__file__).resolve().parents[2])
# without `site` the reader is up in a third of the time; it needs the standard library only
_READER = (
    sys.executable,
    "-I",
    "-S",
    "-c",
    f"import sys; sys.path.append({_ROOT!r}); from preflight.linux.reader import main; main()",
)


class LinuxFiles:
    """What of the Box is about files. One caller at a time."""

    def __init__(self) -> None:
        self._reader = probe.Helper(_READER)

    def close(self) -> None:
        """End the child; a later question starts another one."""
        self._reader.close()

    def files(self, paths: Sequence[str], *, within: float) -> tuple[FileFact, ...]:
        """One fact a path, in order; after the first that gets no answer nothing more is asked."""
        return self._each(FileFact, "file", paths, within=within)

    def neighbours(self, directory: str, *, within: float) -> tuple[Neighbour, ...]:
        """The newest files of a directory; empty when it cannot be listed."""
        try:
            answer = self._reader.ask({"verb": "neighbours", "path": directory}, within=within)
        except probe.Lost:
            return ()
        return tuple(Neighbour(**row) for row in answer.get("rows", ()))

    def gguf(self, path: str, *, within: float) -> GgufFact:
        """The header of a GGUF file, read once as long as the file stays the same."""
        return self._fact(GgufFact, "gguf", {"path": path}, within=within)

    def model(
        self, paths: Sequence[str], *, within: float, overrides: Sequence[tuple[str, str]] = ()
    ) -> ModelFact:
        """All files of one model together, from their headers."""
        about = {"paths": list(paths), "overrides": list(overrides)}
        return self._fact(ModelFact, "model", about, within=within)

    def safetensors(self, paths: Sequence[str], *, within: float) -> tuple[SafetensorsFact, ...]:
        """The header of each safetensors file, or of the index of a split model."""
        return self._each(SafetensorsFact, "safetensors", paths, within=within)

    def vocabularies(self, one: str, other: str, *, within: float) -> Vocabularies:
        """The words of two models, compared one by one."""
        return self._fact(Vocabularies, "vocabularies", {"one": one, "other": other}, within=within)

    def sampled(self, paths: Sequence[str], *, within: float) -> tuple[Sampled, ...]:
        """What each file is, by its header and a few windows of its content."""
        return self._each(Sampled, "sample", paths, within=within)

    def readable(
        self, paths: Sequence[str], *, uid: int, pid: int | None, within: float
    ) -> tuple[Readable, ...]:
        """Whether this user may read each file, by modes and access lists."""
        return self._each(Readable, "readable", paths, within=within, uid=uid, pid=pid)

    def disk(self, path: str, *, within: float, write: bool) -> Disk:
        """Space below a path, and a probe written and synced there if the directory exists."""
        return self._fact(Disk, "disk", {"path": path, "write": write}, within=within)

    def _each(
        self, kind: type[One], verb: str, paths: Sequence[str], *, within: float, **more: Any
    ) -> tuple[One, ...]:
        """One fact a path; what the first one that hung leaves no time for is TIMEOUT, too."""
        ends = time.monotonic() + within
        facts: list[One] = []
        hung = ""
        for path in paths:
            if hung:
                facts.append(kind(path, fault=TIMEOUT, said=hung))
                continue
            left = max(0.0, ends - time.monotonic())
            fact = self._fact(kind, verb, {"path": path, **more}, within=left)
            if fact.fault == TIMEOUT:
                fact = replace(fact, said=f"gave no answer within {seconds(within)}")
                hung = f"not looked at: {path} gave no answer within {seconds(within)}"
            facts.append(fact)
        return tuple(facts)

    def _fact(
        self, kind: type[Fact], verb: str, about: Mapping[str, Any], *, within: float
    ) -> Fact:
        try:
            answer = self._reader.ask({"verb": verb, **about}, within=within)
        except probe.Lost as lost:
            answer = {"fault": lost.fault, "said": lost.said}
        answer |= {name: about[name] for name in ("path", "paths") if name in about}
        if "head" in answer and kind is FileFact:
            answer["head"] = answer["head"].encode("latin-1")
        for name, value in answer.items():
            if isinstance(value, list):
                answer[name] = tuple(value)
        if "lists" in answer:
            answer["lists"] = {name: tuple(value) for name, value in answer["lists"].items()}
        known = {field.name for field in fields(kind)}
        return kind(**{key: value for key, value in answer.items() if key in known})
