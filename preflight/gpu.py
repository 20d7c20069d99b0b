"""GPU memory: does what the job needs fit, once production's share is given back?

Judged from free memory and the list of processes, never from `used`, which counts what the driver
keeps for itself. What nobody accounts for is said, and is never taken for production's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from preflight.box import CRASH, TIMEOUT, Box, Gpu, GpuProc, GpuReading
from preflight.check import Check, Deadline
from preflight.fit import Load, Unread, heaviest, ways
from preflight.ports import ExpectedOwner, holders, person
from preflight.verdict import BlastRadius, State, Verdict
from preflight.wording import command, memory, named

_USUAL_GAP_MIB = 1024
"""Reserved memory and contexts that no process is charged with: 0.3 to 1 GiB on most cards."""

_WAYS = 2
"""So many ways to make it fit are told first; the others stand in the evidence."""

_MISMATCH = (
    "library and loaded driver differ ({said}): nothing new can start on the GPU until a reboot, "
    "so production could not come back"
)
_FAULTS: dict[str, tuple[State, str, str]] = {
    "absent": (
        State.FAIL,
        "no NVIDIA driver library, and {said}",
        "install the driver, or name nvidia-smi in [gpu] nvidia_smi",
    ),
    "not-loaded": (State.FAIL, "the NVIDIA driver is not loaded ({said})", "load it, or reboot"),
    "mismatch": (
        State.FAIL,
        _MISMATCH,
        "reboot first",
    ),
    "lost": (State.FAIL, "a GPU has fallen off the bus ({said})", "reboot, then look at the card"),
    TIMEOUT: (State.UNKNOWN, "{said} (timeout: is the driver stuck?)", "try: nvidia-smi"),
    CRASH: (State.UNKNOWN, "the GPU reader died: {said} (a lost GPU does that)", "try: nvidia-smi"),
    "error": (State.UNKNOWN, "the driver answers: {said}", "try: nvidia-smi"),
}


@dataclass(frozen=True, slots=True)
class Budget:
    """One GPU's memory in MiB, told apart."""

    free: int
    production: int | None
    """None when the driver does not say how much production holds."""
    foreign: tuple[GpuProc, ...]
    gap: int
    """Used, but charged to nobody."""
    total: int

    def after_stop(self) -> int:
        """Free once production has gone, as far as the driver says so."""
        return self.free + (self.production or 0)


def budget_of(gpus: Sequence[Gpu], family: frozenset[int]) -> Budget:
    """Add up one or more GPUs; rows that cannot be true are not believed.

    A pid that cannot be seen here belongs to nobody we could name: it may be production's, told
    with the number of another pid namespace. Its memory stays in the gap.
    """
    free = sum(gpu.free_mib for gpu in gpus)
    total = sum(gpu.total_mib for gpu in gpus)
    production: int | None = 0
    foreign: list[GpuProc] = []
    charged = 0
    for gpu in gpus:
        if gpu.procs is None or not _credible(gpu.procs, gpu.total_mib - gpu.free_mib):
            production = None
            continue
        for row in gpu.procs:
            if row.pid in family:
                production = None if row.mib is None or production is None else production + row.mib
            elif row.proc is not None:
                foreign.append(row)
            else:
                continue
            charged += row.mib or 0
    return Budget(free, production, tuple(foreign), max(0, total - free - charged), total)


def _credible(rows: Sequence[GpuProc], used_mib: int) -> bool:
    """R535 drivers mixed up pids and bytes: a list that adds up to more than is used is garbage."""
    return sum(row.mib or 0 for row in rows) <= used_mib * 1.05 + 16


@dataclass(frozen=True, slots=True)
class Need:
    """What a job needs on the GPUs that are meant, in MiB, and how that is known."""

    mib: int
    said: str = ""
    """Its parts; empty where a person named the number."""
    floor: bool = False
    """Whether it is only what the weights take, since nobody said more."""
    unsure_mib: int = 0
    """How far it may be off, because part of it is a guess."""
    ways: Callable[[int], tuple[str, ...]] = lambda _: ()
    """What would make it fit into so many MiB."""


def _holder(row: GpuProc) -> str:
    much = memory(row.mib) if row.mib is not None else "an unknown amount"
    argv, user = (row.proc.argv, row.proc.user) if row.proc is not None else ((), "")
    return f"pid {row.pid} {command(argv, 40)} ({user}, {much})"


