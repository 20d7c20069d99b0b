"""Who listens on a port: nobody, us, somebody else, or somebody we may not see.

Told from the kernel's socket tables alone. A connect also succeeds on a stopped process and a bind
on a shared port, so neither is ever tried.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict

from preflight.box import Box, Listener, Proc, Sockets
from preflight.check import Check, Explained
from preflight.ports.addresses import overlaps
from preflight.ports.listeners import brief, forwards, manages, person
from preflight.verdict import BlastRadius, State, Verdict
from preflight.wording import named


class ExpectedOwner(BaseModel):
    """Who should hold a port: a service, and by what its processes are known.

    Any one of the marks is enough; with none of them only the answers can tell (`prod.identity`).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    idents: tuple[tuple[int, int], ...] = ()
    """(pid, start in clock ticks); a start of 0 is not compared."""
    cgroup: str | None = None
    unit: str | None = None
    binary: str | None = None
    told: bool = False
    """Its supervisor knows its processes: with none alive, whoever listens is somebody else."""

    @property
    def known(self) -> bool:
        """Whether there is anything to tell its processes by."""
        return bool(self.idents or self.cgroup or self.unit or self.binary or self.told)

    def family(self, box: Box) -> frozenset[int]:
        """Every live process that is its own by identity or cgroup."""
        members: set[int] = set()
        for pid, start in self.idents:
            proc = box.process(pid)
            # a pid that was used again is somebody else
            if proc is not None and start in (0, proc.start):
                members |= {pid} | box.family(pid)
        if self.cgroup and self.cgroup != "/":
            members |= box.unit_members(self.cgroup)
        return frozenset(members)

    def owns(self, proc: Proc, family: frozenset[int]) -> bool:
        """Whether this process is one of the service's."""
        if proc.pid in family:
            return True
        if self.unit is not None and proc.unit == self.unit:
            return True
        if self.idents or self.cgroup or self.unit or self.told or self.binary is None:
            return False
        return self.binary in (proc.exe, proc.argv[0] if proc.argv else None)


def _unseen(rows: Iterable[Listener]) -> list[str]:
    found: list[str] = []
    for row in rows:
        if row.owners:
            continue
        who = f"uid {row.uid}" + (f" ({row.user})" if row.user else "")
        guess = f", likely {brief(row.likely[0])}" if row.likely else ""
        found.append(f"{who}{guess}")
    return sorted(set(found))


def _evidence(rows: Iterable[Listener]) -> tuple[str, ...]:
    """Every row with all that hold it, for the full report."""
    lines: list[str] = []
    for row in rows:
        place = f"{'[' + row.address + ']' if row.v6 else row.address}:{row.port}"
        if not row.owners:
            lines.append(f"{place}: {', '.join(_unseen([row]))}, its process is not visible")
        lines += [f"{place}: {brief(proc)} [{person(proc)}]" for proc in row.owners]
    return tuple(lines)


def _owners(rows: Iterable[Listener]) -> list[Proc]:
    found = {proc.pid: proc for row in rows for proc in row.owners}
    return [found[pid] for pid in sorted(found)]


