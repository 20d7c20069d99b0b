"""Which tensors a llama-server is told to put elsewhere than their layer: -ot, -cmoe, -ncmoe. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from jobs import flags
from jobs.flags import Flag
from jobs.servers.llamacpp_flags import FLAGS
from jobs.servers.llamacpp_says import whole_number

Rule = tuple[str, str]
"""A regular expression for names of tensors, and where these go."""

HOST, GPU = PLACES = ("host", "gpu")
_EXPERTS = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"
"""LLM_FFN_EXPS_REGEX of common/common.h, b11434."""
_MOST_LAYERS = 512
"""LLAMA_MAX_LAYERS of the same."""
_HOST_BUFFER = re.compile(r"CPU.*|.*_Host")
_GPU_BUFFER = re.compile(r"(CUDA|ROCm|MUSA|Vulkan|SYCL|Metal|MTL|CANN|OpenCL)\d*")
_TRUE = frozenset({"1", "on", "true", "enabled"})


class Names(NamedTuple):
    """The flags that say so, of the model or of its draft."""

    tensors: str
    experts: str
    experts_of: str


MODEL = Names("--override-tensor", "--cpu-moe", "--n-cpu-moe")
DRAFT = Names("--override-tensor-draft", "--cpu-moe-draft", "--n-cpu-moe-draft")


def rules_of(argv: Sequence[str], env: Mapping[str, str], names: Names) -> Iterator[Rule]:
    """Which tensors go to HOST or GPU, in the order in which the first that fits counts.

    A place that is neither stands there as it was written. Variables come before flags, and both
    count (common/arg.cpp, b11434).
    """
    for name in names:
        value = env.get((FLAGS.find(name) or Flag(())).env or "")
        if value is not None and (name != names.experts or value.lower() in _TRUE):
            yield from _rules(name, value, names)
    for piece in flags.pieces(argv, FLAGS):
        for name in names:
            if piece.name and FLAGS.same(name, piece.name):
                yield from _rules(name, piece.value or "", names)


def _rules(name: str, value: str, names: Names) -> Iterator[Rule]:
    """What one flag says."""
    if name == names.experts:
        yield _EXPERTS, HOST
    elif name == names.experts_of:
        count = min(whole_number(value) or 0, _MOST_LAYERS)
        if count > 0:
            yield rf"blk\.({'|'.join(map(str, range(count)))}){_EXPERTS}", HOST
    else:
        for rule in value.split(","):
            pattern, _, target = rule.partition("=")
            yield pattern, _place(target)


def _place(target: str) -> str:
    if _HOST_BUFFER.fullmatch(target):
        return HOST
    return GPU if _GPU_BUFFER.fullmatch(target) else target


def misread(rules: Sequence[Rule]) -> str:
    """Why these rules do not tell how much goes where; empty where they do.

    The server reads ECMAScript's expressions, which are Python's but for classes such as
    [[:digit:]].
    """
    for pattern, place in rules:
        if place not in PLACES:
            return (
                f"--override-tensor puts tensors on {place or 'nothing'}, which is not known here"
            )
        try:
            known = "[[" not in pattern and re.compile(pattern) is not None
        except re.error:
            known = False
        if not known:
            return f"--override-tensor: {pattern} cannot be read as an expression here"
    return ""
