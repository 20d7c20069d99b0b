"""The candidate's own cgroup, where the machine grants one: nothing in it can hide.

Whatever it forks, detaches or ignores stays in there, so it can be listed and ended as a whole,
also by a recovery that is no relative of it.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from preflight.linux import proc
from runner.recovery import world


def name_of(run: str) -> str:
    """What the cgroup of a run's candidate is called."""
    return f"runner-{run}"


def _own() -> Path | None:
    """Our own directory in the v2 hierarchy, also on a hybrid machine."""
    for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
        if line.startswith("0::"):
            for root in (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified")):
                if (root / "cgroup.procs").exists():
                    return root / line.removeprefix("0::").lstrip("/")
    return None


def make(run: str) -> Path | None:
    """A cgroup of its own below ours for a candidate, where the machine lets us; else None."""
    try:
        own = _own()
        if own is None:
            return None
        made = own / name_of(run)
        made.mkdir(exist_ok=True)
        # kernels before 5.14 cannot kill a cgroup as a whole; then it is of no use to us
        if (made / "cgroup.kill").exists() and os.access(made / "cgroup.procs", os.W_OK):
            return made
        made.rmdir()
    except OSError:
        return None
    return None


def _tree(path: Path) -> list[Path]:
    """A cgroup and those a candidate made inside it, the innermost first; empty when gone."""
    return [Path(found) for found, _, _ in os.walk(path, topdown=False)]


def members(path: Path) -> set[int]:
    """The live pids in a cgroup of ours and below it; empty when it is gone."""
    listed: set[int] = set()
    for room in _tree(path):
        try:
            text = (room / "cgroup.procs").read_text(encoding="ascii")
        except OSError:
            continue
        listed |= {int(pid) for pid in text.split()}
    return {pid for pid in listed if proc.ident(pid) is not None}


def kill(path: Path) -> None:
    """End everything in a cgroup at once, whatever it forked, detached or ignored."""
    try:
        (path / "cgroup.kill").write_text("1", encoding="ascii")
    except OSError:
        world.send_all(world.identified(lambda: members(path)), signal.SIGKILL)


def remove(path: Path) -> None:
    """Take an empty cgroup away; one that is busy or gone stays as it is."""
    for room in _tree(path):
        with contextlib.suppress(OSError):
            room.rmdir()
