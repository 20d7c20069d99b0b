"""One measured reply with its raw counts. Rates are always computed here, never read from a server."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Literal, Self

from jobs.evidence import now
from jobs.request import Request

_BOS = 64  # tokens of a prompt that a cache may hold without having held the prompt
_BOS_SHARE = 0.01
_LONG_PROMPT = 512
_LONG_ANSWER = 16
_LATE, _LATE_MS = 1.5, 1000.0  # a busy machine hands a reply over late, but not all of them so late
_EARLY, _EARLY_MS = 1.02, 50.0

Speed = Literal["decoding", "prompt"]
"""Which of a reply's two speeds: of decoding, or of reading its prompt."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What one request brought back, raw; None where the server did not say it.

    `depth` is the number of prompt tokens that were sent, when that is known exactly; `prompt_n` how
    many of them were computed and `cache_n` how many were already held. `asked` is how many tokens
    were asked for, `predicted_n` how many came; `drafted` and `accepted` count speculation. A sample
    that is not `valid` says `why` and counts for nothing.
    """

    arm: str
    request: str
    temperature: float
    prompt: str = ""
    fill: float | None = None
    depth: int | None = None
    asked: int = 0
    prompt_n: int | None = None
    prompt_ms: float | None = None
    cache_n: int | None = None
    predicted_n: int | None = None
    predicted_ms: float | None = None
    drafted: int | None = None
    accepted: int | None = None
    wall_ms: float | None = None
    ttft_ms: float | None = None
    finish: str = ""
    text: str = ""
    truncated: bool = False
    warmup: bool = False
    valid: bool = True
    why: str = ""
    at: str = ""

    @classmethod
    def of(cls, request: Request) -> Self:
        """What is known of a reply before it comes; its time is now."""
        return cls(
            arm=request.arm,
            request=request.id,
            temperature=request.temperature,
            prompt=request.prompt,
            fill=request.fill,
            asked=request.max_tokens,
            warmup=request.warmup,
            at=now(),
        )

    def invalid(self, why: str) -> Self:
        """The same, counting for nothing."""
        return replace(self, valid=False, why=why)

    def to_json(self) -> dict[str, object]:
        """The sample as plain JSON, with its rates."""
        return {**asdict(self), "decoding_tps": decoding_tps(self), "prompt_tps": prompt_tps(self)}

    @property
    def filled(self) -> int | None:
        """How many prompt tokens the server held for this reply."""
        if self.prompt_n is None:
            return None
        return self.prompt_n + (self.cache_n or 0)


def decoding_tps(sample: Sample) -> float | None:
    """Tokens per second after the first: (n - 1) / ms; None when the reply cannot tell.

    llama.cpp's own `predicted_per_second` was n / ms up to b10434 and is (n - 1) / ms since b11434,
    so only a rate computed from the raw counts can be compared across builds. Replies that ended
    before half of what was asked for say little, and less than 16 tokens say nothing.
    """
    tokens, spent = sample.predicted_n, sample.predicted_ms
    if not sample.valid or tokens is None or spent is None or spent <= 0:
        return None
    if tokens < max(_LONG_ANSWER, sample.asked // 2) and tokens < sample.asked:
        return None
    return (tokens - 1) / spent * 1000 if tokens > 1 else None


def prompt_tps(sample: Sample) -> float | None:
    """Prompt tokens per second; None for short prompts, and for prompts that a cache already held."""
    tokens, spent = sample.prompt_n, sample.prompt_ms
    if not sample.valid or tokens is None or spent is None or spent <= 0:
        return None
    if tokens < _LONG_PROMPT or poisoned(sample):
        return None
    return tokens / spent * 1000


def poisoned(sample: Sample) -> bool:
    """Whether a cache held more of the prompt than its first token or so."""
    held, total = sample.cache_n or 0, sample.filled or 0
    return held > max(_BOS, total * _BOS_SHARE)


def untimely(samples: Iterable[Sample], of: Speed) -> str:
    """Where the server's time and the time that passed here cannot both be true; empty else.

    Every rate rests on the server's own milliseconds, so these must not be their only witness. Both
    are taken as medians, since one reply may be handed over late.
    """
    spans = [span for sample in samples if (span := _span(sample, of)) is not None]
    if not spans:
        return ""
    told, least, most = (median(parts) for parts in zip(*spans, strict=True))
    if told > _EARLY * most + _EARLY_MS or least > _LATE * told + _LATE_MS:
        passed = most if told > most else least
        return f"the server says {told:.0f} ms a reply, and {passed:.0f} ms passed here"
    return ""


def _span(sample: Sample, of: Speed) -> tuple[float, float, float] | None:
    """Milliseconds that the server tells of, and the fewest and the most that it can have been."""
    told = sample.predicted_ms if of == "decoding" else sample.prompt_ms
    first, whole = sample.ttft_ms, sample.wall_ms
    if told is None or whole is None:
        return None
    if of == "prompt":
        return (told, 0.0, whole) if first is None else (told, first, first)
    before = sample.prompt_ms if first is None else first
    return told, 0.0 if before is None else max(0.0, whole - before), whole


def measured(samples: Iterable[Sample], arm: str) -> tuple[Sample, ...]:
    """The replies of one arm that count: valid, and no warm-up."""
    return tuple(
        sample for sample in samples if sample.arm == arm and sample.valid and not sample.warmup
    )
