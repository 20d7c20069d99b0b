"""How the machine looks to somebody who may see little: a real user, not a pretended one.

`look_as_nobody` runs a piece of Python as the user nobody, with our packages on its path, and gives
back the JSON that it prints. Only root can do that; others skip, and say so.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
NOBODY = 65534


def _as_nobody(*command: str, rights: str = "") -> list[str]:
    setpriv = shutil.which("setpriv") or "setpriv"
    kept = [f"--inh-caps={rights}", f"--ambient-caps={rights}"] if rights else []
    # the shell in between: setpriv itself still has root's rights when it looks the program up
    shell = ["sh", "-c", 'exec "$@"', "sh"]
    who = [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    return [setpriv, *who, *kept, *shell, *command]


@cache
def _python() -> str | None:
    """A Python that nobody may run and that can import what we import."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for candidate in (sys.executable, shutil.which(version, path="/usr/local/bin:/usr/bin")):
        if candidate is None:
            continue
        try:
            tried = subprocess.run(
                _as_nobody(candidate, "-c", "import preflight.linux.box"),
                env=_environment(),
                cwd="/",
                capture_output=True,
                check=False,
            )
        except OSError:
            return None
        if tried.returncode == 0:
            return candidate
    return None


def _environment() -> dict[str, str]:
    paths = [str(ROOT), sysconfig.get_paths()["purelib"]]
    return {"PYTHONPATH": os.pathsep.join(paths), "PATH": "/usr/bin:/bin"}


def look_as_nobody(code: str, *arguments: str, rights: str = "") -> Any:
    """What `code` prints as JSON when the user nobody runs it; skips where that cannot be tried.

    `rights` are capabilities that it has all the same, such as "+sys_ptrace".
    """
    if os.geteuid() != 0:
        pytest.skip("only root can look as another user")
    python = _python()
    if python is None:
        pytest.skip("no Python here that the user nobody may run with our packages")
    ran = subprocess.run(
        _as_nobody(python, "-c", code, *arguments, rights=rights),
        env=_environment(),
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)
