"""A made-up machine: what a check is told is exactly what the test wrote down."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from preflight.box import (
    Answer,
    Disk,
    FileFact,
    GgufFact,
    GpuReading,
    Listener,
    Me,
    ModelFact,
    Neighbour,
    Proc,
    Ran,
    Readable,
    SafetensorsFact,
    Sampled,
    Sockets,
    Vocabularies,
)
from tests.fakes_host import FakeHost

UID = 1000
"""Who looks, on a made-up machine."""


def a_file(path: str, **facts: Any) -> FileFact:
    """A regular, readable GGUF file of 1 GiB, changed as the test wishes."""
    fact = FileFact(
        path,
        kind="file",
        size=1 << 30,
        inode=7,
        mtime_ns=1_700_000_000_000_000_000,
        uid=UID,
        mode=0o644,
        target=path,
        head=b"GGUF\x03\0\0\0",
        writable=True,
    )
    return replace(fact, **facts)


def a_program(path: str, **facts: Any) -> FileFact:
    """A program that may be run."""
    return a_file(path, **({"executable": True, "head": b"\x7fELF"} | facts))


def a_directory(path: str, **facts: Any) -> FileFact:
    """A directory of the one who looks."""
    return a_file(path, **({"kind": "directory", "size": 4096, "head": b""} | facts))


def a_model(**facts: Any) -> ModelFact:
    """A llama of four layers, changed as the test wishes."""
    fact = ModelFact(
        keys={
            "general.architecture": "llama",
            "llama.block_count": 4,
            "llama.context_length": 262_144,
            "llama.embedding_length": 4096,
            "llama.attention.head_count": 32,
            "llama.attention.head_count_kv": 8,
        },
        tensors=38,
        size=1 << 30,
        blocks=(200 << 20,) * 4,
        outside={"token_embd.weight": 112 << 20, "output.weight": 112 << 20},
        words=32_000,
    )
    return replace(fact, **facts)


def missing(path: str, **facts: Any) -> FileFact:
    """A path that is not there, in a directory that is."""
    parent = path.rsplit("/", 1)[0] or "/"
    fact = FileFact(path, fault="ENOENT", said="No such file or directory", nearest=parent)
    return replace(fact, **facts)


def a_process(pid: int, *argv: str, **facts: Any) -> Proc:
    """One process of another user."""
    fact = Proc(
        pid, pid * 10, argv=argv or ("server",), uid=1001, user="anna", since=1_700_000_000.0
    )
    return replace(fact, **facts)


def listens(port: int, *owners: Proc, address: str = "127.0.0.1", **facts: Any) -> Listener:
    """A listening socket and who holds it."""
    row = Listener(address, port, ":" in address, 1001, "anna", 5000 + port, tuple(owners))
    return replace(row, **facts)


@dataclass
class FakeBox(FakeHost):
    """Answers from its tables; a path that is in none of them does not exist."""

    paths: dict[str, FileFact] = field(default_factory=dict)
    beside: dict[str, tuple[Neighbour, ...]] = field(default_factory=dict)
    headers: dict[str, GgufFact] = field(default_factory=dict)
    models: dict[str, ModelFact] = field(default_factory=dict)
    """Whole models, by the path of their first file."""
    tensors: dict[str, SafetensorsFact] = field(default_factory=dict)
    overridden: dict[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    """What was said of a model's tensors when it was last asked for."""
    vocabulary: Vocabularies = field(default_factory=lambda: Vocabularies(32_000, 32_000))
    samples: dict[str, Sampled] = field(default_factory=dict)
    kept_out: dict[str, Readable] = field(default_factory=dict)
    """Files that the other user may not read, or of which that cannot be told."""
    disks: dict[str, Disk] = field(default_factory=dict)
    rows: list[Listener] = field(default_factory=list)
    sockets_fault: str = ""
    processes: dict[int, Proc] = field(default_factory=dict)
    families: dict[int, set[int]] = field(default_factory=dict)
    cgroups: dict[str, set[int]] = field(default_factory=dict)
    deleted: dict[int, tuple[tuple[str, int], ...] | None] = field(default_factory=dict)
    reading: GpuReading = field(default_factory=lambda: GpuReading(fault="absent", said="no GPU"))
    commands: dict[tuple[str, ...], Ran] = field(default_factory=dict)
    answers: dict[str, Answer] = field(default_factory=dict)
    who: Me = field(default_factory=lambda: Me(UID, "runner", None, None))
    ran: list[tuple[str, ...]] = field(default_factory=list)
    """Every command that was run, in order."""
    asked: list[str] = field(default_factory=list)
    """Every URL that was asked for, in order."""

    def has(self, *facts: FileFact) -> FakeBox:
        """The same box, with these files on it."""
        self.paths |= {fact.path: fact for fact in facts}
        return self

    def answers_with(self, url: str, said: object, status: int = 200) -> None:
        """From now on GET `url` gives this JSON."""
        self.answers[url] = Answer(status, json.dumps(said))

    def files(self, paths: Sequence[str], *, within: float) -> tuple[FileFact, ...]:
        """What was written down, else a missing file."""
        del within
        return tuple(self.paths.get(path) or missing(path) for path in paths)

    def neighbours(self, directory: str, *, within: float) -> tuple[Neighbour, ...]:
        """The files that were said to lie there."""
        del within
        return self.beside.get(directory, ())

    def gguf(self, path: str, *, within: float) -> GgufFact:
        """The header that was written down, else a plain one of a whole file."""
        del within
        return self.headers.get(path) or GgufFact(path, size=1 << 30, needed=1 << 30, version=3)

    def model(
        self, paths: Sequence[str], *, within: float, overrides: Sequence[tuple[str, str]] = ()
    ) -> ModelFact:
        """The model that was written down under its first file, else a small llama."""
        del within
        self.overridden[paths[0]] = tuple(overrides)
        return self.models.get(paths[0]) or a_model(paths=tuple(paths))

    def safetensors(self, paths: Sequence[str], *, within: float) -> tuple[SafetensorsFact, ...]:
        """What was written down, else a whole file."""
        del within
        return tuple(self.tensors.get(path) or SafetensorsFact(path, tensors=1) for path in paths)

    def vocabularies(self, one: str, other: str, *, within: float) -> Vocabularies:
        """The one comparison."""
        del one, other, within
        return self.vocabulary

    def sampled(self, paths: Sequence[str], *, within: float) -> tuple[Sampled, ...]:
        """What was written down, else what the file's facts make likely."""
        del within
        facts = (self.paths.get(path) or missing(path) for path in paths)
        return tuple(
            self.samples.get(fact.path)
            or Sampled(
                fact.path,
                fault=fact.fault,
                target=fact.target,
                size=fact.size,
                inode=fact.inode,
                mtime_ns=fact.mtime_ns,
                user="runner",
                head="head",
                sample=f"sample of {fact.size}",
            )
            for fact in facts
        )

    def readable(
        self, paths: Sequence[str], *, uid: int, pid: int | None, within: float
    ) -> tuple[Readable, ...]:
        """Everybody may read everything, unless the test says otherwise."""
        del uid, pid, within
        return tuple(self.kept_out.get(path) or Readable(path, may=True) for path in paths)

    def disk(self, path: str, *, within: float, write: bool) -> Disk:
        """A roomy local disk, unless the test says otherwise."""
        del within, write
        return self.disks.get(path) or Disk(path, kind="ext4", free_mib=100_000, written=True)

    def listeners(self, port: int) -> Sockets:
        """The rows of this port."""
        if self.sockets_fault:
            return Sockets(fault=self.sockets_fault, said="denied")
        return Sockets(tuple(row for row in self.rows if row.port == port))

    def process(self, pid: int) -> Proc | None:
        """The process, if there is one."""
        return self.processes.get(pid)

    def family(self, pid: int) -> frozenset[int]:
        """The process with whom it was said to belong."""
        return frozenset({pid} | self.families.get(pid, set()))

    def unit_members(self, cgroup: str) -> frozenset[int]:
        """The members of a cgroup."""
        return frozenset(self.cgroups.get(cgroup, set()))

    def vanished(self, pid: int) -> tuple[tuple[str, int], ...] | None:
        """Deleted files that a process maps."""
        return self.deleted.get(pid, ())

    def gpus(self, *, within: float) -> GpuReading:
        """The one reading."""
        del within
        return self.reading

    def run(
        self, argv: Sequence[str], *, within: float, env: Mapping[str, str] | None = None
    ) -> Ran:
        """What the command was said to print; one that nobody wrote down is not installed."""
        del within, env
        self.ran.append(tuple(argv))
        return self.commands.get(tuple(argv)) or Ran(
            None, fault="ENOENT", said="No such file or directory"
        )

    def ask(self, url: str, *, within: float, key: Mapping[str, str] | None = None) -> Answer:
        """The answer of a server; where none was written down, nobody listens."""
        del within, key
        self.asked.append(url)
        return self.answers.get(url) or Answer(fault="ECONNREFUSED", said="Connection refused")

    def me(self) -> Me:
        """Who looks."""
        return self.who
