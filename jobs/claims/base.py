"""A sentence that a job wants proven, and what the evidence makes of it. Pure; asks nobody."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from jobs.evidence import Evidence
from jobs.fields import Model
from jobs.samples import Sample


class ClaimState(StrEnum):
    """What became of a claim."""

    PROVEN = "proven"
    """Counters, answers or measurements of this run show it."""
    REFUTED = "refuted"
    """They show the opposite."""
    UNPROVEN = "unproven"
    """They show neither."""
    CONTRADICTED = "contradicted"
    """They disagree with each other, so none of them is believed."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A claim with its state: `said` for people, `wanted` and `found` side by side, and why.

    `numbers` are the figures behind the words, for programs.
    """

    kind: str
    state: ClaimState
    said: str
    wanted: str
    found: str
    evidence: tuple[Evidence, ...] = ()
    numbers: dict[str, object] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        """The judgement as plain JSON."""
        return {
            "kind": self.kind,
            "state": str(self.state),
            "said": self.said,
            "wanted": self.wanted,
            "found": self.found,
            "numbers": self.numbers,
            "evidence": [item.to_json() for item in self.evidence],
        }


class Claim(Model, ABC):
    """One sentence to prove; a kind is a subclass with its own `kind`."""

    kind: str

    @property
    @abstractmethod
    def wanted(self) -> str:
        """What must be shown, in words."""

    @abstractmethod
    def judge(self, evidence: Sequence[Evidence], samples: Sequence[Sample]) -> Judged:
        """Weigh what was seen; the same evidence always gives the same judgement."""

    def says(
        self,
        state: ClaimState,
        found: str,
        why: str,
        evidence: Sequence[Evidence] = (),
        **numbers: object,
    ) -> Judged:
        """A judgement of this claim; `why` is the sentence for people."""
        known = {name: value for name, value in numbers.items() if value is not None}
        return Judged(self.kind, state, why, self.wanted, found, tuple(evidence), known)


def counted(
    kind: str, said: str, value: float, samples: Sequence[Sample], source: str = ""
) -> Evidence:
    """Evidence that was added up from these replies; its time is that of the last of them."""
    named = source or f"timings of {len(samples)} {'reply' if len(samples) == 1 else 'replies'}"
    return Evidence(kind, named, said, value, max((one.at for one in samples), default=""))


def percent(share: float) -> str:
    """A share as a whole percentage, or with a decimal where a whole one would say nought."""
    return f"{share * 100:.0f} %" if share >= 0.1 or share == 0 else f"{share * 100:.1f} %"
