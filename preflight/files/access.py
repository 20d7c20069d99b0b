"""May the user that production runs as read what it is started from? We may, and that proves nothing."""

from typing import ClassVar, Literal

from preflight.box import Box, Readable
from preflight.check import Check, Deadline, Explained
from preflight.verdict import BlastRadius, State, Verdict
from preflight.wording import named


class MayRead(Check):
    """The files of one service, seen with the eyes of the user that will open them."""

    id: ClassVar[str] = "file.access"
    radius: ClassVar[BlastRadius] = BlastRadius.FILES
    explains: ClassVar[tuple[Explained, ...]] = (
        Explained(
            "file.access",
            reads="owner, mode and access list of every directory on the way and of the file, for "
            "the user and the groups of the running service",
            passes="that user may read every file",
            fails="a directory or a file keeps that user out: a restart could not read it",
            unknown="a directory on the way cannot be looked at, or not within the deadline",
            skipped="a missing file, which file.exists tells about",
            remedies=("chmod, chgrp or setfacl what keeps it out, as its owner or as root",),
        ),
    )

    kind: Literal["may_read"] = "may_read"
    service: str
    paths: tuple[str, ...]
    uid: int
    pid: int | None = None
    """A process of the service: its groups are the ones that count."""

    @property
    def subject(self) -> str:
        """The service whose files they are."""
        return f"the files of {self.service}"

    @property
    def acceptable(self) -> bool:
        """Never: they are part of production's way back."""
        return False

    def look(self, box: Box) -> Verdict:
        """Walk each path as the kernel would for that user."""
        time = Deadline(self.deadline_s)
        seen = box.readable(self.paths, uid=self.uid, pid=self.pid, within=time.left())
        kept_out = [one for one in seen if one.may is False]
        untold = [one for one in seen if one.may is None and one.fault != "ENOENT"]
        evidence = tuple(f"{one.path}: {_why(one)}" for one in (*kept_out, *untold))
        if kept_out:
            first = kept_out[0]
            more = f" and {len(kept_out) - 1} more" if len(kept_out) > 1 else ""
            return self._says(
                State.FAIL,
                f"uid {self.uid} may not read {first.path}{more}: {first.blocked} keeps it out",
                remedy="let that user read it (chmod, chgrp or setfacl)",
                evidence=evidence,
            )
        if untold:
            return self._says(
                State.UNKNOWN,
                f"whether uid {self.uid} may read {named([one.path for one in untold], 1)} cannot "
                f"be told: {_why(untold[0])}",
                remedy="let the runner's user pass through the directories on the way",
                evidence=evidence,
            )
        there = sum(one.may is True for one in seen)
        return self._says(State.PASS, f"uid {self.uid} may read all {there}")

    def _says(
        self, state: State, found: str, *, remedy: str = "", evidence: tuple[str, ...] = ()
    ) -> Verdict:
        wanted = "readable for the user that runs it"
        return self.says(state, found, wanted=wanted, remedy=remedy, evidence=evidence)


def _why(one: Readable) -> str:
    return one.blocked or one.said or one.fault
