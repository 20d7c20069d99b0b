"""The host itself: room on disk, a state directory of our own, programs that run.

It must not know what is written there, or what the program is started for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field

from preflight.box import TIMEOUT, Box, Disk, FileFact
from preflight.check import Check, Deadline, Explained
from preflight.files.paths import Trouble, trouble_of
from preflight.files.recorded import Record
from preflight.verdict import BlastRadius, State, Verdict
from preflight.wording import clipped, memory, seconds

_FEWEST_INODES = 64
_NETWORK = (
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "beegfs",
    "gfs2", "ocfs2", "davfs", "ncpfs", "coda", "gpfs", "wekafs",
)  # fmt: skip
_NETWORK_FUSE = (
    "fuse.sshfs",
    "fuse.s3fs",
    "fuse.rclone",
    "fuse.glusterfs",
    "fuse.ceph",
    "fuse.davfs",
)
VERSION_DEADLINE_S = 10.0
SAYS = "--version: "
"""What stands before a program's own words among the evidence."""


def over_the_network(kind: str) -> bool:
    """Whether a file system of this kind lies on another machine: locks and fsync lie there."""
    return kind in _NETWORK or kind.startswith(_NETWORK_FUSE)


def _disk_fault(check: Check, disk: Disk, wanted: str) -> Verdict:
    if disk.fault == TIMEOUT:
        found, remedy = f"{disk.said} (timeout)", "see whether its file system still answers"
    else:
        found, remedy = f"{disk.said} ({disk.fault})", "mend the path or its permissions"
    state = State.FAIL if disk.fault in ("ENOTDIR", "ELOOP", "ENAMETOOLONG") else State.UNKNOWN
    return check.says(state, found, wanted=wanted, remedy=remedy)


class DiskSpace(Check):
    """Room for results and logs, proven by a probe file where the directory exists."""

    id: ClassVar[str] = "file.space"
    radius: ClassVar[BlastRadius] = BlastRadius.HOST
    explains: ClassVar[tuple[Explained, ...]] = (
        Explained(
            "file.space",
            reads="free bytes and inodes for this user (statvfs), and in the runner's own directories "
            "a file of 1 MiB that is written and synced: quotas, dying disks and read-only mounts "
            "show in no other way",
            passes="room for what is needed, twice",
            warns="less than twice what is needed",
            fails="less than is needed, hardly an inode left, or the file could not be written",
            unknown="the file system does not answer, or not within the deadline",
            remedies=("make room", "mend permissions, quota or a read-only mount"),
        ),
    )

    kind: Literal["space"] = "space"
    path: str
    need_mib: int = 0
    own: bool = True
    """Whether it is the runner's, so that a file may be written there; elsewhere nothing is."""

    @property
    def subject(self) -> str:
        """The directory that is written to."""
        return f"directory {self.path}"

    def look(self, box: Box) -> Verdict:
        """Free space for this user, free inodes, and a synced write: quotas show no other way."""
        wanted = f"{memory(self.need_mib)} free" if self.need_mib else "room to write"
        disk = box.disk(self.path, within=self.deadline_s, write=self.own)
        if disk.fault:
            return _disk_fault(self, disk, wanted)
        if disk.writing:
            return self.says(
                State.FAIL,
                f"cannot be written to: {disk.writing}",
                wanted=wanted,
                remedy="make room, or mend permissions, quota or a read-only mount",
            )
        free = f"{memory(disk.free_mib)} free"
        if disk.free_mib < max(self.need_mib, 1):
            return self.says(State.FAIL, free, wanted=wanted, remedy=f"make room below {self.path}")
        if disk.free_inodes is not None and disk.free_inodes < _FEWEST_INODES:
            return self.says(
                State.FAIL,
                f"{free}, but room for only {disk.free_inodes} more files (inodes)",
                wanted=wanted,
                remedy="remove many small files there",
            )
        tight = disk.free_mib < 2 * self.need_mib
        return self.says(
            State.WARN if tight else State.PASS,
            f"{free}, less than twice what is needed" if tight else free,
            wanted=wanted,
            remedy=f"make room below {self.path}" if tight else "",
        )


