"""A file system that answers nobody, as a server of files that is gone leaves one behind.

It is the kernel's own FUSE with nobody at the other end, mounted in a mount namespace of the caller,
so it ends with it. Whoever asks it for anything hangs until killed.
"""

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest


def mount(room: Path) -> None:
    """Mount it at an empty directory. Only ever called in a namespace of its own."""
    libc = ctypes.CDLL(None, use_errno=True)
    fd = os.open("/dev/fuse", os.O_RDWR)  # open for as long as this process lives
    options = f"fd={fd},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}".encode()
    if libc.mount(b"dead", str(room).encode(), b"fuse", 0, options):
        raise OSError(ctypes.get_errno(), "cannot be mounted")


def apart(script: str, *words: str) -> Sequence[str]:
    """The command that runs a Python script in a mount namespace of its own, `dead` mounted.

    The first word is the empty directory. Skips the test where the machine does not allow it.
    """
    prelude = (
        "import sys; from pathlib import Path; from tests.dead_mount import mount\n"
        "mount(Path(sys.argv[1]))\n"
    )
    who = [] if os.getuid() == 0 else ["--map-root-user"]
    head = [shutil.which("unshare") or "unshare", "--mount", *who, sys.executable, "-c"]
    tried = subprocess.run(
        [*head, prelude, words[0]],
        capture_output=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])},
    )
    if tried.returncode:
        pytest.skip("no dead mount can be made here: this needs /dev/fuse and a mount namespace")
    return [*head, prelude + script, *words]
