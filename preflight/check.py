"""One question to the Box: the shape that all checks share. It must not know any single one."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from preflight.box import Box
from preflight.verdict import BlastRadius, State, Verdict

GATE_DEADLINE_S = 2.0
"""How long the gate gives each of the cheap checks, in seconds."""


@dataclass(frozen=True, slots=True)
class Explained:
    """What a person asks about one id: what is read, how it comes out, what helps.

    `runner explain` and the reference are made of it, so it stands where the rules themselves do.
    A rule that is empty cannot come out.
    """

    id: str
    reads: str
    passes: str
    warns: str = ""
    fails: str = ""
    unknown: str = ""
    skipped: str = ""
    remedies: tuple[str, ...] = ()
    about: str = ""
    """What it is about, where that is not what its check says of itself."""


class Check(BaseModel, ABC):
    """A question with its blast radius, its own deadline and one verb."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: ClassVar[str]
    radius: ClassVar[BlastRadius]
    rank: ClassVar[int] = 50
    """Its place in its ring: what others rest on is asked first."""
    cheap: ClassVar[bool] = False
    """Whether the gate asks it again right before the stop."""
    explains: ClassVar[tuple[Explained, ...]] = ()
    """Every id that this check reports, in words."""

    kind: str
    deadline_s: float = 5.0

    @property
    @abstractmethod
    def subject(self) -> str:
        """What is asked about: a file with its role, an address, a GPU, a service."""

    @property
    def reported(self) -> str:
        """The id its verdict carries."""
        return self.id

    @property
    def acceptable(self) -> bool:
        """Whether a person may accept an unknown here. Never for production's way back."""
        return True

    @abstractmethod
    def look(self, box: Box) -> Verdict:
        """Ask the Box. Bad news is a Verdict; an exception is a bug of ours."""

    def glance(self, box: Box) -> Verdict | None:  # noqa: ARG002 - most checks do not glance
        """Trouble that costs nothing to see, for the report when a smaller ring has refused.

        None where there is none, or where looking would ask anybody anything.
        """
        return None

    def hurried(self) -> Check:
        """The same question with the gate's deadline."""
        return self.model_copy(update={"deadline_s": min(self.deadline_s, GATE_DEADLINE_S)})

    def says(
        self,
        state: State,
        found: str,
        *,
        wanted: str,
        remedy: str = "",
        who: str = "",
        evidence: tuple[str, ...] = (),
        seen: str = "",
        id: str | None = None,  # noqa: A002 - the Verdict's own word
    ) -> Verdict:
        """A Verdict of this check; `took_ms` is filled in by whoever looked at the clock."""
        return Verdict(
            id=id or self.id,
            state=state,
            subject=self.subject,
            wanted=wanted,
            found=found,
            remedy=remedy,
            radius=self.radius,
            evidence=evidence,
            who=who,
            seen=seen,
        )


class Deadline:
    """What is left of a check's time, when it asks the Box more than once."""

    def __init__(self, within: float) -> None:
        self._ends = time.monotonic() + within

    def left(self) -> float:
        """Seconds, never negative."""
        return max(0.0, self._ends - time.monotonic())
