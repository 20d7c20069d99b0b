"""The real Box: this Linux machine, read-only. The only page with psutil; it must not judge.

Whatever may hang is asked through a child that can be abandoned (`preflight.linux.probe`). What /proc
knows better than psutil comes from `preflight.linux.proc`: sockets and their holders, families, deleted
files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from types import TracebackType
from typing import Self

import psutil

from preflight.box import (
    Answer,
    Listener,
    Me,
    Proc,
    Ran,
    Sockets,
)
from preflight.linux import probe, proc
from preflight.linux.gpus import LinuxGpus, Reader

_MOST_NAMESPACES = 32  # each costs two reads of tables that may be long
_NAME_DEADLINE_S = 1.0
_OWN_TIME_S = 0.25
"""What a child gets beyond its own deadline to say that it was missed."""


class LinuxBox(LinuxGpus):
    """This machine. Keeps its children warm between questions; `close` ends them.

    One caller at a time. `nvidia_smi` names the tool for machines without an NVML library; with
    `reader` one of the two is asked and never the other.
    """

    def __init__(self, *, nvidia_smi: str | None = None, reader: Reader = "auto") -> None:
        super().__init__(nvidia_smi, reader)
        self._names: dict[int, str] = {}

    def __enter__(self) -> Self:
        """The Box itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the children."""
        self.close()

    def close(self) -> None:
        """End the children; a later question starts new ones."""
        self._reader.close()
        self._nvml.close()

    # processes and ports

    def listeners(self, port: int) -> Sockets:
        """Every LISTEN row of a port with all processes that hold it."""
        try:
            rows, held = self._once(("listening",), _listening)
        except (OSError, ValueError) as error:
            return Sockets(fault=type(error).__name__, said=str(error))
        return Sockets(tuple(self._listener(row, held) for row in rows if row.port == port))

    def _listener(self, row: proc.Socket, held: Mapping[int, set[int]]) -> Listener:
        owners = self._processes(held.get(row.inode, ()))
        return Listener(
            address=row.address,
            port=row.port,
            v6=row.v6,
            uid=row.uid,
            user=self._name(row.uid),
            inode=row.inode,
            owners=owners,
            likely=() if owners else self._likely(row.uid, row.port),
            only6=row.only6,
        )

    def elsewhere(self, port: int) -> tuple[Listener, ...]:
        """Who listens on it in other network namespaces, as far as these can be seen."""
        rows: list[proc.Socket] = []
        for pid in list(proc.other_namespaces().values())[:_MOST_NAMESPACES]:
            with suppress(OSError, ValueError):
                rows += proc.listening(port, pid)
        held = proc.holders({row.inode for row in rows}) if rows else {}
        return tuple(self._listener(row, held) for row in rows)

    def _processes(self, pids: Sequence[int] | set[int]) -> tuple[Proc, ...]:
        found = (self.process(pid) for pid in sorted(pids))
        return tuple(one for one in found if one is not None)

    def _likely(self, uid: int, port: int) -> tuple[Proc, ...]:
        """That user's processes whose command line names the port: a guess, for people."""
        word = re.compile(rf"(?<!\d){port}(?!\d)")
        table = self.table()
        pids = [one.pid for one in table if one.uid == uid and word.search(" ".join(one.argv))]
        return self._processes(pids)

    def process(self, pid: int) -> Proc | None:
        """One process as far as this user may see it; None when it is gone."""
        ident = proc.ident(pid)
        if ident is None:
            return None
        argv: tuple[str, ...] | None
        uid: int | None
        since: float | None
        try:
            seen = psutil.Process(pid)
            argv, uid, since = tuple(seen.cmdline()), seen.uids().effective, seen.create_time()
        except psutil.NoSuchProcess:
            return None
        except (psutil.Error, OSError):
            argv, uid, since = proc.cmdline(pid), proc.uid(pid), proc.started_at(pid)
        owner = -1 if uid is None else uid
        cgroup = proc.cgroup(pid)
        return Proc(
            pid=pid,
            start=ident.start,
            argv=argv or (),
            uid=owner,
            user=self._name(owner) if owner >= 0 else "",
            since=since,
            exe=proc.exe(pid),
            cgroup=cgroup,
            unit=proc.unit_or_container(cgroup),
        )

    def family(self, pid: int) -> frozenset[int]:
        """The live processes of the same service, container or session."""
        return self._once(("family", pid), lambda: frozenset(proc.family(pid, self._stats())))

    def unit_members(self, cgroup: str) -> frozenset[int]:
        """The live processes in this cgroup or below it."""
        below = cgroup.rstrip("/") + "/"
        homes = ((pid, proc.cgroup(pid)) for pid in proc.pids())
        return frozenset(
            pid for pid, home in homes if home == cgroup or (home or "").startswith(below)
        )

    def vanished(self, pid: int) -> tuple[tuple[str, int], ...] | None:
        """Files the process maps that are gone from disk, each with its inode; None when it may not
        be looked at.
        """
        found = proc.mapped_deleted(pid)
        return None if found is None else tuple(found)

    def me(self) -> Me:
        """This process: its effective user and its cgroup."""
        uid, cgroup = os.geteuid(), proc.cgroup(os.getpid())
        return Me(uid, self._name(uid), cgroup, proc.unit_of(cgroup), _line())

    def _name(self, uid: int) -> str:
        if uid not in self._names:
            try:
                answer = self._reader.ask({"verb": "user", "uid": uid}, within=_NAME_DEADLINE_S)
                self._names[uid] = str(answer.get("name", f"uid {uid}"))
            except probe.Lost:
                self._names[uid] = f"uid {uid}"
        return self._names[uid]

    # commands and servers

    def run(
        self, argv: Sequence[str], *, within: float, env: Mapping[str, str] | None = None
    ) -> Ran:
        """Run a read-only command without input, abandoned past the deadline."""
        return probe.run(argv, within=within, env=env)

    def ask(self, url: str, *, within: float, key: Mapping[str, str] | None = None) -> Answer:
        """GET one URL within a deadline of the wall clock, whatever the server drips."""
        question = {"verb": "ask", "url": url, "within": within, "key": dict(key) if key else None}
        try:
            answer = self._reader.ask(question, within=within + _OWN_TIME_S if within else 0)
        except probe.Lost as lost:
            return Answer(fault=lost.fault, said=lost.said)
        known = {field.name for field in fields(Answer)}
        return Answer(**{key: value for key, value in answer.items() if key in known})


def _line() -> tuple[int, ...]:
    """This process and its ancestors, as far as they can be seen."""
    pid, found = os.getpid(), list[int]()
    while pid > 0 and pid not in found:
        found.append(pid)
        seen = proc.stat(pid)
        pid = seen.ppid if seen is not None else 0
    return tuple(found)


def _listening() -> tuple[list[proc.Socket], dict[int, set[int]]]:
    """Every LISTEN row of this namespace, and who holds which. Raises OSError, ValueError."""
    rows = proc.listening()
    return rows, proc.holders({row.inode for row in rows}) if rows else {}
