"""How /proc tells of processes: who they are, and who belongs together. Standard library only.

It must not know jobs, services or recipes, and it changes nothing. Read it through
`preflight.linux.proc`, which has the sockets beside it.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

TAG = "RUNNER_RUN_ID"
"""The environment variable that marks every process of a candidate with its run."""

_CONTAINER = re.compile(
    r"(?P<engine>docker|libpod|cri-containerd)[-/](?P<id>[0-9a-f]{12})[0-9a-f]*(?:\.scope)?/?$"
)
_PIECE = 1 << 16
_TICKS = os.sysconf("SC_CLK_TCK")
_SHARED_MEMORY = ("/dev/zero", "/memfd:", "/SYSV", "/dev/shm/")  # noqa: S108 - names, not files of ours


@dataclass(frozen=True, slots=True)
class Ident:
    """Which process, for ever: pids are used again, (boot, pid, start) is not.

    `start` is field 22 of /proc/PID/stat, in clock ticks since boot; it does not move when the
    wall clock is set.
    """

    boot: str
    pid: int
    start: int

    def to_json(self) -> dict[str, str | int]:
        """Plain JSON, read back by `from_json`."""
        return {"boot": self.boot, "pid": self.pid, "start": self.start}

    @classmethod
    def from_json(cls, said: object) -> Ident | None:
        """The Ident that `to_json` wrote, or None for anything that is not one."""
        if not isinstance(said, dict):
            return None
        boot, pid, start = said.get("boot"), said.get("pid"), said.get("start")
        if isinstance(boot, str) and isinstance(pid, int) and isinstance(start, int) and pid > 1:
            return cls(boot, pid, start)
        return None


@dataclass(frozen=True, slots=True)
class Stat:
    """The parts of /proc/PID/stat that somebody here needs."""

    pid: int
    comm: str
    state: str
    ppid: int
    pgrp: int
    session: int
    start: int
    threads: int = 1
    ticks: int = 0
    """CPU time of all its threads so far, in clock ticks."""

    @property
    def gone(self) -> bool:
        """Whether the process has ended: a zombie holds nothing but its number.

        Unless other threads of it live on: when only the first one ends, the kernel shows a zombie
        too, and all of its memory is still held.
        """
        return self.state in "Xx" or (self.state == "Z" and self.threads <= 1)


def boot_id() -> str:
    """The id of this boot; after a reboot every pid on record means nothing."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def stat(pid: int) -> Stat | None:
    """Read /proc/PID/stat; None when there is no such process."""
    raw = _read(f"/proc/{pid}/stat")
    if raw is None:
        return None
    # the name may hold spaces and brackets, so cut at the last one
    head, _, tail = raw.decode("utf-8", "replace").rpartition(")")
    fields = tail.split()
    if len(fields) < 20:  # a row cut short by a process that just ended
        return None
    return Stat(
        pid=pid,
        comm=head.partition("(")[2],
        state=fields[0],
        ppid=int(fields[1]),
        pgrp=int(fields[2]),
        session=int(fields[3]),
        start=int(fields[19]),
        threads=int(fields[17]),
        ticks=int(fields[11]) + int(fields[12]),
    )


def ident(pid: int) -> Ident | None:
    """Who has this pid now; None when nobody has, or only a zombie."""
    found = stat(pid)
    if found is None or found.gone:
        return None
    return Ident(boot_id(), pid, found.start)


def alive(who: Ident) -> bool:
    """Whether exactly this process still runs. A zombie does not."""
    return ident(who.pid) == who


def pids() -> list[int]:
    """Every pid that can be seen, in order."""
    return sorted(int(name) for name in os.listdir("/proc") if name.isdigit())


def _split(raw: bytes) -> tuple[str, ...]:
    text = raw.decode("utf-8", "surrogateescape")
    return tuple(text.removesuffix("\0").split("\0")) if text else ()


def _read(path: str) -> bytes | None:
    """All of a small file; None when it is gone or hidden. Read by the thousand, so without frills."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        pieces = [os.read(fd, _PIECE)]
        while len(pieces[-1]) > 0:
            pieces.append(os.read(fd, _PIECE))
    except OSError:  # it ended while it was read
        return None
    finally:
        os.close(fd)
    return b"".join(pieces)


def cmdline(pid: int) -> tuple[str, ...] | None:
    """The argument vector; None when the process is gone. Readable for every user's process."""
    raw = _read(f"/proc/{pid}/cmdline")
    return None if raw is None else _split(raw)


def environ(pid: int) -> dict[str, str] | None:
    """The environment the process was started with; None when gone or not ours to read."""
    raw = _read(f"/proc/{pid}/environ")
    if raw is None:
        return None
    pairs = (entry.partition("=") for entry in _split(raw))
    return {name: value for name, sign, value in pairs if sign}


def link(path: str) -> str | None:
    """Where a symbolic link of /proc points; None when it is hidden or gone."""
    try:
        return os.readlink(path)
    except OSError:
        return None


def exe(pid: int) -> str | None:
    """The program file, with " (deleted)" behind it when it was replaced; None when hidden."""
    return link(f"/proc/{pid}/exe")


def cwd(pid: int) -> str | None:
    """The working directory; None when hidden."""
    return link(f"/proc/{pid}/cwd")


def open_files(pid: int) -> list[str]:
    """What each descriptor of a process points to; empty when hidden or gone."""
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return []
    return [target for name in names if (target := link(f"/proc/{pid}/fd/{name}")) is not None]


