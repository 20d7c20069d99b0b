"""The answer to one question about the box. It knows nothing of how the answer was found."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum

from preflight.wording import printable, short_path

_ACCEPTED = "accepted: "


class State(StrEnum):
    """How a check came out. Only `pass` and `warn` are consent; unknown is not pass."""

    PASS = "pass"  # noqa: S105 - a state, not a password
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"
    SKIPPED = "skipped"


class BlastRadius(IntEnum):
    """How much a wrong answer would hurt, which is the order of asking."""

    SELF = 0
    FILES = 1
    PORTS = 2
    GPU = 3
    HOST = 4
    PRODUCTION = 5


@dataclass(frozen=True, slots=True)
class Verdict:
    """One answer: what was wanted, what was found, who is behind it, what to do."""

    id: str
    state: State
    subject: str
    wanted: str
    found: str
    remedy: str = ""
    radius: BlastRadius = BlastRadius.SELF
    took_ms: float = 0.0
    evidence: tuple[str, ...] = ()
    who: str = ""
    seen: str = ""
    """The facts as a fingerprint, for the gate to compare. Not part of the answer."""

    @property
    def accepted(self) -> str:
        """The reason for which a person accepted this unknown; empty when nobody did."""
        return next(
            (said[len(_ACCEPTED) :] for said in self.evidence if said.startswith(_ACCEPTED)), ""
        )

    @property
    def refuses(self) -> bool:
        """Whether production may not be stopped on this answer."""
        return self.state is State.FAIL or (self.state is State.UNKNOWN and not self.accepted)

    def message(self) -> str:
        """One line; its first 100 characters have to be enough on a phone."""
        subject = " ".join(
            short_path(word) if word.startswith("/") else word for word in self.subject.split(" ")
        )
        text = f"{self.state.value.upper()} {self.id}: {subject} — {self.found}"
        if self.wanted:
            text += f", wanted {self.wanted}"
        if self.who:
            text += f" [{self.who}]"
        if self.accepted:
            text += f" ({_ACCEPTED}{self.accepted})"
        if self.remedy:
            text += f" → {self.remedy}"
        return printable(text)

    def to_json(self) -> dict[str, object]:
        """Plain JSON, safe to print: no control characters in any of it."""
        return {
            "id": self.id,
            "state": self.state.value,
            "subject": printable(self.subject),
            "wanted": printable(self.wanted),
            "found": printable(self.found),
            "remedy": printable(self.remedy),
            "radius": self.radius.name.lower(),
            "took_ms": round(self.took_ms, 2),
            "evidence": [printable(said) for said in self.evidence],
            "who": printable(self.who),
            "message": self.message(),
        }


def accept(verdict: Verdict, reason: str) -> Verdict:
    """The same unknown, carrying the reason for which it blocks no more."""
    return replace(verdict, evidence=(*verdict.evidence, f"{_ACCEPTED}{reason}"))
