"""The claim that speculation really ran: drafts were made and accepted, by counters that agree.

A flag proves nothing, nor does the echo of one. Drafts are counted twice, in the timings of each
reply and in the server's own counters, and both must tell the same story."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from pydantic import Field

from jobs.claims.base import Claim, ClaimState, Judged, counted
from jobs.evidence import Evidence, number, of
from jobs.fields import Share, Temperature
from jobs.samples import Sample, measured
from jobs.stats import pooled

FEWEST_REPLIES = 3

_DRAFTED = "delta.spec_decode_num_draft_tokens_total"
_ACCEPTED = "delta.spec_decode_num_accepted_tokens_total"
_STEPS = "delta.spec_decode_num_drafts_total"
_POSITION = "delta.spec_decode_num_accepted_tokens_per_pos_total"
_PLACE = re.compile(re.escape(_POSITION) + r'\{position="(\d+)"\}')
_AGAINST = ("log.speculation.off",)
_AGAINST_MTP = (*_AGAINST, "log.speculation.no_mtp", "log.speculation.mtp_unused")
_CLOSE = 1e-9


@dataclass(frozen=True)
class _Counts:
    """Both counts of the candidate's drafts: what the replies say, and how far its counters moved."""

    replies: int
    drafted: int
    accepted: int
    moved_drafted: float | None
    moved_accepted: float | None
    steps: float | None
    positions: tuple[float, ...]
    complete: bool
    n_max: float | None

    @property
    def ran(self) -> bool:
        return self.drafted > 0 or (self.moved_drafted or 0) > 0


class Speculation(Claim):
    """Drafts were made and accepted."""

    kind: Literal["speculation"] = "speculation"
    type: str | None = Field(
        default=None,
        pattern=r"^[a-z0-9-]+$",
        description="The implementation that must have drafted, such as draft-mtp.",
    )
    acceptance_at_least: Share | None = Field(
        default=None,
        description="Least share of drafted tokens that were accepted, over all measured replies.",
    )
    temperature: Temperature | None = Field(
        default=None, description="Only replies at this temperature count for the acceptance."
    )

    @property
    def wanted(self) -> str:
        """Drafts, and how many of them accepted."""
        what = f"{self.type} drafts" if self.type else "drafts"
        rate = self.acceptance_at_least
        return f"{what} made and accepted" + (
            "" if rate is None else f", at least {rate:g} of them"
        )

    def judge(self, evidence: Sequence[Evidence], samples: Sequence[Sample]) -> Judged:
        """Counters first, then whether they agree, then the implementation, then the acceptance."""
        counts = _count(evidence, samples)
        against = _against(evidence, self.type)
        shown = [*_shown(counts, evidence, samples), *against]
        numbers = {
            "drafted": counts.drafted,
            "accepted": counts.accepted,
            "moved_drafted": counts.moved_drafted,
            "moved_accepted": counts.moved_accepted,
            "replies": counts.replies,
        }
        found = f"{counts.drafted} drafted, {counts.accepted} accepted in {counts.replies} replies"
        if not counts.ran:
            state, why = _silent(evidence, counts, against)
            return self.says(state, why, f"{state}: {why}", shown, **numbers)
        if wrong := _disagreement(evidence, counts, against):
            said = f"contradicted: {'; '.join(wrong)}"
            return self.says(ClaimState.CONTRADICTED, "; ".join(wrong), said, shown, **numbers)
        if missing := _missing(evidence, counts):
            return self.says(ClaimState.UNPROVEN, found, f"unproven: {missing}", shown, **numbers)
        if counts.accepted == 0 and not counts.moved_accepted:
            why = f"{counts.drafted:,} tokens were drafted and none accepted"
            return self.says(ClaimState.REFUTED, found, f"refuted: {why}", shown, **numbers)
        typed = _typed(evidence, self.type)
        shown += typed.evidence
        if typed.state is not ClaimState.PROVEN:
            return self.says(typed.state, found, f"{typed.state}: {typed.why}", shown, **numbers)
        return self._acceptance(samples, found, shown, numbers)

    def _acceptance(
        self,
        samples: Sequence[Sample],
        found: str,
        shown: Sequence[Evidence],
        numbers: Mapping[str, object],
    ) -> Judged:
        replies = [
            sample
            for sample in measured(samples, "candidate")
            if self.temperature is None or sample.temperature == self.temperature
        ]
        accepted, drafted, rate = pooled(
            (sample.accepted or 0, sample.drafted or 0) for sample in replies
        )
        numbers = {**numbers, "acceptance": rate}
        kind = f"{self.type} " if self.type else ""
        told = "" if rate is None else f", acceptance {rate:.2f} ({accepted:,} of {drafted:,})"
        wanted = self.acceptance_at_least
        if wanted is not None and rate is None:
            why = "unproven: the replies do not count drafts, so there is no acceptance"
            return self.says(ClaimState.UNPROVEN, found, why, shown, **numbers)
        if wanted is not None and rate is not None and rate < wanted - _CLOSE:
            why = f"refuted: {kind}speculation ran{told}, wanted at least {wanted:g}"
            return self.says(
                ClaimState.REFUTED, f"{found}, acceptance {rate:.3f}", why, shown, **numbers
            )
        share = "" if rate is None else f", acceptance {rate:.3f}"
        return self.says(
            ClaimState.PROVEN, found + share, f"{kind}speculation ran{told}", shown, **numbers
        )