class PortOwner(Check):
    """A port that has to be free, or held by one known service."""

    id: ClassVar[str] = "port.owner"
    radius: ClassVar[BlastRadius] = BlastRadius.PORTS
    cheap: ClassVar[bool] = True
    explains: ClassVar[tuple[Explained, ...]] = (
        Explained(
            "port.owner",
            reads="the kernel's tables of listening sockets, of TCP and TCP6, and which processes "
            "hold each socket; nothing is connected and nothing is bound",
            passes="nobody listens there, or only the processes of the service that should",
            warns="another server has the port on an address that does not overlap; nobody listens "
            "on production's port; its supervisor does not say which process it is",
            fails="somebody else listens there; several servers share the port (SO_REUSEPORT); "
            "systemd holds production's port for a socket unit, so that a client would start it",
            unknown="the tables cannot be read; production's port is held by a process that this "
            "user may not see",
            remedies=(
                "ask the owner who is named, or set another port",
                "run as the same user, or give the runner CAP_SYS_PTRACE",
            ),
        ),
    )

    kind: Literal["port"] = "port"
    port: int
    host: str = "127.0.0.1"
    expect: Literal["free"] | ExpectedOwner = "free"

    @property
    def subject(self) -> str:
        """The address that is asked about."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def look(self, box: Box) -> Verdict:
        """Judge every listener on the port whose address overlaps ours."""
        sockets = box.listeners(self.port)
        if sockets.fault:
            return self.says(
                State.UNKNOWN,
                f"the socket tables cannot be read: {sockets.said} ({sockets.fault})",
                wanted=self._wanted,
                remedy="let the runner read /proc/net/tcp",
            )
        rows = [row for row in sockets.rows if overlaps(row.address, self.host, only6=row.only6)]
        seen = " ".join(str(inode) for inode in sorted(row.inode for row in rows))
        aside = [row for row in sockets.rows if row not in rows]
        if self.expect == "free":
            return self._free(rows, aside, seen)
        return self._expected(box, self.expect, rows, aside, seen)

    def glance(self, box: Box) -> Verdict | None:
        """Who holds the port, from the kernel's tables: nobody is asked."""
        verdict = self.look(box)
        return verdict if verdict.refuses else None

    @property
    def _wanted(self) -> str:
        return "nobody there" if self.expect == "free" else self.expect.name

    def _free(self, rows: list[Listener], aside: list[Listener], seen: str) -> Verdict:
        if rows:
            return self._held(rows, _owners(rows), seen, State.FAIL)
        if aside:
            return self._beside(aside, "free", seen)
        return self.says(State.PASS, "free", wanted=self._wanted, seen=seen)

    def _expected(
        self,
        box: Box,
        expect: ExpectedOwner,
        rows: list[Listener],
        aside: list[Listener],
        seen: str,
    ) -> Verdict:
        if not rows:
            return self._nobody(expect, box.elsewhere(self.port), seen)
        family = expect.family(box)
        owners = _owners(rows)
        idle = [
            row
            for row in rows
            if any(map(manages, row.owners))
            and not any(expect.owns(proc, family) for proc in row.owners)
        ]
        if idle:
            return self._activated(expect, idle, seen)
        if not expect.known:
            return self._by_answers_only(expect, rows, seen)
        # systemd keeps a copy of each socket that it handed over
        owners = [proc for proc in owners if not manages(proc)]
        foreign = [proc for proc in owners if not expect.owns(proc, family)]
        if foreign or _unseen(rows):
            state = State.FAIL if foreign else State.UNKNOWN
            return self._held(rows, foreign, seen, state)
        if aside:
            return self._beside(aside, f"held by {expect.name}", seen)
        return self.says(
            State.PASS,
            f"held by {expect.name}, {brief(owners[0])}",
            wanted=self._wanted,
            who=person(owners[0]),
            evidence=_evidence(rows),
            seen=seen,
        )

    def _nobody(self, expect: ExpectedOwner, elsewhere: tuple[Listener, ...], seen: str) -> Verdict:
        """Nobody listens; a container's own network may show where the service is instead."""
        inside = [proc for row in elsewhere for proc in row.owners]
        found = "nobody listens"
        if inside:
            where = f" [{inside[0].unit}]" if inside[0].unit else ""
            found = f"nobody listens here; in another network {brief(inside[0])}{where} does"
        return self.says(
            State.WARN,
            found,
            wanted=self._wanted,
            remedy=f"see why {expect.name} is down",
            evidence=_evidence(elsewhere),
            seen=seen,
        )

    def _activated(self, expect: ExpectedOwner, rows: list[Listener], seen: str) -> Verdict:
        """systemd listens in its place: even to ask whether it is well would start it."""
        return self.says(
            State.FAIL,
            f"held by systemd for a socket unit: whoever connects starts {expect.name}",
            wanted=self._wanted,
            remedy="see: systemctl list-sockets",
            evidence=_evidence(rows),
            seen=seen,
        )

    def _by_answers_only(self, expect: ExpectedOwner, rows: list[Listener], seen: str) -> Verdict:
        """A service whose supervisor names no process: it is told by what it answers, later."""
        if len({row.inode for row in rows}) > 1:
            return self._held(rows, _owners(rows), seen, State.FAIL)
        if _unseen(rows):
            return self._held(rows, [], seen, State.UNKNOWN)
        owner = _owners(rows)[0]
        return self.says(
            State.WARN,
            f"held by {brief(owner)}; {expect.name}'s supervisor does not say which process it is",
            wanted=self._wanted,
            who=person(owner),
            evidence=_evidence(rows),
            seen=seen,
        )

    def _held(self, rows: list[Listener], owners: list[Proc], seen: str, state: State) -> Verdict:
        """Held by somebody else, or by somebody we may not see."""
        unseen = _unseen(rows)
        shared = len({row.inode for row in rows}) > 1 and len({row.address for row in rows}) == 1
        if not owners:
            found = f"held by {named(unseen)}; its process is not visible to this user"
            remedy = (
                "ask them"
                if state is State.FAIL
                else "run as the same user, or give the runner CAP_SYS_PTRACE"
            )
            return self.says(
                state,
                found,
                wanted=self._wanted,
                remedy=remedy,
                evidence=_evidence(rows),
                seen=seen,
            )
        found = f"held by {named([brief(proc) for proc in owners], 2)}"
        if shared:
            found = f"{len(rows)} servers share it (SO_REUSEPORT): {found}"
        first = owners[0]
        whom = first.user or f"uid {first.uid}"
        remedy = f"ask {whom} about pid {first.pid}, or set another port"
        if self.expect != "free" and forwards(first):
            remedy = f"it is a proxy: name the port of the server behind it, or {remedy}"
        elif self.expect != "free" and self.expect.told and not self.expect.idents:
            remedy = f"{remedy}; if it is {self.expect.name}, its command is not as configured"
        return self.says(
            state,
            found,
            wanted=self._wanted,
            who=person(first),
            remedy=remedy,
            evidence=_evidence(rows),
            seen=seen,
        )

    def _beside(self, aside: list[Listener], found: str, seen: str) -> Verdict:
        """Another server has the same port on an address that does not overlap."""
        addresses = sorted({row.address for row in aside})
        return self.says(
            State.WARN,
            f"{found}; another server has the same port on {named(addresses)}",
            wanted=self._wanted,
            remedy="always name the literal address: a host name may lead to the other one",
            evidence=_evidence(aside),
            seen=seen,
        )


def holders(sockets: Sockets, host: str) -> frozenset[int]:
    """The visible processes that listen where `host` would meet them."""
    rows = [row for row in sockets.rows if overlaps(row.address, host, only6=row.only6)]
    return frozenset(proc.pid for row in rows for proc in row.owners)
