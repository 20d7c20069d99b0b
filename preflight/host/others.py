"""Others who have work on this machine: package runs, reservations of the GPU, people at a terminal.

A package run restarts services and replaces drivers under us; a scheduler believes that the GPU is
its own to give away. It must not know what a job is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import ClassVar, Literal

from preflight.box import TIMEOUT, Box, Ran
from preflight.check import Check, Deadline, Explained
from preflight.files.paths import Trouble
from preflight.verdict import BlastRadius, State, Verdict
from preflight.wording import clipped, command, named, seconds

_PACKAGE_LOCKS = (
    "/var/lib/dpkg/lock-frontend",
    "/var/lib/dpkg/lock",
    "/var/lib/rpm/.rpm.lock",
    "/usr/lib/sysimage/rpm/.rpm.lock",
    "/var/lib/dnf/rpmdb_lock.pid",
    "/run/zypp.pid",
)
_PACKAGE_RUNS = ("dpkg", "rpm", "dnf", "dnf5", "yum", "zypper", "pacman", "tdnf", "packagekitd-run")
_ONLY_LOOKS = frozenset(
    {"-l", "-L", "-s", "-S", "-q", "-qa", "list", "search", "info", "makecache", "check-update"}
)
_UPGRADE = "/unattended-upgrade"
_RESERVED = re.compile(r"^(?:GPU )?(\d+):?\s+IN[ _]USE\s+(?:by )?(\S+)", re.MULTILINE)
_AT_WORK_S = 600.0
_TOOL_WITHIN_S = 5.0
_ORDER = (State.FAIL, State.UNKNOWN, State.WARN)


class OthersAtWork(Check):
    """Nobody else changes this machine or has the GPU reserved just now."""

    id: ClassVar[str] = "lock.others"
    radius: ClassVar[BlastRadius] = BlastRadius.PORTS
    explains: ClassVar[tuple[Explained, ...]] = (
        Explained(
            "lock.others",
            reads="the locks of dpkg, rpm, dnf and zypper in /proc/locks, package programs in the "
            "table of processes, `squeue` for this node, `canhazgpu status`, and when each "
            "terminal was last used",
            passes="nobody is at work",
            warns="somebody else used a terminal here in the last ten minutes",
            fails="packages are being installed or upgraded; a Slurm job or another user has a GPU "
            "of this machine",
            unknown="a lock cannot be looked at, or squeue or canhazgpu does not answer",
            remedies=("wait until the package run has ended", "ask the user who is named"),
        ),
    )

    kind: Literal["others"] = "others"
    gpus: tuple[int, ...] = ()
    """Indexes of the GPUs that matter; empty for all."""
    in_slurm: bool = False
    """Whether this itself runs as a Slurm job, whose GPU is its own."""
    deadline_s: float = 12.0

    @property
    def subject(self) -> str:
        """All of the machine."""
        return "others at work here"

    def look(self, box: Box) -> Verdict:
        """Packages, schedulers, people."""
        time = Deadline(self.deadline_s)
        troubles = [
            *self._packages(box, time),
            *self._slurm(box, time),
            *self._canhazgpu(box, time),
            *self._people(box, time),
        ]
        if not troubles:
            return self.says(State.PASS, "nobody", wanted="nobody")
        worst = min(troubles, key=lambda trouble: _ORDER.index(trouble.state))
        others = tuple(one.found for one in troubles if one is not worst)
        state, found, remedy = worst
        return self.says(state, found, wanted="nobody", remedy=remedy, evidence=others)

    def _packages(self, box: Box, time: Deadline) -> Iterator[Trouble]:
        held = box.locks(_PACKAGE_LOCKS, within=time.left())
        blind = [one for one in held if one.fault and one.fault not in ("ENOENT", "ENOTDIR")]
        if blind:
            found = f"whether packages are being installed is not told: {blind[0].said}"
            yield Trouble(State.UNKNOWN, found, f"try: ls -l {blind[0].path}")
        pids = {pid for one in held for pid in one.pids}
        table = {one.pid: one for one in box.table()}
        pids |= {one.pid for one in table.values() if _installs(one.comm, one.argv)}
        busy = [table[pid] for pid in sorted(pids) if pid in table]
        if pids:
            who = named([f"pid {one.pid} {command(one.argv) or one.comm}" for one in busy], 2)
            found = f"packages are being installed or upgraded ({who or 'by a hidden process'})"
            yield Trouble(State.FAIL, found, "wait until it has ended")

    def _slurm(self, box: Box, time: Deadline) -> Iterator[Trouble]:
        if self.in_slurm:
            return
        (host,) = box.texts(["/proc/sys/kernel/hostname"], within=time.left())
        node = host.text.strip().partition(".")[0]
        if not node:
            return
        argv = ["squeue", "-h", "-w", node, "-t", "R", "-o", "%i|%u|%b"]
        ran = box.run(argv, within=min(_TOOL_WITHIN_S, time.left()))
        if ran.fault == "ENOENT" or "Invalid node name" in ran.err:
            return
        if ran.code != 0:
            yield _silent("squeue", ran)
            return
        rows = [line.split("|") for line in ran.out.splitlines() if line.count("|") == 2]
        taken = [f"job {job} of {user}" for job, user, gres in rows if "gpu" in gres]
        if taken:
            found = f"Slurm has given a GPU of this node away: {named(taken)}"
            yield Trouble(State.FAIL, found, "ask them, or reserve the node: scontrol")

    def _canhazgpu(self, box: Box, time: Deadline) -> Iterator[Trouble]:
        ran = box.run(["canhazgpu", "status"], within=min(_TOOL_WITHIN_S, time.left()))
        if ran.fault == "ENOENT":
            return
        if ran.code != 0:
            yield _silent("canhazgpu", ran)
            return
        me = box.me().user
        taken = [
            f"GPU {index} by {user}"
            for index, user in _RESERVED.findall(ran.out)
            if user != me and (not self.gpus or int(index) in self.gpus)
        ]
        if taken:
            found = f"reserved through canhazgpu: {named(taken)}"
            yield Trouble(State.FAIL, found, "ask them, or wait: canhazgpu status")

    def _people(self, box: Box, time: Deadline) -> Iterator[Trouble]:
        me = box.me().uid
        busy = [
            one
            for one in box.terminals(within=time.left())
            if one.uid != me and one.idle_s < _AT_WORK_S
        ]
        if busy:
            one = min(busy, key=lambda one: one.idle_s)
            found = f"{one.user} is at work on {one.name} (idle {seconds(round(one.idle_s))})"
            yield Trouble(State.WARN, found, f"tell {one.user} what is going to happen")


def _silent(tool: str, ran: Ran) -> Trouble:
    said = clipped(ran.said or ran.last_line or f"exit code {ran.code}", 120)
    word = f"{said} (timeout)" if ran.fault == TIMEOUT else said
    return Trouble(State.UNKNOWN, f"{tool} is here and does not tell: {word}", f"try: {tool}")


def _installs(comm: str, argv: tuple[str, ...]) -> bool:
    """A program that installs packages; the one that waits for a shutdown does not."""
    if comm in _PACKAGE_RUNS:
        return not _ONLY_LOOKS & set(argv[1:3])
    return any(word.endswith(_UPGRADE) for word in argv[:3])
