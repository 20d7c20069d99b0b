"""Lines of llama-server's log that end a wait, or that speak for or against a claim.

The texts were seen in llama.cpp b10434 to b11549, or read in the source of b11434. Most need `-lv 4`;
that a line is absent proves nothing, and one that is present only supports what counters say."""

import re
from collections.abc import Iterator
from types import MappingProxyType

from jobs.evidence import Evidence, Value, now

_HARMLESS = r"encountered an error while trying to fit params|\[spec\] failed to measure"

FATAL = (
    r"couldn't bind HTTP server socket",
    r"error loading model:",
    rf"^(?!.*(?:{_HARMLESS})).*failed to load model",
    r"failed to load draft model",
    r"failed to create MTP context",
    r"failed to create_context",
    r"failed to load multimodal model",
    r"failed to allocate buffer for kv cache",
    r"cudaMalloc failed",
    r"CUDA error",
    r"ggml_abort|GGML_ASSERT",
    r"error: invalid argument",
    r"error while handling argument",
    r"exiting due to (HTTP server|model loading) error",
    r"quantized V cache requires flash_attn",
)
"""Any one of these in a line means that the server will never be ready. Not among them, though they
look like errors: `encountered an error while trying to fit params` (it then loads plainly), `[spec]
failed to measure`, `requires ctx_other to be set`, and `AMX is not ready to be used!`."""

SUSPICIOUS = MappingProxyType(
    {
        "context.capped": r"exceeds the training context of the model .*capping",
        "speculation.off": r"speculative decoding not supported by this context"
        r"|failed to initialize speculative decoding context"
        r"|no implementations specified for speculative decoding",
        "speculation.no_mtp": r"doesn't contain MTP layers|failed to create MTP context",
        "speculation.mtp_unused": r"has unused tensor blk\.\d+\.nextn",
        "speculation.synthetic": r"synthetic speculative acceptance",
        "speculation.checkpoints": r"speculative decoding will use checkpoints",
        "placement.unfitted": r"failed to fit params",
        "identity.router": r"starting server in router mode",
        "context.no_full_swa": r"swa_full is not supported",
    }
)
"""The server is up, and yet something a claim may rest on is not so; by what it is about."""

_SUPPORT = MappingProxyType(
    {
        "speculation.ready": r"speculative decoding context initialized",
        "speculation.rollback": r"the context supports bounded partial sequence removal",
    }
)
_ACCEPTANCE = re.compile(
    r"draft acceptance(?: rate)?\s*=\s*[\d.]+\s*\(\s*\d+ accepted\s*/\s*(\d+) generated\)"
)
_ADDED = re.compile(r"adding speculative implementation '([\w-]+)'")
_STATISTICS = re.compile(r"statistics\s+([\w-]+): .*#gen tokens =\s*(\d+)")
_N_MAX = re.compile(r"common_specu\S*: - n_max=(\d+)")

_TAGGED = MappingProxyType(
    {
        **{f"log.{tag}": re.compile(text) for tag, text in SUSPICIOUS.items()},
        **{f"log.{tag}": re.compile(text) for tag, text in _SUPPORT.items()},
    }
)
_ANY = re.compile(
    "|".join(
        f"(?:{text})"
        for text in (
            *SUSPICIOUS.values(),
            *_SUPPORT.values(),
            *FATAL,
            "draft acceptance",
            "adding speculative implementation",
            "#gen tokens",
            "n_max=",
        )
    )
)
_FATAL_LINE = re.compile("|".join(f"(?:{text})" for text in FATAL))
LONGEST = 4096
"""Characters of a line that are looked at; those that tell something are short."""
_KEPT = 5  # of lines that say the same for each request or each tensor, the first few are enough


def read(text: str, *, source: str, arm: str) -> tuple[Evidence, ...]:
    """The lines of a log that say something about a claim, in their order.

    Of the `statistics` lines, which count on from the start of the server, the last of each kind is
    kept; of lines that repeat themselves, the first five.
    """
    at, kept, counts = now(), [], dict[str, int]()
    statistics: dict[str, Evidence] = {}
    for whole in text.splitlines():
        line = whole[:LONGEST]
        if not _ANY.search(line):
            continue
        for kind, value in _says(line):
            item = Evidence(kind, source, line.strip()[:500], value, at, arm)
            if kind.startswith("log.statistics."):
                statistics[kind] = item
                continue
            counts[kind] = counts.get(kind, 0) + 1
            if counts[kind] <= _KEPT:
                kept.append(item)
    return (*kept, *statistics.values())


def _says(line: str) -> Iterator[tuple[str, Value]]:
    for kind, pattern in _TAGGED.items():
        if pattern.search(line):
            yield kind, None
    if _FATAL_LINE.search(line):
        yield "log.fatal", None
    if match := _ACCEPTANCE.search(line):
        yield "log.acceptance", int(match.group(1))
    if match := _ADDED.search(line):
        yield "log.speculation.type", match.group(1)
    if match := _STATISTICS.search(line):
        yield f"log.statistics.{match.group(1)}", int(match.group(2))
    if match := _N_MAX.search(line):
        yield "log.speculation.n_max", int(match.group(1))
