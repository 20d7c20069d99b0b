"""The claim that so many tokens of context are there, and that a prompt really filled them."""

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import Field

from jobs.claims.base import Claim, ClaimState, Judged, counted, percent
from jobs.evidence import Evidence, of
from jobs.fields import Count, Share
from jobs.samples import Sample

_ROUNDING = 16  # tokens by which the counts of a whole request may pass the context's end


class Context(Claim):
    """One request may use so many tokens, and a prompt has filled them."""

    kind: Literal["context"] = "context"
    tokens: Count = Field(description="Tokens of context that one request must be able to use.")
    filled_at_least: Share = Field(
        default=0.9,
        description="Share of these tokens that one prompt must have filled; less leaves the "
        "context allocated, but unproven.",
    )

    @property
    def wanted(self) -> str:
        """Both numbers, in words."""
        return (
            f"at least {self.tokens} tokens for one request, "
            f"of which {self.to_fill} filled ({percent(self.filled_at_least)})"
        )

    @property
    def to_fill(self) -> int:
        """So many tokens one prompt must have filled."""
        return -(-self.tokens * round(self.filled_at_least * 1_000_000) // 1_000_000)

    def judge(self, evidence: Sequence[Evidence], samples: Sequence[Sample]) -> Judged:
        """The context as the running server says it, and the largest prompt it held."""
        told = [*of(evidence, "n_ctx"), *of(evidence, "slot.n_ctx")]
        sizes = {int(item.value): item for item in told if isinstance(item.value, int | float)}
        lines = of(evidence, "log.context.capped")
        mine = [sample for sample in samples if sample.arm == "candidate"]
        largest = max(
            (sample for sample in mine if sample.valid and not sample.truncated),
            key=lambda sample: sample.filled or 0,
            default=None,
        )
        size = min(sizes) if sizes else None
        filled = (largest.filled or 0) if largest else 0
        pages = {(item.source, item.value): item for item in told}
        shown = [*pages.values(), *_fill(largest), *lines]
        numbers = {"n_ctx": size, "filled": filled, "filled_share": filled / self.tokens}
        if size is not None and size < self.tokens:
            where = sizes[size].source
            return self.says(
                ClaimState.REFUTED,
                f"{size} tokens for one request",
                f"refuted: context {size:,}, wanted {self.tokens:,} ({where})",
                shown,
                **numbers,
            )
        if wrong := _disagreement(sizes, mine, largest):
            return self.says(
                ClaimState.CONTRADICTED, wrong, f"contradicted: {wrong}", shown, **numbers
            )
        return self._filling(size, filled, shown, _lost(mine), numbers)

    def _filling(
        self,
        size: int | None,
        filled: int,
        shown: Sequence[Evidence],
        lost: str,
        numbers: Mapping[str, object],
    ) -> Judged:
        share = percent(filled / self.tokens)
        allocated = f"n_ctx {size} per request" if size is not None else "size of context not told"
        found = f"{allocated}, {filled} tokens filled ({share})"
        if size is None and filled < self.tokens:
            return self.says(
                ClaimState.UNPROVEN,
                found,
                f"unproven: this server does not say how large its context is; "
                f"{filled:,} tokens were filled",
                shown,
                **numbers,
            )
        if filled < self.to_fill:
            held = f"{size:,} tokens are allocated" if size is not None else "allocated"
            return self.says(
                ClaimState.UNPROVEN,
                found,
                f"unproven: {held}, but only {filled:,} were filled ({share}), "
                f"wanted {self.to_fill:,}{lost}",
                shown,
                **numbers,
            )
        return self.says(
            ClaimState.PROVEN,
            found,
            f"context {size or filled:,} tokens, {filled:,} filled ({share})",
            shown,
            **numbers,
        )


def _fill(largest: Sample | None) -> list[Evidence]:
    if largest is None or largest.filled is None:
        return []
    said = f"prompt_n = {largest.prompt_n}, cache_n = {largest.cache_n}, truncated = false"
    return [counted("filled", said, largest.filled, [largest], f"timings of {largest.request}")]


def _disagreement(
    sizes: dict[int, Evidence], samples: Sequence[Sample], largest: Sample | None
) -> str:
    """Where counters contradict each other; empty when they do not."""
    if len(sizes) > 1:
        told = ", ".join(f"{item.source} says {size}" for size, item in sorted(sizes.items()))
        return f"the server names different contexts: {told}"
    size = next(iter(sizes), None)
    if size is not None and largest is not None:
        used = (largest.filled or 0) + (largest.predicted_n or 0)
        if used > size + _ROUNDING:
            return f"{largest.request} used {used} tokens of a context of {size}"
    truncated = [sample.request for sample in samples if sample.truncated]
    return f"the server truncated the prompt of {truncated[0]}" if truncated else ""


def _lost(samples: Sequence[Sample]) -> str:
    """Why the largest prompt that was tried does not count."""
    failed = [sample for sample in samples if sample.fill is not None and not sample.valid]
    return f"; {failed[-1].request}: {failed[-1].why}" if failed else ""
