"""GPU memory: does what the job needs fit, once production's share is given back?

Judged from free memory and the list of processes (`preflight.gpu.attribution`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from preflight.box import Box, Gpu, GpuReading
from preflight.check import Check, Deadline, Explained
from preflight.gpu.attribution import Budget, budget_of, holder, unaccounted
from preflight.gpu.driver import reading_trouble
from preflight.host.ram import resident
from preflight.models.fit import Load, Unread, heaviest, ways
from preflight.ports.listeners import person
from preflight.ports.owner import ExpectedOwner, holders
from preflight.verdict import BlastRadius, State, Verdict
from preflight.wording import memory, named

_WAYS = 2
"""So many ways to make it fit are told first; the others stand in the evidence."""


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


class GpuBudget(Check):
    """Free memory plus what production holds minus the headroom, against what the job needs."""

    id: ClassVar[str] = "gpu.budget"
    radius: ClassVar[BlastRadius] = BlastRadius.GPU
    cheap: ClassVar[bool] = True
    explains: ClassVar[tuple[Explained, ...]] = (
        Explained(
            "gpu.budget",
            reads="free memory and the list of processes of each GPU that is meant, and who belongs "
            "to production; on a GPU that shares the host's memory, MemAvailable",
            passes="free + what production holds - headroom is at least what the job needs",
            warns="less than the headroom is left to spare; nobody said how much is needed; a desktop "
            "is drawn on the GPU",
            fails="it is too little, and whoever holds the rest is named; it can never fit",
            unknown="what is used is not accounted for, and would do if it were production's; the "
            "driver tells no memory; it is not said which of several GPUs is meant",
            skipped="no GPU is here, and the job asks for none",
            remedies=(
                "name it: [needs] gpu = [{ uuid = …, free_mib = … }]",
                "less context, a smaller KV type or model",
                "wait for whoever is named, or ask them",
            ),
        ),
    )

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
    down: bool = False
    """Production has been stopped: what nobody accounts for now is not its own."""
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
        family = self._family(box)
        shared = any(gpu.unified for gpu in chosen)
        held = resident(box, family, within=time.left()) if shared else 0
        budget = budget_of(chosen, family, held)
        verdict = self._judge(chosen, budget, need)
        if verdict.refuses and (budget.unseen or budget.hidden):
            more = unaccounted(box, budget, family)
            verdict = replace(verdict, evidence=(*verdict.evidence, *more))
        # somebody who comes or goes between the check and the gate is a change; free memory moves
        seen = " ".join(str(row.pid) for row in sorted(budget.strangers, key=lambda row: row.pid))
        return replace(self._drawn(self._unsure(verdict, need), budget), seen=seen)

    def _no_reading(self, reading: GpuReading) -> Verdict:
        if reading.fault in ("absent", "not-loaded") and not self.asked:
            return self.says(
                State.SKIPPED,
                "no NVIDIA GPU can be seen here, and the job asks for none",
                wanted="",
                evidence=(reading.said,),
            )
        state, found, remedy = reading_trouble(reading)
        return self._says(state, found, remedy=remedy)

    def _choose(self, reading: GpuReading) -> tuple[Gpu, ...] | Verdict:
        """The GPUs that are meant; a Verdict when that cannot be told or they are broken."""
        gpus = reading.gpus
        if not gpus:
            return self._says(State.FAIL, "this box has no GPU", remedy="see: nvidia-smi -L")
        if isinstance(self.gpu, int):
            gpus = tuple(gpu for gpu in gpus if gpu.index == self.gpu and not gpu.parent)
        elif self.gpu is not None:
            gpus = tuple(gpu for gpu in gpus if gpu.uuid.startswith(self.gpu))
        else:  # what is divided can only be used by its parts
            gpus = tuple(gpu for gpu in gpus if not gpu.mig)
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
                f"the driver tells no memory for {name} {gpu.name}",
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
            *(f"also on it: {holder(row)}" for row in budget.foreign),
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
        if need.mib <= room - self.headroom_mib or (need.mib <= room and need.floor):
            return self._says(State.PASS, sums, need=need, evidence=evidence)
        if need.mib <= room:
            found = f"{sums}: only {memory(room - need.mib)} to spare"
            remedy = "see that nobody takes more of the GPU, or ask for less"
            return self._says(State.WARN, found, need=need, remedy=remedy, evidence=evidence)
        return self._short(budget, need, room, sums, evidence)

    def _short(
        self, budget: Budget, need: Need, room: int, sums: str, evidence: tuple[str, ...]
    ) -> Verdict:
        """It does not fit by the numbers; the numbers may not be the whole truth."""
        short = need.mib - room
        if budget.hidden and budget.gap >= short and not self.down:
            return self._says(
                State.UNKNOWN,
                f"{sums}; {memory(budget.gap)} are used and the driver names no owner (WSL, a "
                "container?): if that is production, it fits",
                need=need,
                remedy="look with nvidia-smi; if you are sure, accept gpu.budget with that reason",
                evidence=evidence,
            )
        heavy = sorted(budget.foreign, key=lambda row: row.mib or 0, reverse=True)
        held = f"; held by {named([holder(row) for row in heavy], 2)}" if heavy else ""
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
        if verdict.refuses:
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

    def _drawn(self, verdict: Verdict, budget: Budget) -> Verdict:
        """A desktop on the card takes more whenever somebody opens a window."""
        desktop = [row for row in budget.foreign if row.kind == "graphics"]
        if verdict.refuses or not desktop:
            return verdict
        found = (
            f"{verdict.found}; a desktop is drawn on it: {named([holder(r) for r in desktop], 2)}"
        )
        return replace(verdict, state=State.WARN, found=found, remedy="leave it more headroom_mib")

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
