"""Which requests a run measures, in which order. Pure but for reading a prompt file; sends nothing."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jobs.ask import Asker, send
from jobs.corpus import CATEGORIES, OPENINGS
from jobs.job import Workload
from jobs.request import Request
from jobs.samples import Sample, decoding_tps

SPARE = 64
"""Tokens of the context left free beside prompt and answer, for drafts and a server's own rounding."""

SETTLED = 0.03
"""Two warm-up replies in a row that agree this well end the warming up."""

_LARGEST_PROMPTS = 16 << 20
_REUSED = 0.5


@dataclass(frozen=True, slots=True)
class Prompt:
    """A text to go on from, under the name that reports use."""

    name: str
    text: str = field(repr=False)


def prompts(workload: Workload) -> tuple[Prompt, ...]:
    """The prompts of a workload; raises OSError or ValueError for a file that cannot be used."""
    if workload.prompts.startswith("builtin:"):
        wanted = workload.prompts.removeprefix("builtin:")
        names = CATEGORIES if wanted == "mixed" else (wanted,)
        return tuple(Prompt(name, OPENINGS[name]) for name in names)
    path = Path(workload.prompts)
    try:
        with path.open(encoding="utf-8") as stream:
            text = stream.read(_LARGEST_PROMPTS + 1)
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8 text") from None
    if len(text) > _LARGEST_PROMPTS:
        raise ValueError(f"{path} is larger than {_LARGEST_PROMPTS >> 20} MiB")
    parts = [part.strip("\n") for part in _parts(text)]
    found = tuple(
        Prompt(f"{path.stem}-{number}", part)
        for number, part in enumerate((part for part in parts if part.strip()), start=1)
    )
    if not found:
        raise ValueError(f"{path} holds no prompt")
    return found


def _parts(text: str) -> Iterator[str]:
    """The text between lines of three dashes."""
    part: list[str] = []
    for line in text.split("\n"):
        if line.strip() == "---":
            yield "\n".join(part)
            part = []
        else:
            part.append(line)
    yield "\n".join(part)


def plan(
    workload: Workload,
    texts: Sequence[Prompt],
    *,
    context: int | None = None,
    nonce: str = "run",
    arm: str = "candidate",
) -> tuple[Request, ...]:
    """All requests of one arm, in order: warm-ups, short prompts, then each level of fill.

    `context` is how many tokens one request may use, as the server says; `nonce` makes this run's
    long prompts unlike those of any other run, so that no cache can know them. A level is filled
    once, cold; the further replies there reuse what the server holds.
    """
    if workload.fill and not context:
        raise ValueError("fill is a share of the context, which is not known: write context = …")
    short = [
        Request(
            id=f"{arm}/{text.name}/t{temperature:g}/{repeat}",
            arm=arm,
            temperature=temperature,
            prompt=text.name,
            text=text.text,
            repeat=repeat,
            max_tokens=workload.max_tokens,
            seed=_seed(number, repeat),
        )
        for repeat in range(1, workload.repeats + 1)
        for temperature in workload.temperatures
        for number, text in enumerate(texts)
    ]
    warm = [
        Request(
            id=f"{arm}/{texts[0].name}/warm-up/{number}",
            arm=arm,
            temperature=workload.temperatures[0],
            prompt=texts[0].name,
            text=texts[0].text,
            repeat=number,
            warmup=True,
            max_tokens=workload.max_tokens,
            seed=_seed(0, 0),
        )
        for number in range(1, workload.warmups + 1)
    ]
    deep = [
        request
        for fill in sorted(workload.fill)
        for request in _at_depth(workload, fill, context or 0, nonce, arm)
    ]
    return (*warm, *short, *deep)


def _at_depth(
    workload: Workload, fill: float, context: int, nonce: str, arm: str
) -> Iterator[Request]:
    room = context - workload.max_tokens - SPARE
    tokens = min(round(fill * context), room)
    if tokens < 1:
        raise ValueError(f"a context of {context} tokens has no room for a prompt and an answer")
    cold = True
    for temperature in workload.temperatures:
        for repeat in range(1, workload.repeats_at_depth + 1):
            yield Request(
                id=f"{arm}/fill-{fill:g}/t{temperature:g}/{repeat}",
                arm=arm,
                temperature=temperature,
                prompt=f"fill-{fill:g}",
                fill=fill,
                tokens=tokens,
                nonce=f"{nonce}/{arm}/{fill:g}",
                repeat=repeat,
                max_tokens=workload.max_tokens,
                cached=not cold,
                seed=_seed(99, repeat),
            )
            cold = False


def _seed(prompt: int, repeat: int) -> int:
    """The same in both arms, another for each prompt and repeat."""
    return 1 + 1000 * prompt + repeat


def unneeded(request: Request, samples: Sequence[Sample]) -> str | None:
    """Why this request may be left out, given what was measured so far; None to send it."""
    if request.warmup:
        rates = [
            rate
            for sample in samples
            if sample.arm == request.arm and sample.warmup and (rate := decoding_tps(sample))
        ]
        if len(rates) >= 2 and abs(rates[-1] / rates[-2] - 1) <= SETTLED:
            return "warmed up: the last two replies agree"
    if request.cached:
        earlier = [
            sample
            for sample in samples
            if sample.arm == request.arm and sample.prompt == request.prompt
        ]
        if not any(sample.valid for sample in earlier):
            return "the context was not filled, so nothing can be measured behind it"
        tried = [sample for sample in earlier[1:] if sample.valid and request.tokens]
        if tried and (tried[-1].cache_n or 0) < _REUSED * (request.tokens or 0):
            return "the server does not reuse this prompt, so each reply would fill it anew"
    return None


def size(requests: Iterable[Request]) -> tuple[int, int]:
    """Prompt tokens to compute (as far as known before) and tokens to generate, for an estimate."""
    prompt = generated = 0
    for request in requests:
        generated += request.max_tokens
        if not request.cached:
            prompt += request.tokens or len(request.text) // 4
    return prompt, generated


__all__ = [
    "Asker",
    "Prompt",
    "Request",
    "Sample",
    "plan",
    "prompts",
    "send",
    "size",
    "unneeded",
]
