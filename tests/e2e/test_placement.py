"""The silent fallback: a build without a GPU part serves from the CPU, and its health is fine."""

import shlex
import sys
from pathlib import Path

import pytest

from tests.e2e.night import Night

SMI = """\
#!{python} -I
import os, sys
query = sys.argv[1]
held = {held}
alive = []
for name in os.listdir("/proc"):
    try:
        words = open(f"/proc/{{name}}/cmdline").read().split("\\0")
    except (OSError, ValueError):
        continue
    if name.isdigit() and {port!r} in words and "--port" in words:
        alive.append(name)
if query.startswith("--query-gpu="):
    free = 24000 - (held if alive else 0)
    known = {{"index": "0", "uuid": "GPU-a", "name": "RTX 3090", "driver_version": "580.1",
             "memory.total": "24576", "memory.free": str(free)}}
    print(", ".join(known.get(name, "[N/A]") for name in query.partition("=")[2].split(",")))
elif "compute-apps" in query:
    for pid in alive if held else ():
        print(f"GPU-a, {{pid}}, {{held}}")
"""


@pytest.fixture
def card(serving: Night, tmp_path: Path) -> Night:
    """A box with one card, of which nobody has anything until the test says so."""
    tool = tmp_path / "nvidia-smi"
    write(tool, serving, held=0)
    serving.settings["gpu"] = {"nvidia_smi": str(tool), "reader": "nvidia-smi"}
    serving.write()
    serving.job(needs={"gpu": [{"free_mib": 20_000, "index": 0}]})
    return serving


def write(tool: Path, night: Night, *, held: int) -> None:
    """An nvidia-smi that shows `held` MiB as used while a process listens for the candidate."""
    text = SMI.format(python=shlex.quote(sys.executable), held=held, port=str(night.candidate_port))
    tool.write_text(text)
    tool.chmod(0o755)


def test_a_model_that_is_not_on_the_gpu_breaks_the_run(card: Night) -> None:
    """Case 13: health and answers are there, the card is empty; nobody waits out the slow run."""
    card.job("--slow", "3", needs={"gpu": [{"free_mib": 20_000, "index": 0}]})
    ran = card.run()
    assert ran.code == 5, str(ran)
    assert "the model is not on the GPU: 0 MiB more are used than before it loaded" in ran.out
    assert "its processes hold 0 MiB there" in ran.json["why"]
    assert ran.json["measurements"] == {}
    assert ran.json["production"]["state"] == "serving"
    assert "not on the GPU" in card.told()


def test_a_model_that_is_on_the_gpu_is_measured(card: Night, tmp_path: Path) -> None:
    """The card holds what was asked for."""
    write(tmp_path / "nvidia-smi", card, held=18_000)
    ran = card.run()
    assert ran.code == 0, str(ran)