def uid(pid: int) -> int | None:
    """The user the process belongs to; None when it is gone."""
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None


def started_at(pid: int) -> float | None:
    """When the process began, as seconds of the wall clock; for people, never for identity."""
    found = stat(pid)
    raw = _read("/proc/uptime")
    if found is None or raw is None:
        return None
    up = float(raw.split()[0])
    return time.time() - up + found.start / _TICKS


def cgroup(pid: int) -> str | None:
    """The cgroup path (v2, else the name=systemd hierarchy), such as /system.slice/llama.service."""
    raw = _read(f"/proc/{pid}/cgroup")
    return cgroup_in(raw.decode("utf-8", "replace")) if raw is not None else None


def cgroup_in(text: str) -> str | None:
    """The path in the text of /proc/PID/cgroup. A hierarchy that systemd does not use has everything
    in its root, so the other one tells.
    """
    named: str | None = None
    unified: str | None = None
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers == "name=systemd":
            named = path
        elif number == "0" and not controllers:
            unified = path
    return named if unified in {None, "/"} and named is not None else unified


def unit_of(path: str | None) -> str | None:
    """The systemd service in a cgroup path: the last part that ends in .service, or None."""
    parts = [part for part in (path or "").split("/") if part.endswith(".service")]
    # user@1000.service holds a whole session; a service inside it is the closer answer
    return parts[-1] if parts and not parts[-1].startswith("user@") else None


def unit_or_container(cgroup: str | None) -> str | None:
    """The systemd service or the container that a cgroup path belongs to."""
    match = _CONTAINER.search(cgroup or "")
    if match is not None:
        engine = "podman" if match["engine"] == "libpod" else match["engine"]
        return f"{engine} container {match['id']}"
    return unit_of(cgroup)


def _family_key(path: str | None) -> str | None:
    """The cgroup that is a home of its own: a service or a container, never a session or slice."""
    if path is None:
        return None
    return path if unit_or_container(path) is not None or "/docker/" in path else None


def stats() -> dict[int, Stat]:
    """Every process that can be seen; those that vanish while they are read are left out."""
    return {pid: found for pid in pids() if (found := stat(pid)) is not None}


def descendants(pid: int, among: Mapping[int, Stat] | None = None) -> set[int]:
    """Children, their children and so on, without `pid` itself; zombies left out.

    `among` are the stats of all processes, where somebody has just read them.
    """
    children: dict[int, list[int]] = {}
    for found in (stats() if among is None else among).values():
        if not found.gone:
            children.setdefault(found.ppid, []).append(found.pid)
    seen: set[int] = set()
    queue = [pid]
    while queue:
        for child in children.get(queue.pop(), ()):
            if child not in seen:
                seen.add(child)
                queue.append(child)
    return seen


def in_cgroup(path: str) -> set[int]:
    """Live processes in this cgroup or below it."""
    below = path.rstrip("/") + "/"
    homes = ((pid, cgroup(pid)) for pid in pids())
    members = {pid for pid, home in homes if home == path or (home or "").startswith(below)}
    return {pid for pid in members if ident(pid) is not None}


def _first(members: set[int]) -> int | None:
    """The process that has been there longest."""
    found = [one for pid in members if (one := stat(pid)) is not None]
    return min(found, key=lambda one: (one.start, one.pid)).pid if found else None


def family(pid: int, among: Mapping[int, Stat] | None = None) -> set[int]:
    """Every live process that belongs with `pid`: its descendants, its session where it leads one,
    and its service's or container's cgroup where it is the first process of that. A GPU engine is
    often not the process that listens, so memory and signals go by family.

    A process that merely lives in somebody's cgroup (started from a login that sshd keeps in its
    own, say) does not make the others there its family.
    """
    table = stats() if among is None else among
    head = table.get(pid)
    if head is None or head.gone:
        return set()
    members = {pid} | descendants(pid, table)
    if head.session == pid:
        members |= {one.pid for one in table.values() if not one.gone and one.session == pid}
    home = _family_key(cgroup(pid))
    if home is not None and _first(others := in_cgroup(home)) == pid:
        members |= others
    # our own ancestors are never production's family, whatever they share
    return members - {os.getpid(), os.getppid(), 1}


def tagged(run: str) -> set[int]:
    """Live processes whose environment carries this run's tag."""
    needle = f"{TAG}={run}".encode()
    found: set[int] = set()
    for pid in pids():
        raw = _read(f"/proc/{pid}/environ")
        if raw is not None and needle in raw.split(b"\0") and ident(pid) is not None:
            found.add(pid)
    return found


def mapped_deleted(pid: int) -> list[tuple[str, int]] | None:
    """Files the process maps whose name was deleted, each with its inode; None when not ours to look.

    A server goes on answering from such weights, and can never be started from them again.
    """
    raw = _read(f"/proc/{pid}/maps")
    if raw is None:
        return None
    gone: dict[tuple[str, int], None] = {}
    for line in raw.decode("utf-8", "surrogateescape").splitlines():
        if line.endswith(" (deleted)") and "/" in line:
            path = line[line.index("/") :].removesuffix(" (deleted)")
            # anonymous shared memory is a deleted file by design
            if not path.startswith(_SHARED_MEMORY):
                gone[path, int(line.split(maxsplit=5)[4])] = None
    return list(gone)