class StateDir(Check):
    """The runner's own directory: local, ours, writable. All promises rest on its fsync and locks."""

    id: ClassVar[str] = "self.state"
    radius: ClassVar[BlastRadius] = BlastRadius.SELF
    explains: ClassVar[tuple[Explained, ...]] = (
        Explained(
            "self.state",
            reads="owner and file system of the state directory, and a file that is written and "
            "synced there",
            passes="a local directory of this user's own that can be written to, or one that can be "
            "made",
            fails="no directory, somebody else's, on a network file system, or not writable",
            unknown="the file system does not answer, or not within the deadline",
            remedies=("run as its owner", "set state_dir to a local disk", "make room"),
        ),
    )

    kind: Literal["state"] = "state"
    path: str

    @property
    def subject(self) -> str:
        """The directory."""
        return f"state directory {self.path}"

    def look(self, box: Box) -> Verdict:
        """Whose it is, what it lies on, and whether a probe file can be written and synced."""
        wanted = "a local directory of this user's own"
        time = Deadline(self.deadline_s)
        (fact,) = box.files([self.path], within=time.left())
        if not fact.fault and fact.kind != "directory":
            return self.says(
                State.FAIL, "is no directory", wanted=wanted, remedy="name another state_dir"
            )
        if not fact.fault and fact.uid != box.me().uid:
            return self.says(
                State.FAIL,
                f"belongs to uid {fact.uid}, and this is {box.me().user} (uid {box.me().uid})",
                wanted=wanted,
                remedy="run as its owner",
            )
        disk = box.disk(self.path, within=time.left(), write=True)
        if disk.fault:
            return _disk_fault(self, disk, wanted)
        if over_the_network(disk.kind):
            return self.says(
                State.FAIL,
                f"lies on a network file system ({disk.kind}), where locks and fsync lie",
                wanted=wanted,
                remedy="set state_dir to a local disk",
            )
        if disk.writing:
            return self.says(
                State.FAIL,
                f"cannot be written to: {disk.writing}",
                wanted=wanted,
                remedy="mend its permissions, make room, or name another state_dir",
            )
        found = f"local ({disk.kind or 'unnamed'}), writable"
        if fact.fault:
            found = f"not there yet; it can be made on a local disk ({disk.kind or 'unnamed'})"
        return self.says(State.PASS, found, wanted=wanted)


def program_trouble(fact: FileFact) -> Trouble | None:
    """How this path is no program that this user can run; None when it is one."""
    if fact.read_fault in ("EACCES", "EPERM") and fact.executable:
        return None  # a program may be run without being read
    trouble = trouble_of(fact)
    if trouble is None and not fact.executable:
        return Trouble(State.FAIL, "is not executable for this user", f"chmod +x {fact.path}")
    return trouble


class Binary(Check):
    """A program that is there, may be run, and answers `--version`."""

    id: ClassVar[str] = "host.binary"
    radius: ClassVar[BlastRadius] = BlastRadius.HOST
    explains: ClassVar[tuple[Explained, ...]] = (
        Explained(
            "host.binary",
            reads="stat of the program, and of llama-server what it says to --version",
            passes="it is there, may be run by this user, and answers",
            warns="it says another version than when the job last passed",
            fails="missing, not executable, or it ends with an error: a missing library shows so",
            unknown="it does not answer --version within the deadline",
            remedies=(
                "install the build for this machine",
                "chmod +x",
                "try: PROGRAM --version",
                "if the new build is meant: runner check JOB --record",
            ),
        ),
    )

    kind: Literal["binary"] = "binary"
    path: str
    version: bool = True
    """False for a program that nobody knows: it might take `--version` for an order."""
    env: Mapping[str, str] = {}
    record: Record | None = Field(default=None, exclude=True, repr=False)
    """What was recorded when the job last passed, with what its programs said."""
    deadline_s: float = VERSION_DEADLINE_S

    @property
    def subject(self) -> str:
        """The program."""
        return f"program {self.path}"

    def look(self, box: Box) -> Verdict:
        """Stat, then `--version`: a missing library shows here and not at midnight."""
        wanted = "a program that runs"
        time = Deadline(self.deadline_s)
        (fact,) = box.files([self.path], within=min(5.0, time.left()))
        trouble = program_trouble(fact)
        if trouble is not None:
            state, found, remedy = trouble
            return self.says(state, found, wanted=wanted, remedy=remedy)
        if not self.version:
            return self.says(State.PASS, "is there and executable", wanted=wanted)
        ran = box.run([self.path, "--version"], within=time.left(), env=dict(self.env))
        if ran.fault == TIMEOUT:
            return self.says(
                State.UNKNOWN,
                f"did not answer --version within {seconds(self.deadline_s)} (timeout)",
                wanted=wanted,
                remedy=f"try: {self.path} --version",
            )
        if ran.fault:
            return self.says(
                State.FAIL,
                f"cannot be started: {ran.said}",
                wanted=wanted,
                remedy="install the build for this machine",
            )
        if ran.code != 0:
            return self.says(
                State.FAIL,
                f"--version ended with {ran.code}: {clipped(ran.last_line, 120) or 'no word'}",
                wanted=wanted,
                remedy=f"try: {self.path} --version",
            )
        lines = [line.strip() for line in (ran.out + "\n" + ran.err).splitlines() if line.strip()]
        # some servers greet with their devices first
        named = (line for line in lines if line.lower().startswith("version"))
        said = clipped(next(named, (lines or ["runs"])[0]), 80)
        before = self.record.programs.get(self.path) if self.record is not None else None
        other = before is not None and before != said
        return self.says(
            State.WARN if other else State.PASS,
            f"{said}; was {before} when the job last passed" if other else said,
            wanted="the build it was validated with" if other else wanted,
            remedy="if this build is meant: runner check JOB --record" if other else "",
            evidence=(f"{SAYS}{said}",),
        )
