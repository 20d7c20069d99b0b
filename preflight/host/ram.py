"""Memory of the host: what a candidate that locks or copies its weights needs, and what is there.

Weights that are mapped from their file need none of it: they lie in the page cache, which counts as
free (MemAvailable, never MemFree). It must not know GPUs; unified memory is theirs to judge.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import ClassVar, Literal

from preflight.box import TIMEOUT, Box
from preflight.check import Check, Deadline, Explained
from preflight.ports.owner import ExpectedOwner
from preflight.verdict import BlastRadius, State, Verdict
from preflight.wording import memory

_MEMINFO = "/proc/meminfo"
_ROW = re.compile(r"^(\w+(?:\(\w+\))?):\s+(\d+)", re.MULTILINE)
_HEADROOM_MIB = 512
_SWAPPING_MIB = 256
_NO_LIMIT = 1 << 60


class HostRam(Check):
    """Enough memory of the host for what is copied or locked there."""

    id: ClassVar[str] = "host.ram"
    radius: ClassVar[BlastRadius] = BlastRadius.HOST
    explains: ClassVar[tuple[Explained, ...]] = (
        Explained(
            "host.ram",
            reads="/proc/meminfo, what production's processes hold for themselves (RssAnon), and the "
            "memory limit of the control group that this runs in",
            passes="what the candidate copies or locks (--no-mmap, --mlock) fits beside 512 MiB; "
            "mapped weights need nothing",
            warns="swap is in use; less than 512 MiB are available",
            fails="it does not fit, or is above the limit of the control group",
            unknown="the kernel does not tell, or the size of the weights cannot be read",
            remedies=(
                "leave --no-mmap and --mlock out",
                "raise MemoryMax= of the unit that is named",
            ),
        ),
    )

    kind: Literal["ram"] = "ram"
    copied: tuple[str, ...] = ()
    """Model files that are read into memory of the host as a whole."""
    production: tuple[ExpectedOwner, ...] = ()
    """Services that will be down, and give back what is theirs alone."""

    @property
    def subject(self) -> str:
        """The host's, not the GPU's."""
        return "memory of the host"

    def look(self, box: Box) -> Verdict:
        """What is available, what production gives back, what a control group allows."""
        time = Deadline(self.deadline_s)
        (text,) = box.texts([_MEMINFO], within=time.left())
        rows = {name: int(kib) >> 10 for name, kib in _ROW.findall(text.text)}
        available = rows.get("MemAvailable")
        if available is None:
            found = f"the kernel does not tell what is free: {text.said or 'no MemAvailable'}"
            return self._says(State.UNKNOWN, found, remedy=f"try: cat {_MEMINFO}")
        facts = box.files(self.copied, within=time.left()) if self.copied else ()
        blind = [fact for fact in facts if fact.fault]
        if blind:
            state = State.UNKNOWN if blind[0].fault == TIMEOUT else State.FAIL
            found = (
                f"the size of {blind[0].path} cannot be read ({blind[0].said or blind[0].fault})"
            )
            return self._says(state, found)
        need = sum(fact.size for fact in facts) >> 20
        back = self._given_back(box, time)
        sums = f"{memory(available)} available"
        sums += f" + production {memory(back)}" if back else ""
        room = available + back - _HEADROOM_MIB
        short = self._short(box, need, room, sums, time)
        swapped = rows.get("SwapTotal", 0) - rows.get("SwapFree", 0)
        return short or self._tight(need, room, sums, swapped)

    def _short(self, box: Box, need: int, room: int, sums: str, time: Deadline) -> Verdict | None:
        """What cannot be; None when it fits."""
        if not need:
            return None
        if need > room:
            found = f"{sums}, {memory(need)} are copied or locked"
            return self._says(State.FAIL, found, remedy="leave --no-mmap and --mlock out")
        limit, where = _limit(box, time)
        if need > limit - _HEADROOM_MIB:
            found = f"{where} allows {memory(limit)}, {memory(need)} are copied or locked"
            return self._says(State.FAIL, found, remedy=f"raise MemoryMax of {where}")
        return None

    def _tight(self, need: int, room: int, sums: str, swapped: int) -> Verdict:
        """It fits; a machine that swaps, or is nearly full, is slow all the same."""
        if swapped > _SWAPPING_MIB:
            found = f"{sums}, {memory(swapped)} of swap in use"
            return self._says(State.WARN, found, remedy="see what was swapped out: it slows all")
        if room < 0:
            return self._says(State.WARN, f"only {sums}", remedy="see what takes it")
        copied = f"{memory(need)} are" if need else "nothing is"
        return self._says(State.PASS, f"{sums}, {copied} copied or locked")

    def _given_back(self, box: Box, time: Deadline) -> int:
        """MiB that production's processes hold for themselves alone."""
        family = frozenset[int]().union(*(service.family(box) for service in self.production))
        return resident(box, family, within=time.left()) if self.copied else 0

    def _says(self, state: State, found: str, *, remedy: str = "") -> Verdict:
        return self.says(state, found, wanted="room for what is copied or locked", remedy=remedy)


def resident(box: Box, pids: Iterable[int], *, within: float) -> int:
    """MiB that these processes hold for themselves alone; what they map from files is the cache's."""
    texts = box.texts([f"/proc/{pid}/status" for pid in sorted(pids)], within=within)
    rows = (dict(_ROW.findall(text.text)) for text in texts)
    return sum(int(row.get("RssAnon", 0)) for row in rows) >> 10


def _limit(box: Box, time: Deadline) -> tuple[int, str]:
    """The tightest memory limit of our control group and those above it, in MiB, and whose it is."""
    path = (box.me().cgroup or "/").rstrip("/")
    above: list[str] = []
    while path:
        above.append(path)
        path = path.rpartition("/")[0]
    places = [f"/sys/fs/cgroup{one}/memory.max" for one in above]
    found = (_NO_LIMIT, "")
    for one, text in zip(above, box.texts(places, within=time.left()), strict=True):
        said = text.text.strip()
        if said.isdigit() and int(said) >> 20 < found[0]:
            found = (int(said) >> 20, one.rpartition("/")[2])
    return found
