"""What llama-server's log tells of its compute buffers, to be remembered for the next start.

The lines need `-lv 4`. Their form is that of llama.cpp b10434 to b11549.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from jobs.servers.llamacpp_log import LONGEST
from preflight.models.fit import Learned

_INFO = re.compile(r"print_info: (arch|n_embd|n_layer) +=\s*(\S+)")
_NEW = re.compile(r"llama_context: constructing llama_context")
_CONTEXT = re.compile(r"llama_context: (n_ctx_seq|n_ctx|n_ubatch) +=\s*(\d+)")
_BUFFER = re.compile(r"sched_reserve:\s+(\S+) compute buffer size =\s*([\d.]+) MiB")
_ON_THE_HOST = re.compile(r"^(CPU|BLAS|AMX|Host)|_Host$")

_NO_GPU = re.compile(
    r"no usable GPU found|compiled without (?:GPU|CUDA)|not compiled with (?:GPU|CUDA)"
    r"|no CUDA-capable device|failed to initialize CUDA|(?:gpu-layers|ngl)\b.* will be ignored"
)


def without_gpu(text: str) -> str:
    """The first line of a log that says that no GPU is used; empty where none does."""
    lines = (line[:LONGEST] for line in text.splitlines())
    return next((line.strip()[:200] for line in lines if _NO_GPU.search(line)), "")


@dataclass
class _Context:
    """One context while its lines go by: the numbers it was made with, its buffers by device."""

    numbers: dict[str, int] = field(default_factory=dict)
    buffers: dict[str, float] = field(default_factory=dict)


def told(text: str, *, run: str = "") -> Learned | None:
    """The compute buffers of one start; None where the log does not tell of any GPU."""
    info: dict[str, str] = {}
    contexts: list[_Context] = []
    for line in text.splitlines():
        if match := _INFO.search(line):
            info.setdefault(match[1], match[2])  # the first model is the one that serves
        elif _NEW.search(line):
            contexts.append(_Context())
        elif contexts and (match := _CONTEXT.search(line)):
            contexts[-1].numbers[match[1]] = int(match[2])
        elif contexts and (match := _BUFFER.search(line)) and not _ON_THE_HOST.search(match[1]):
            before = contexts[-1].buffers.get(match[1], 0.0)
            contexts[-1].buffers[match[1]] = max(before, float(match[2]))
    return _learned(info, [one for one in contexts if one.buffers], run)


def _learned(info: dict[str, str], contexts: Sequence[_Context], run: str) -> Learned | None:
    if not contexts or not {"arch", "n_embd", "n_layer"} <= info.keys():
        return None
    first = contexts[0].numbers
    devices = {name for one in contexts for name in one.buffers}
    most = max(sum(one.buffers.get(name, 0.0) for one in contexts) for name in devices)
    if not info["n_layer"].isdecimal() or not info["n_embd"].isdecimal():
        return None
    return Learned(
        architecture=info["arch"],
        layers=int(info["n_layer"]),
        width=int(info["n_embd"]),
        cells=first.get("n_ctx_seq", first.get("n_ctx", 0)),
        batch=first.get("n_ubatch", 512),
        contexts=len(contexts),
        compute_mib=round(most),
        run=run,
    )
