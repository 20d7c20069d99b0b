"""Engines that outlived their server, and servers of our own models that nobody accounts for.

After a hard end of the process that listens, its engine may live on with all of the GPU's memory
while the port is free (vllm#55510, sglang#23627, ollama#5642). It must not signal anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal, NamedTuple

from preflight.box import Box, GpuReading, Proc, Running
from preflight.check import Check, Deadline, Explained
from preflight.ports.listeners import person
from preflight.ports.owner import ExpectedOwner
from preflight.verdict import BlastRadius, State, Verdict
from preflight.wording import command, memory, named

_ENGINE = re.compile(
    r"^(VLLM::(EngineCore|Worker)|sglang::|\S*/?ollama(_llama_server)? (.* )?runner|ray::\S*vLLM)"
)
"""Titles of processes that only make sense as a child of a server."""
_SERVERS = ("llama-server", "vllm", "sglang", "ollama", "text-generation-server", "tabbyapi")
_INTERPRETERS = re.compile(r"^(python[\d.]*|bash|sh|env)$")


class _Leftover(NamedTuple):
    """One process that should not be there, and why."""

    process: Running
    why: str


class Leftovers(Check):
    """No process of an earlier server or of our models is left beside production."""

    id: ClassVar[str] = "proc.leftover"
    radius: ClassVar[BlastRadius] = BlastRadius.PORTS
    explains: ClassVar[tuple[Explained, ...]] = (
        Explained(
            "proc.leftover",
            reads="the table of processes for engines without their server (VLLM::, sglang::, ollama "
            "runner) and for servers of the job's or production's model files that do not belong to "
            "production; only where there are any, what they hold of the GPU",
            passes="none",
            warns="one is left, and it holds no GPU memory",
            fails="one is left, and it holds GPU memory that no stop of ours gives back",
            unknown="one is left and the GPU does not tell what it holds; this user sees only its "
            "own processes",
            remedies=("end it yourself, or ask its user: the runner ends no process but its own",),
        ),
    )

    kind: Literal["leftovers"] = "leftovers"
    production: tuple[ExpectedOwner, ...] = ()
    models: tuple[str, ...] = ()
    """Model files of the job and of production."""
    programs: tuple[str, ...] = ()
    """What the job and production run: the first words of their commands that are paths."""
    deadline_s: float = 20.0

    @property
    def subject(self) -> str:
        """All of the machine."""
        return "engines and servers left behind"

    def look(self, box: Box) -> Verdict:
        """Names first; the GPU is asked only about those."""
        time = Deadline(self.deadline_s)
        table = {one.pid: one for one in box.table()}
        if 1 not in table:
            return self._says(
                State.UNKNOWN,
                "this user sees only its own processes (hidepid)",
                remedy="run as root, or give the runner CAP_SYS_PTRACE",
            )
        found = list(self._found(box, table))
        if not found:
            return self._says(State.PASS, "none")
        return self._holding(box, found, box.gpus(within=time.left()))

    def _found(self, box: Box, table: Mapping[int, Running]) -> Iterator[_Leftover]:
        suspects = [
            one
            for one in table.values()
            if one.state != "Z" and (_orphan(one, table) or self._ours(one))
        ]
        if not suspects:
            return
        family = frozenset[int]().union(*(service.family(box) for service in self.production))
        me = box.me().line
        for one in suspects:
            proc = box.process(one.pid)
            if proc is None or one.pid in family or one.pid in me:
                continue
            if any(service.owns(proc, family) for service in self.production):
                continue
            if _orphan(one, table):
                yield _Leftover(one, "an engine whose server has ended")
            elif not _in_line(one, table, family):
                yield _Leftover(one, "serves one of these models, and is not production")

    def _ours(self, one: Running) -> bool:
        """A server that was started with one of our model files."""
        if not one.argv or not any(
            word == path or word.endswith(f"={path}")
            for word in one.argv[1:]
            for path in self.models
        ):
            return False
        words = one.argv[:2] if _INTERPRETERS.match(_name(one.argv[0])) else one.argv[:1]
        return any(word in self.programs or _name(word) in _SERVERS for word in words)

    def _holding(self, box: Box, found: list[_Leftover], reading: GpuReading) -> Verdict:
        """What each of them holds of the GPU decides."""
        held: dict[int, int] = {}
        listed = True
        for gpu in reading.gpus:
            listed = listed and gpu.procs is not None
            for row in gpu.procs or ():
                held[row.pid] = held.get(row.pid, 0) + (row.mib or 0)
        heavy = [one for one in found if one.process.pid in held]
        words = [_words(one, held) for one in heavy or found]
        first = box.process((heavy or found)[0].process.pid)
        told = self._told(first)
        evidence = tuple(_words(one, held) for one in found)
        if heavy:
            return self._says(
                State.FAIL, f"left behind: {named(words, 2)}", evidence=evidence, **told
            )
        blind = (reading.fault and reading.fault not in ("absent", "not-loaded")) or not listed
        if blind:
            why = reading.said or "the driver lists no processes"
            said = (
                f"left behind: {named(words, 2)}; whether it holds GPU memory is not told ({why})"
            )
            return self._says(State.UNKNOWN, said, evidence=evidence, **told)
        said = f"left behind, without GPU memory: {named(words, 2)}"
        return self._says(State.WARN, said, evidence=evidence, **told)

    @staticmethod
    def _told(proc: Proc | None) -> dict[str, str]:
        if proc is None:
            return {"remedy": "look again: it ends by itself"}
        whom = proc.user or f"uid {proc.uid}"
        return {"who": person(proc), "remedy": f"ask {whom} about pid {proc.pid}, or end it"}

    def _says(
        self,
        state: State,
        found: str,
        *,
        remedy: str = "",
        who: str = "",
        evidence: tuple[str, ...] = (),
    ) -> Verdict:
        return self.says(state, found, wanted="none", remedy=remedy, who=who, evidence=evidence)


def _name(word: str) -> str:
    return word.rsplit("/", 1)[-1]


def _orphan(one: Running, table: Mapping[int, Running]) -> bool:
    """An engine that init has inherited, or whoever stands in for init."""
    if not _ENGINE.match(" ".join(one.argv) or one.comm):
        return False
    parent = table.get(one.ppid)
    return (
        parent is None
        or parent.pid == 1
        or "systemd" in (parent.comm, _name((parent.argv or ("",))[0]))
    )


def _in_line(one: Running, table: Mapping[int, Running], family: frozenset[int]) -> bool:
    """Whether its parents lead to production."""
    seen = set[int]()
    here: Running | None = one
    while here is not None and here.pid not in seen:
        if here.pid in family:
            return True
        seen.add(here.pid)
        here = table.get(here.ppid)
    return False


def _words(one: _Leftover, held: Mapping[int, int]) -> str:
    mib = held.get(one.process.pid)
    much = "" if mib is None else f", {memory(mib)}" if mib else ", an unknown amount"
    return (
        f"pid {one.process.pid} {command(one.process.argv) or one.process.comm}{much} ({one.why})"
    )
