"""Evidence and samples of made-up runs, for the tests of claims."""

from dataclasses import replace
from typing import Any

from jobs.evidence import Evidence
from jobs.samples import Sample

DRAFTED, ACCEPTED = (
    "delta.spec_decode_num_draft_tokens_total",
    "delta.spec_decode_num_accepted_tokens_total",
)
STEPS = "delta.spec_decode_num_drafts_total"
POSITION = "delta.spec_decode_num_accepted_tokens_per_pos_total"
STATISTICS = Evidence(
    "log.statistics.draft-mtp", "log:candidate.log", "statistics draft-mtp: …", 335
)
N_MAX = Evidence("log.speculation.n_max", "log:candidate.log", "- n_max=3, …", 3)


def evidence(kind: str, value: Any, said: str = "", source: str = "GET /metrics") -> Evidence:
    """One piece of evidence."""
    return Evidence(kind, source, said or f"{kind} {value}", value, "2026-01-01T00:00:00+00:00")


def counters(drafted: float, accepted: float, steps: float = 0) -> list[Evidence]:
    """How far the server's own counters moved."""
    found = [evidence(DRAFTED, drafted), evidence(ACCEPTED, accepted)]
    return [*found, evidence(STEPS, steps)] if steps else found


def reply(drafted: int | None = None, accepted: int | None = None, **more: Any) -> Sample:
    """One measured reply."""
    base = Sample(
        "candidate", "candidate/prose/t0/1", 0.0, "prose", asked=64, prompt_n=20, cache_n=0,
        predicted_n=64, predicted_ms=1000.0, drafted=drafted, accepted=accepted,
        at="2026-01-01T00:00:01+00:00",
    )  # fmt: skip
    return replace(base, **more)


def speeds(arm: str, rates: list[float], **more: Any) -> list[Sample]:
    """Replies of an arm at these tokens per second."""
    return [reply(arm=arm, predicted_n=65, predicted_ms=64_000 / rate, **more) for rate in rates]
