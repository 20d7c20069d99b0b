"""Limits of processes: what may be locked, how many files, and what a crash would write.

A candidate is started with our own limits, and so is production where it is a plain process. Above
its limit llama-server only warns and measures something else (llama-mmap.cpp), so this refuses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal, NamedTuple

from preflight.box import Box, Text
from preflight.check import Check, Deadline, Explained
from preflight.files.paths import Trouble
from preflight.verdict import BlastRadius, State, Verdict
from preflight.wording import size

_OWN, _STATUS, _CORE = "/proc/self/limits", "/proc/self/status", "/proc/sys/kernel/core_pattern"
_ROW = re.compile(r"^Max (.+?)\s{2,}(\S+)\s+(\S+)", re.MULTILINE)
_CAPABILITIES = re.compile(r"^CapEff:\s*([0-9a-f]+)", re.MULTILINE)
_MAY_LOCK = 14  # CAP_IPC_LOCK
_LOCKED, _FILES, _CORES = "locked memory", "open files", "core file size"
_ORDER = (State.FAIL, State.UNKNOWN, State.WARN)


class _Live(NamedTuple):
    name: str
    pid: int
    locks: bool


class HostLimits(Check):
    """The limits that candidate and production will be started with are those that they need."""

    id: ClassVar[str] = "host.limits"
    radius: ClassVar[BlastRadius] = BlastRadius.HOST
    explains: ClassVar[tuple[Explained, ...]] = (
        Explained(
            "host.limits",
            reads="our own limits (/proc/self/limits), which candidate and a plain production "
            "inherit, those of the live production, and /proc/sys/kernel/core_pattern",
            passes="what is locked may be locked, and production would come back with its limits",
            warns="a crash may write a core file without limit; production would come back with "
            "fewer open files than it has now",
            fails="--mlock is above the limit of locked memory: the server would only warn",
            unknown="the limits or the size of the weights cannot be read",
            remedies=("LimitMEMLOCK=infinity in the runner's unit, or ulimit -l unlimited",),
        ),
    )

    kind: Literal["limits"] = "limits"
    locked: tuple[str, ...] = ()
    """Model files that the candidate locks in memory."""
    processes: tuple[tuple[str, int, bool], ...] = ()
    """Services that are plain processes: name, pid, whether they lock their weights."""

    @property
    def subject(self) -> str:
        """Those that are handed on."""
        return "limits of this process"

    def look(self, box: Box) -> Verdict:
        """Ours beside what is needed and what production has."""
        time = Deadline(self.deadline_s)
        live = [_Live(*one) for one in self.processes]
        paths = [_OWN, _STATUS, _CORE, *(f"/proc/{one.pid}/limits" for one in live)]
        own, status, core, *theirs = box.texts(paths, within=time.left())
        wanted = "the limits that are needed"
        ours = _limits(own)
        if not ours:
            found = f"our own limits cannot be read: {own.said or 'no rows'}"
            return self.says(State.UNKNOWN, found, wanted=wanted, remedy=f"try: cat {_OWN}")
        troubles = [
            *self._locking(box, ours, status, time),
            *_coming_back(ours, list(zip(live, map(_limits, theirs), strict=True)), status),
            *_cores(ours, core),
        ]
        if not troubles:
            return self.says(State.PASS, "as needed", wanted=wanted)
        state, found, remedy = min(troubles, key=lambda trouble: _ORDER.index(trouble.state))
        others = tuple(one.found for one in troubles if one.found != found)
        return self.says(state, found, wanted=wanted, remedy=remedy, evidence=others)

    def _locking(
        self, box: Box, ours: Mapping[str, float], status: Text, time: Deadline
    ) -> Iterator[Trouble]:
        if not self.locked or _may_lock(status):
            return
        facts = box.files(self.locked, within=time.left())
        blind = [fact for fact in facts if fact.fault]
        if blind:
            found = f"the size of {blind[0].path} cannot be read"
            yield Trouble(State.UNKNOWN, found, "see file.exists")
            return
        need, limit = sum(fact.size for fact in facts), ours.get(_LOCKED, float("inf"))
        if need > limit:
            found = f"--mlock wants {size(need)}, and {size(int(limit))} may be locked"
            yield Trouble(
                State.FAIL,
                f"{found}: the server would only warn",
                "LimitMEMLOCK=infinity, or no --mlock",
            )


def _coming_back(
    ours: Mapping[str, float], live: list[tuple[_Live, Mapping[str, float]]], status: Text
) -> Iterator[Trouble]:
    """A plain production comes back with our limits, not with those it has."""
    for one, theirs in live:
        here, there = ours.get(_LOCKED, 0.0), theirs.get(_LOCKED, 0.0)
        if one.locks and here < there and not _may_lock(status):
            found = f"{one.name} locks its weights, and started from here it could not"
            yield Trouble(State.FAIL, found, "raise our limit: LimitMEMLOCK=infinity, ulimit -l")
        here, there = ours.get(_FILES, 0.0), theirs.get(_FILES, 0.0)
        if here < there:
            found = f"{one.name} may open {there:g} files, and started from here {here:g}"
            yield Trouble(State.WARN, found, "raise our limit: LimitNOFILE=, ulimit -n")


def _cores(ours: Mapping[str, float], pattern: Text) -> Iterator[Trouble]:
    """A core file is as large as all of a server's memory; a program that takes them has limits."""
    unlimited = ours.get(_CORES, 0.0) == float("inf")
    if unlimited and not pattern.text.startswith("|") and pattern.text.strip():
        found = "a crash of the candidate may write a core file as large as its memory"
        yield Trouble(State.WARN, found, "ulimit -c 0, or LimitCORE=0 in the runner's unit")


def _may_lock(status: Text) -> bool:
    found = _CAPABILITIES.search(status.text)
    return found is not None and bool(int(found[1], 16) >> _MAY_LOCK & 1)


def _limits(text: Text) -> dict[str, float]:
    """Name → soft limit, from proc_pid_limits(5)."""
    return {
        name: float("inf") if soft == "unlimited" else float(soft)
        for name, soft, _ in _ROW.findall(text.text)
        if soft == "unlimited" or soft.isdigit()
    }