def _count(evidence: Sequence[Evidence], samples: Sequence[Sample]) -> _Counts:
    mine = [sample for sample in samples if sample.arm == "candidate"]
    drafting = [sample for sample in mine if sample.drafted]
    positions = sorted(
        (int(place.group(1)), float(item.value))
        for item in evidence
        if item.arm == "candidate"
        and (place := _PLACE.fullmatch(item.kind))
        and isinstance(item.value, int | float)
    )
    limits = [
        float(item.value)
        for item in of(evidence, "log.speculation.n_max")
        if isinstance(item.value, int | float)
    ]
    return _Counts(
        replies=len(drafting),
        drafted=sum(sample.drafted or 0 for sample in mine),
        accepted=sum(sample.accepted or 0 for sample in mine),
        moved_drafted=number(evidence, _DRAFTED),
        moved_accepted=number(evidence, _ACCEPTED),
        steps=number(evidence, _STEPS),
        positions=tuple(value for _, value in positions),
        complete=all(sample.predicted_n is not None for sample in mine),
        n_max=max(limits, default=None),
    )


def _shown(
    counts: _Counts, evidence: Sequence[Evidence], samples: Sequence[Sample]
) -> list[Evidence]:
    drafting = [sample for sample in samples if sample.arm == "candidate" and sample.drafted]
    drafted, accepted = counts.drafted, counts.accepted
    replies = [
        counted("drafted", f"draft_n adds up to {drafted}", drafted, drafting),
        counted("accepted", f"draft_n_accepted adds up to {accepted}", accepted, drafting),
    ]
    pages = [
        item
        for kind in (_DRAFTED, _ACCEPTED, _STEPS, "metrics.absent", "slot.speculative")
        for item in of(evidence, kind)[-1:]
    ]
    return [*(replies if drafting else ()), *pages]


def _against(evidence: Sequence[Evidence], kind: str | None) -> list[Evidence]:
    """Lines of the log that say speculation is off; an unused MTP layer matters where MTP is meant."""
    tags = _AGAINST_MTP if kind == "draft-mtp" else _AGAINST
    lines = [item for tag in tags for item in of(evidence, tag)[:1]]
    return [*lines, *of(evidence, "log.speculation.synthetic")[:1]]


def _silent(
    evidence: Sequence[Evidence], counts: _Counts, against: Sequence[Evidence]
) -> tuple[ClaimState, str]:
    """Nobody counted a draft: is that a nought, or is nobody counting?"""
    line = f"; the log says: {against[0].said}" if against else ""
    if counts.moved_drafted is not None:
        return ClaimState.REFUTED, f"not active: the server counted 0 drafted tokens{line}"
    if any(item.value is False for item in of(evidence, "slot.speculative")):
        return ClaimState.REFUTED, f"not active: /slots says speculative = false{line}"
    if against:
        return ClaimState.REFUTED, f"not active; the log says: {against[0].said}"
    return ClaimState.UNPROVEN, "no counter of drafted tokens on this server"


