"""How a run can end, and the one table of exit codes. Standard library only; knows no run."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType

USAGE = 2
"""The exit code of a usage or configuration error: nothing was touched."""


class Outcome(StrEnum):
    """How a run ended; its text is what JSON, journal and alerts say."""

    PROVEN = "proven"
    REFUSED = "refused"
    SKIPPED = "skipped"
    BROKEN = "broken"
    REFUTED = "refuted"
    PRODUCTION_DOWN = "production down"
    BUG = "bug"
    INTERRUPTED = "interrupted"


_CODES = MappingProxyType(
    {
        Outcome.PROVEN: 0,
        Outcome.REFUSED: 3,
        Outcome.SKIPPED: 4,
        Outcome.BROKEN: 5,
        Outcome.REFUTED: 6,
        Outcome.PRODUCTION_DOWN: 10,
        Outcome.BUG: 70,
    }
)
_INTERRUPTED: Mapping[str, int] = MappingProxyType(
    {"HUP": 129, "INT": 130, "TERM": 143, "KILL": 137}
)

MEANINGS: Mapping[int, tuple[str, str]] = MappingProxyType(
    {
        0: ("proven", "every claim proven; production is back"),
        2: ("-", "usage or configuration error; nothing was touched"),
        3: ("refused", "preflight said no; production was never touched"),
        4: ("skipped", "busy, paused, drained, missed or not applicable"),
        5: ("broken", "the candidate could not run; production is back"),
        6: (
            "refuted",
            "it ran; a claim was refuted, contradicted or stayed unproven; production is back",
        ),
        10: (
            "production down",
            "production is not serving as before (down or degraded); outranks all others",
        ),
        70: ("bug", "a fault of the runner; production is back"),
        129: ("interrupted", "by HUP; production is back"),
        130: ("interrupted", "by INT or `runner cancel`; production is back"),
        137: ("interrupted", "killed or rebooted; written by recovery"),
        143: ("interrupted", "by TERM; production is back"),
    }
)
"""Exit code -> (outcome, meaning). Anything else, 1 included: it died before it could say."""

_WORST_FIRST = (
    Outcome.PRODUCTION_DOWN,
    Outcome.BUG,
    Outcome.INTERRUPTED,
    Outcome.BROKEN,
    Outcome.REFUTED,
    Outcome.REFUSED,
    Outcome.SKIPPED,
    Outcome.PROVEN,
)


def exit_code(outcome: Outcome, signal: str = "INT") -> int:
    """The exit code of an outcome; `signal` (HUP, INT, TERM, KILL) tells interruptions apart."""
    if outcome is Outcome.INTERRUPTED:
        return _INTERRUPTED[signal.upper().removeprefix("SIG")]
    return _CODES[outcome]


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """The outcome that outranks the others; production down outranks them all."""
    return min(outcomes, key=_WORST_FIRST.index)
