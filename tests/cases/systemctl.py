"""A systemctl that is only played: it knows the one unit of manager.py.

Installed under that name with ROOM in the environment variable PLAYED_MANAGER.
"""

import os
import sys
import threading
import time
from pathlib import Path

room = Path(os.environ["PLAYED_MANAGER"])
words = [word for word in sys.argv[1:] if not word.startswith("-")]
verb = words[0] if words else ""


def state() -> tuple[str, str, str]:
    """What the manager says of its unit: active or not, its process, how often it was started."""
    active, pid, starts = (room / "state").read_text().split()
    return active, pid, starts


if verb in ("start", "stop"):
    with (room / "orders").open("a") as orders:
        orders.write(f"{verb}\n")
    until = time.monotonic() + 10
    while "--no-block" not in sys.argv and time.monotonic() < until:
        if (state()[0] == "active") == (verb == "start"):
            break
        threading.Event().wait(0.02)
elif verb == "show":
    active, pid, starts = state()
    for line in (
        f"ActiveState={active}",
        f"SubState={'running' if active == 'active' else 'dead'}",
        f"MainPID={pid}",
        f"InvocationID={starts}",
        "Result=success",
        "Restart=always",
        "LoadState=loaded",
        "UnitFileState=enabled",
        "CanStart=yes",
        "CanStop=yes",
        "NeedDaemonReload=no",
        "TimeoutStopUSec=10s",
    ):
        sys.stdout.write(f"{line}\n")
elif verb == "is-system-running":
    sys.stdout.write("running\n")
elif verb != "reset-failed":
    sys.exit(1)
