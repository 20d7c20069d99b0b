"""Where a service stands with its supervisor, and what a driver of a supervisor can do."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Protocol

from preflight.linux import proc
from preflight.linux.proc import Ident


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a service stands with its supervisor.

    `state` is "active", "changing" (starting or stopping, a job is queued), "inactive" or
    "unknown". `heads` are the live processes the supervisor calls this service. `token` changes
    with every start that the supervisor makes, where it tells (systemd's InvocationID). `cgroup`
    is the service's own, where its supervisor gives it one.
    """

    state: str
    heads: frozenset[Ident] = frozenset()
    why: str = ""
    token: str | None = None
    cgroup: str | None = None

    @property
    def family(self) -> set[int]:
        """Every live pid of the service: its heads, what belongs with them, what shares its home."""
        members = proc.in_cgroup(self.cgroup) if self.cgroup else set[int]()
        for who in self.heads:
            members |= proc.family(who.pid)
        return members - {os.getpid()}


class Driver(Protocol):
    """One service under one kind of supervisor."""

    def standing(self) -> Standing:
        """Where the service stands now."""
        ...

    def start(self) -> str | None:
        """Ask for a start; None when it was accepted, else why not."""
        ...

    def stop(self) -> str | None:
        """Ask for a stop; None when it was accepted, else why not."""
        ...

    def orphans(self) -> frozenset[Ident]:
        """Processes of the service that live on although it is inactive, as far as they are ours."""
        ...

    @property
    def patient(self) -> float | None:
        """Seconds the supervisor's own stop ladder may take; None when the ladder is ours."""
        ...

    @property
    def grace(self) -> float:
        """Seconds after an accepted start in which "inactive" does not mean that it has ended."""
        ...


def idents(pids: set[int]) -> frozenset[Ident]:
    """The identities behind pids that still live."""
    return frozenset(who for pid in pids if (who := proc.ident(pid)) is not None)