def _disagreement(
    evidence: Sequence[Evidence], counts: _Counts, against: Sequence[Evidence]
) -> list[str]:
    """Everything by which the counters give each other the lie."""
    wrong = [f"drafts are counted, yet the log says: {item.said}" for item in against]
    if counts.drafted and any(item.value is False for item in of(evidence, "slot.speculative")):
        wrong.append("drafts are counted, yet /slots says speculative = false")
    for name, drafted, accepted in (
        ("the replies", counts.drafted, counts.accepted),
        ("the counters", counts.moved_drafted, counts.moved_accepted),
    ):
        if drafted is not None and accepted is not None and accepted > drafted:
            wrong.append(f"{name} accepted {accepted:g} of {drafted:g} drafted tokens")
    wrong += _two_counts(counts)
    wrong += _steps(counts)
    return wrong


def _two_counts(counts: _Counts) -> list[str]:
    """Replies and counters must agree; a reply that never came may have moved the counters too."""
    wrong = []
    for name, replies, moved in (
        ("drafted", counts.drafted, counts.moved_drafted),
        ("accepted", counts.accepted, counts.moved_accepted),
    ):
        if moved is None or (counts.replies == 0 and moved > 0):
            continue
        if moved < replies or (counts.complete and moved != replies):
            wrong.append(f"the replies count {replies} {name} tokens, the server {moved:g}")
    return wrong


def _steps(counts: _Counts) -> list[str]:
    """What verification steps and positions allow: a lie detector that costs nothing."""
    drafted, accepted, steps = counts.moved_drafted, counts.moved_accepted, counts.steps
    wrong = []
    if steps and drafted is not None and counts.n_max:
        if drafted / steps > counts.n_max + _CLOSE:
            wrong.append(f"{drafted:g} tokens in {steps:g} drafts of at most {counts.n_max:g}")
    elif drafted and steps == 0:
        wrong.append(f"{drafted:g} tokens in no draft at all")
    places = counts.positions
    if places and accepted is not None and sum(places) != accepted:
        wrong.append(f"positions add up to {sum(places):g} accepted tokens, counted {accepted:g}")
    if any(later > earlier for earlier, later in pairwise(places)):
        wrong.append("a later draft position was accepted more often than an earlier one")
    return wrong


def _missing(evidence: Sequence[Evidence], counts: _Counts) -> str:
    """Which of the two counts is missing though this kind of server has it."""
    if absent := of(evidence, "metrics.absent"):
        return f"only the replies count drafts; /metrics: {absent[-1].said}"
    if 0 < counts.replies < FEWEST_REPLIES:
        return f"only {counts.replies} replies drafted, at least {FEWEST_REPLIES} are needed"
    return ""


@dataclass(frozen=True)
class _Typed:
    state: ClaimState
    why: str = ""
    evidence: tuple[Evidence, ...] = ()


def _typed(evidence: Sequence[Evidence], kind: str | None) -> _Typed:
    """Which implementation drafted, by its own `statistics` line: the counters do not tell them apart."""
    if kind is None:
        return _Typed(ClaimState.PROVEN)
    lines = {
        item.kind.removeprefix("log.statistics."): item
        for item in evidence
        if item.arm == "candidate" and item.kind.startswith("log.statistics.")
    }
    ran = tuple(name for name, item in lines.items() if item.value)
    if kind in ran:
        return _Typed(ClaimState.PROVEN, evidence=(lines[kind],))
    if ran:
        others = tuple(lines[name] for name in ran)
        return _Typed(ClaimState.REFUTED, f"{', '.join(ran)} drafted, not {kind}", others)
    return _Typed(
        ClaimState.UNPROVEN,
        f"drafts are counted, but no line of the log says that {kind} made them",
    )
