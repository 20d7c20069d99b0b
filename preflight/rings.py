"""Looks ring by ring, smallest blast radius first, and hands out the permission to stop.

The ring that refuses is finished, so that one alert names everything; outer rings are skipped. It
must not know what is stopped afterwards, or how.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Annotated

from pydantic import Field

from preflight.box import Box
from preflight.check import Check
from preflight.files.access import MayRead
from preflight.files.exists import FileExists
from preflight.files.pins import Pinned
from preflight.files.unchanged import Unchanged
from preflight.given import Given
from preflight.gpu.budget import GpuBudget
from preflight.gpu.driver import GpuDriver, GpuPending
from preflight.gpu.health import GpuHealthy
from preflight.gpu.identity import GpuIdentity
from preflight.host.flags import Flags
from preflight.host.limits import HostLimits
from preflight.host.others import OthersAtWork
from preflight.host.pressure import Quiet
from preflight.host.ram import HostRam
from preflight.host.room import Binary, DiskSpace, StateDir
from preflight.host.timing import ClockKept, StaysUp
from preflight.models.roles import Roles
from preflight.models.safetensors_whole import SafetensorsWhole
from preflight.models.shards import Shards
from preflight.ports.activation import Activation
from preflight.ports.containers import Published
from preflight.ports.leftover import Leftovers
from preflight.ports.owner import PortOwner
from preflight.production.back import WayBack
from preflight.production.busy import Busy
from preflight.production.control import MayControl
from preflight.production.dependents import Dependents
from preflight.production.serves import ProductionServes
from preflight.production.stoptime import StopTime
from preflight.verdict import BlastRadius, State, Verdict, accept

AnyCheck = Annotated[
    Activation
    | Binary
    | Busy
    | ClockKept
    | Dependents
    | DiskSpace
    | FileExists
    | Flags
    | Given
    | GpuBudget
    | GpuDriver
    | GpuHealthy
    | GpuIdentity
    | GpuPending
    | HostLimits
    | HostRam
    | Leftovers
    | MayControl
    | MayRead
    | OthersAtWork
    | Pinned
    | PortOwner
    | ProductionServes
    | Published
    | Quiet
    | Roles
    | SafetensorsWhole
    | Shards
    | StateDir
    | StaysUp
    | StopTime
    | Unchanged
    | WayBack,
    Field(discriminator="kind"),
]
"""The table of kinds: a new check is one file and one line here."""

FRESH_S = 10.0
"""A gate older than this opens nothing, in seconds of CLOCK_BOOTTIME."""

_SEAL = object()


@dataclass(frozen=True, slots=True)
class Asked:
    """A check of a pass, and what it saw."""

    check: Check
    verdict: Verdict


class Pass:
    """Proof that every check consented. Only `look` can make one."""

    __slots__ = ("_asked", "accepted")

    def __init__(
        self, asked: Iterable[Asked], accepted: Mapping[str, str], *, seal: object
    ) -> None:
        if seal is not _SEAL:
            raise TypeError("a Pass comes from preflight.rings.look, and from nowhere else")
        self._asked = tuple(asked)
        self.accepted = dict(accepted)

    @property
    def asked(self) -> tuple[Asked, ...]:
        """Every check with what it saw, for the gate."""
        return self._asked

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """The answers, in the order of asking."""
        return tuple(one.verdict for one in self._asked)


class Gate:
    """Proof that the cheap checks were asked again, and when that ended. Only `gate` makes one."""

    __slots__ = ("_ended_at", "_passed")

    def __init__(self, passed: Pass, ended_at: float, *, seal: object) -> None:
        if seal is not _SEAL:
            raise TypeError("a Gate comes from preflight.rings.gate, and from nowhere else")
        self._passed = passed
        self._ended_at = ended_at

    @property
    def ended_at(self) -> float:
        """When the look ended, in seconds of CLOCK_BOOTTIME."""
        return self._ended_at

    @property
    def passed(self) -> Pass:
        """The pass that this gate re-checked."""
        return self._passed

    def fresh(self, now: float) -> bool:
        """Whether production may still be stopped on it."""
        return 0 <= now - self._ended_at < FRESH_S


@dataclass(frozen=True, slots=True)
class Looked:
    """All answers, and a Pass if they consent."""

    verdicts: tuple[Verdict, ...]
    passed: Pass | None

    @property
    def refused(self) -> tuple[Verdict, ...]:
        """The answers that refuse, first the smallest blast radius."""
        return tuple(verdict for verdict in self.verdicts if verdict.refuses)


def _ask(check: Check, box: Box, accepted: Mapping[str, str]) -> Verdict:
    began = time.monotonic()
    try:
        verdict = check.look(box)
    except Exception as error:  # noqa: BLE001 - our own bug must block a stop, not end the look
        verdict = check.says(
            State.UNKNOWN,
            f"this check failed by a fault of its own ({type(error).__name__}: {error})",
            wanted="an answer",
            remedy="report it; until it is mended this look proves nothing",
        )
    verdict = replace(verdict, took_ms=(time.monotonic() - began) * 1000)
    reason = accepted.get(verdict.id)
    if verdict.state is not State.UNKNOWN or reason is None:
        return verdict
    if check.acceptable:
        return accept(verdict, reason)
    refusal = "an unknown about production's own way back is never accepted"
    return replace(verdict, evidence=(*verdict.evidence, refusal))


def _skipped(check: Check, ring: str, box: Box) -> Verdict:
    """Not judged any more; but what lies in plain sight is named, so that one alert says it all."""
    skipped = f"not looked at: the {ring} before it refused"
    try:
        passing = check.glance(box)
    except Exception:  # noqa: BLE001 - a glance is a courtesy; nothing depends on it
        passing = None
    if passing is None:
        return check.says(State.SKIPPED, skipped, wanted="")
    return check.says(
        State.SKIPPED,
        f"{skipped}; seen in passing: {passing.found}",
        wanted=passing.wanted,
        remedy=passing.remedy,
        who=passing.who,
        evidence=passing.evidence,
    )


def look(
    checks: Sequence[Check],
    box: Box,
    *,
    accept: Mapping[str, str] | None = None,
    on_verdict: Callable[[Verdict], None] | None = None,
) -> Looked:
    """Ask every check, ring by ring; stop after the first ring that refuses.

    `accept` maps a check's id to the reason for which its unknown is accepted. A check that fails
    by a bug of its own is an unknown that says so.
    """
    accepted = dict(accept or {})
    asked: list[Asked] = []
    refusing = ""
    for radius, ring in groupby(sorted(checks, key=_place), _radius):
        before = refusing
        with box.moment():
            for check in ring:
                verdict = _skipped(check, before, box) if before else _ask(check, box, accepted)
                asked.append(Asked(check, verdict))
                if on_verdict is not None:
                    on_verdict(verdict)
                if verdict.refuses and not refusing:
                    refusing = f"{radius.name.lower()} ring"
    passed = None if refusing else Pass(asked, accepted, seal=_SEAL)
    return Looked(tuple(one.verdict for one in asked), passed)


def _changed(check: Check, before: Verdict, now: Verdict) -> Verdict:
    return check.says(
        State.FAIL,
        "changed since it was checked a moment ago",
        wanted="what was checked",
        remedy="run it again; if it refuses again, see who is working on this box",
        evidence=(f"then: {before.found}", f"now: {now.found}"),
        id="gate.recheck",
    )


def gate(passed: Pass, box: Box, clock_now: Callable[[], float]) -> Gate | tuple[Verdict, ...]:
    """Ask the cheap checks again, right before the stop: a Gate, or the answers that refuse.

    What changed since its check refuses too, even if it is in order again: somebody is at work.
    """
    refused: list[Verdict] = []
    with box.moment():
        for one in passed.asked:
            if not one.check.cheap:
                continue
            now = _ask(one.check.hurried(), box, passed.accepted)
            if now.refuses:
                refused.append(now)
            elif now.seen != one.verdict.seen:
                refused.append(_changed(one.check, one.verdict, now))
    return tuple(refused) if refused else Gate(passed, clock_now(), seal=_SEAL)


def _place(check: Check) -> tuple[BlastRadius, int]:
    return check.radius, check.rank


def _radius(check: Check) -> BlastRadius:
    return check.radius
