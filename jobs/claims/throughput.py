"""The claim of a speed: over a number, or faster than the baseline. From raw counts and server time."""

from collections.abc import Sequence
from statistics import median
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from jobs.claims.base import Claim, ClaimState, Judged, counted, percent
from jobs.evidence import Evidence
from jobs.fields import Share, Temperature
from jobs.samples import Sample, Speed, decoding_tps, measured, prompt_tps, untimely
from jobs.stats import FEWEST, MATTERS, Comparison, compare

_SHOWN = 100  # rates in a line of evidence; all of them stand in samples.jsonl


class Throughput(Claim):
    """The candidate computes so many tokens per second, or more than the baseline."""

    kind: Literal["throughput"] = "throughput"
    temperature: Temperature | None = Field(
        default=None,
        description="The temperature whose replies are judged; without it each one must hold.",
    )
    of: Speed = Field(
        default="decoding", description="Which speed: of decoding, or of reading a cold prompt."
    )
    depth: Share | None = Field(
        default=None,
        description="The share of the context behind which it is measured (one of workload.fill).",
    )
    at_least: Annotated[float, Field(gt=0)] | None = Field(
        default=None, description="Least median, in tokens per second."
    )
    faster_than: Literal["baseline"] | None = Field(
        default=None, description="The arm that the candidate must be faster than."
    )
    margin: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=MATTERS, description="Smallest relative difference that matters, 0.05 for 5 %."
    )

    @model_validator(mode="after")
    def _something(self) -> Self:
        if self.at_least is None and self.faster_than is None:
            raise ValueError('claims nothing; write at_least = … or faster_than = "baseline"')
        return self

    @property
    def wanted(self) -> str:
        """The speed, in words."""
        parts = []
        if self.at_least is not None:
            parts.append(f"at least {self.at_least:g} tokens/s")
        if self.faster_than is not None:
            parts.append(f"faster than the {self.faster_than}")
        return f"{self._where()}: {' and '.join(parts)}"

    def _where(self, temperature: float | None = None) -> str:
        temperature = self.temperature if temperature is None else temperature
        at = "each temperature" if temperature is None else f"temperature {temperature:g}"
        deep = "" if self.depth is None else f", {percent(self.depth)} of the context filled"
        return f"{self.of} at {at}{deep}"

    def judge(self, evidence: Sequence[Evidence], samples: Sequence[Sample]) -> Judged:
        """Each temperature by itself; the worst of them is the claim's."""
        del evidence
        asked = (one for one in samples if one.arm == "candidate" and not one.warmup)
        every = sorted({sample.temperature for sample in asked})  # also where no reply counts
        if self.temperature is not None:
            every = [self.temperature]
        if not every:
            return self.says(
                ClaimState.UNPROVEN, "no measured reply", "unproven: no reply was measured"
            )
        judged = [self._at(temperature, samples) for temperature in every]
        worst = max(judged, key=lambda one: _RANK.index(one.state))
        return self.says(
            worst.state,
            "; ".join(one.found for one in judged),
            "; ".join(one.said for one in judged),
            [item for one in judged for item in one.evidence],
            temperatures=[one.numbers for one in judged],
        )

    def _at(self, temperature: float, samples: Sequence[Sample]) -> Judged:
        mine = self._rates(samples, "candidate", temperature)
        where = self._where(temperature)
        if len(mine) < FEWEST:
            why = self._few(samples, mine)
            return self.says(
                ClaimState.UNPROVEN,
                f"{len(mine)} measured replies",
                f"unproven: {where}: {why}",
                temperature=temperature,
                n=len(mine),
            )
        if wrong := self._untimely(samples, temperature):
            said = f"contradicted: {where}: {wrong}"
            return self.says(
                ClaimState.CONTRADICTED, wrong, said, temperature=temperature, n=len(mine)
            )
        middle = median(mine)
        more = f" and {len(mine) - _SHOWN} more" if len(mine) > _SHOWN else ""
        rates = ", ".join(f"{rate:.2f}" for rate in mine[:_SHOWN])
        told = f"{where}: {rates}{more} tokens/s"
        replies = [sample for sample, _ in self._measured(samples, "candidate", temperature)]
        shown = [counted("throughput.median", told, middle, replies)]
        state, found = ClaimState.PROVEN, f"median {middle:.1f} tokens/s of {len(mine)}"
        said = f"{where}: {middle:.1f} tokens/s"
        if self.at_least is not None and middle < self.at_least:
            state = ClaimState.REFUTED
            said += f", wanted {self.at_least:g}"
        comparison = None
        if self.faster_than is not None:
            theirs = self._rates(samples, self.faster_than, temperature)
            comparison = compare(mine, theirs, self.margin)
            state = max(state, _state_of(comparison), key=_RANK.index)
            found += f", {comparison.text()}"
            said += f", {comparison.text()}"
        return self.says(
            state,
            found,
            said if state is ClaimState.PROVEN else f"{state}: {said}",
            shown,
            temperature=temperature,
            n=len(mine),
            median=middle,
            comparison=comparison.to_json() if comparison else None,
        )

    def _rates(self, samples: Sequence[Sample], arm: str, temperature: float) -> list[float]:
        return [rate for _, rate in self._measured(samples, arm, temperature)]

    def _measured(
        self, samples: Sequence[Sample], arm: str, temperature: float
    ) -> list[tuple[Sample, float]]:
        """The replies that tell this speed, each with it."""
        speed = decoding_tps if self.of == "decoding" else prompt_tps
        return [
            (sample, rate)
            for sample in measured(samples, arm)
            if sample.temperature == temperature
            and sample.fill == self.depth
            and (rate := speed(sample)) is not None
        ]

    def _untimely(self, samples: Sequence[Sample], temperature: float) -> str:
        """Which arm's times cannot be true; empty where they can."""
        for arm in ("candidate", *((self.faster_than,) if self.faster_than else ())):
            replies = [sample for sample, _ in self._measured(samples, arm, temperature)]
            if wrong := untimely(replies, self.of):
                return wrong if arm == "candidate" else f"{arm}: {wrong}"
        return ""

    def _few(self, samples: Sequence[Sample], rates: Sequence[float]) -> str:
        """Why there are too few rates."""
        here = [sample for sample in measured(samples, "candidate") if sample.fill == self.depth]
        if here and all(sample.predicted_ms is None for sample in here):
            return "this server does not time its replies"
        cached = sum(1 for sample in here if (sample.cache_n or 0) > 0)
        if self.of == "prompt" and cached:
            return f"{cached} of {len(here)} prompts were cached and say nothing about reading one"
        return f"{len(rates)} replies count, at least {FEWEST} are needed"


_RANK = (ClaimState.PROVEN, ClaimState.UNPROVEN, ClaimState.REFUTED, ClaimState.CONTRADICTED)


def _state_of(comparison: Comparison) -> ClaimState:
    match comparison.verdict:
        case "faster":
            return ClaimState.PROVEN
        case "slower" | "even":
            return ClaimState.REFUTED
        case "parity" | "not_enough_runs":
            return ClaimState.UNPROVEN