class GpuBudget(Check):
    """Free memory plus what production holds minus the headroom, against what the job needs."""

    id: ClassVar[str] = "gpu.budget"
    radius: ClassVar[BlastRadius] = BlastRadius.GPU
    cheap: ClassVar[bool] = True

    kind: Literal["gpu"] = "gpu"
    need_mib: int | None = None
    """None: nobody said. Then the weights alone have to fit, and it is said that this proves little."""
    gpu: int | str | None = None
    """An index, or a UUID or the unmistakable beginning of one."""
    loads: tuple[Load, ...] = ()
    """What the arms put there, to estimate from where no number is given; the heaviest counts."""
    weights: tuple[str, ...] = ()
    production: tuple[ExpectedOwner, ...] = ()
    production_pids: tuple[int, ...] = ()
    production_ports: tuple[tuple[str, int], ...] = ()
    """Whoever listens there is production: `port.owner` has seen to that one ring before."""
    headroom_mib: int = 512
    asked: bool = False
    """Whether the job names a GPU. If not, a box without one is skipped."""
    deadline_s: float = 20.0

    @property
    def subject(self) -> str:
        """The GPU as the job names it."""
        if self.gpu is None:
            return "the GPU"
        return f"GPU {self.gpu}" if isinstance(self.gpu, int) else self.gpu

    def look(self, box: Box) -> Verdict:
        """Read the GPUs once, and judge."""
        time = Deadline(self.deadline_s)
        reading = box.gpus(within=time.left())
        if reading.fault:
            return self._no_reading(reading)
        if not reading.gpus and not self.asked:
            return self.says(
                State.SKIPPED, "this box has no GPU, and the job asks for none", wanted=""
            )
        chosen = self._choose(reading)
        if isinstance(chosen, Verdict):
            return chosen
        need = self._need(box, len(chosen), time)
        if isinstance(need, Verdict):
            return need
        verdict = self._judge(chosen, budget_of(chosen, self._family(box)), need)
        return self._unsure(verdict, need)

    def _no_reading(self, reading: GpuReading) -> Verdict:
        if reading.fault in ("absent", "not-loaded") and not self.asked:
            return self.says(
                State.SKIPPED,
                "no NVIDIA GPU can be seen here, and the job asks for none",
                wanted="",
                evidence=(reading.said,),
            )
        state, found, remedy = _FAULTS.get(reading.fault, _FAULTS["error"])
        return self._says(state, found.format(said=reading.said), remedy=remedy)

    def _choose(self, reading: GpuReading) -> tuple[Gpu, ...] | Verdict:
        """The GPUs that are meant; a Verdict when that cannot be told or they are broken."""
        gpus = reading.gpus
        if not gpus:
            return self._says(State.FAIL, "this box has no GPU", remedy="see: nvidia-smi -L")
        if isinstance(self.gpu, int):
            gpus = tuple(gpu for gpu in gpus if gpu.index == self.gpu)
        elif self.gpu is not None:
            gpus = tuple(gpu for gpu in gpus if gpu.uuid.startswith(self.gpu))
        listed = named([f"{gpu.index}: {gpu.uuid} {gpu.name}" for gpu in reading.gpus], 8)
        if not gpus:
            return self._says(State.FAIL, f"not among the GPUs here ({listed})", remedy="name one")
        ambiguous = len(gpus) > 1 and (self.gpu is not None or self.need_mib is not None)
        if ambiguous:
            return self._says(
                State.UNKNOWN,
                f"it is not said which of {len(gpus)} GPUs is meant ({listed})",
                remedy="name one by index or uuid in [needs] gpu",
            )
        for gpu in gpus:
            if gpu.fault:
                return self._broken(gpu)
        return gpus

    def _broken(self, gpu: Gpu) -> Verdict:
        name = f"GPU {gpu.index}"
        if gpu.fault == "lost":
            return self._says(
                State.FAIL, f"{name} is lost ({gpu.said})", remedy="reboot, then look at the card"
            )
        if gpu.fault == "unsupported":
            return self._says(
                State.UNKNOWN,
                f"the driver tells no memory for {name} {gpu.name} (shared with the host?)",
                remedy="accept it with a reason, if you know that it fits",
            )
        return self._says(State.UNKNOWN, f"{name}: {gpu.said}", remedy="try: nvidia-smi")

    def _need(self, box: Box, gpus: int, time: Deadline) -> Need | Verdict:
        """The number that was named, else an estimate from the headers, else the weights alone."""
        if self.need_mib is not None:
            return Need(self.need_mib)
        if self.loads:
            found = heaviest(self.loads, box, gpus, time)
            if isinstance(found, Unread):
                return self._says(
                    State.UNKNOWN,
                    f"it cannot be estimated: {found.why}",
                    remedy="name it: [needs] gpu = [{ free_mib = … }]",
                )
            load, models, estimate = found
            compute = next(part.mib for part in estimate.parts if part.name == "compute")
            return Need(
                estimate.mib,
                said=f"{estimate.words()} for the {load.arm}",
                unsure_mib=0 if estimate.learned else round(compute),
                ways=lambda room: ways(load, models, gpus, room),
            )
        facts = box.files(self.weights, within=time.left()) if self.weights else ()
        if any(fact.fault for fact in facts):
            return self._says(
                State.UNKNOWN, "the size of the weights cannot be read", remedy="name free_mib"
            )
        return Need(sum(fact.size for fact in facts) >> 20, floor=True)

    def _family(self, box: Box) -> frozenset[int]:
        members: set[int] = set()
        for service in self.production:
            members |= service.family(box)
        pids = set(self.production_pids)
        for host, port in self.production_ports:
            pids |= holders(box.listeners(port), host)
        for pid in pids:
            members |= {pid} | box.family(pid)
        return frozenset(members)

    def _judge(self, gpus: tuple[Gpu, ...], budget: Budget, need: Need) -> Verdict:
        room = budget.after_stop() - self.headroom_mib
        sums = (
            f"free {memory(budget.free)} + production "
            f"{'?' if budget.production is None else memory(budget.production)} "
            f"- headroom {memory(self.headroom_mib)} = {memory(room)}"
        )
        evidence = (
            *((f"estimated: {need.said}",) if need.said else ()),
            *(f"{gpu.uuid or gpu.index} {gpu.name}: {memory(gpu.total_mib)}" for gpu in gpus),
            *(f"also on it: {_holder(row)}" for row in budget.foreign),
            f"used, but charged to nobody: {memory(budget.gap)}",
        )
        if need.mib > budget.total - self.headroom_mib:
            usable = budget.total - self.headroom_mib
            helps = need.ways(usable)
            return self._says(
                State.FAIL,
                f"can never fit: {memory(budget.total)} in all, at most {memory(usable)} of it "
                f"usable, short by {memory(need.mib - usable)}",
                need=need,
                remedy="; ".join(helps[:_WAYS])
                or "less context, a smaller KV type or model, or another card",
                evidence=(*evidence, *helps),
            )
        if need.mib <= budget.free - self.headroom_mib:
            found = f"{sums}: fits even beside production"
            return self._says(State.PASS, found, need=need, evidence=evidence)
        if need.mib <= room:
            return self._says(State.PASS, sums, need=need, evidence=evidence)
        return self._short(budget, need, room, sums, evidence)

    def _short(
        self, budget: Budget, need: Need, room: int, sums: str, evidence: tuple[str, ...]
    ) -> Verdict:
        """It does not fit by the numbers; the numbers may not be the whole truth."""
        short = need.mib - room
        unsaid = any(row.mib is None for row in budget.foreign)
        hidden = budget.production is None or unsaid or budget.gap > _USUAL_GAP_MIB
        if hidden and budget.gap >= short:
            return self._says(
                State.UNKNOWN,
                f"{sums}; {memory(budget.gap)} are used and the driver names no owner (WSL, a "
                "container?): if that is production, it fits",
                need=need,
                remedy="look with nvidia-smi; if you are sure, accept gpu.budget with that reason",
                evidence=evidence,
            )
        heavy = sorted(budget.foreign, key=lambda row: row.mib or 0, reverse=True)
        held = f"; held by {named([_holder(row) for row in heavy], 2)}" if heavy else ""
        who = person(heavy[0].proc) if heavy and heavy[0].proc is not None else ""
        helps = need.ways(room)
        ask_for_less = "; ".join(helps[:_WAYS]) or "ask for less"
        return self._says(
            State.FAIL,
            f"{sums}, short by {memory(short)}{held}",
            need=need,
            who=who,
            remedy="wait for them or ask them" if heavy else ask_for_less,
            evidence=(*evidence, *helps),
        )

    def _unsure(self, verdict: Verdict, need: Need) -> Verdict:
        """Where part of the need is a guess, a pass may be only half of one."""
        if verdict.state is not State.PASS:
            return verdict
        if need.floor:
            alone = f", the weights alone are {memory(need.mib)}" if self.weights else ""
            return replace(
                verdict,
                state=State.WARN,
                found=f"{verdict.found}; nobody said how much is needed{alone}",
                remedy="name it: [needs] gpu = [{ free_mib = … }]",
            )
        if need.unsure_mib:
            guessed = (
                f"{memory(need.unsure_mib)} of it are a guess at compute buffers, until a run tells"
            )
            return replace(verdict, evidence=(*verdict.evidence, guessed))
        return verdict

    def _says(
        self,
        state: State,
        found: str,
        *,
        need: Need | None = None,
        remedy: str = "",
        who: str = "",
        evidence: tuple[str, ...] = (),
    ) -> Verdict:
        much = need.mib if need is not None else self.need_mib
        wanted = "memory for the model"
        if much is not None and not (need is not None and need.floor):
            wanted = f"{memory(much)} and {memory(self.headroom_mib)} headroom"
        return self.says(state, found, wanted=wanted, remedy=remedy, who=who, evidence=evidence)
