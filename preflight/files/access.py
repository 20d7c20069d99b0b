"""May the user that production runs as read what it is started from? We may, and that proves nothing."""

from typing import ClassVar, Literal

from preflight.box import Box, Readable
from preflight.check import Check, Deadline, Explained
from preflight.verdict import BlastRadius, State, Verdict
from preflight.wording import short_path


class MayRead(Check):
    """The files of one service, seen with the eyes of the user that will open them."""

    id: ClassVar[str] = "file.access"
    radius: ClassVar[BlastRadius] = BlastRadius.FILES
    explains: ClassVar[tuple[Explained, ...]] = (
        Explained(
            "file.access",
            reads="owner, mode and access list of every directory on the way and of the file, for "
            "the user and the groups of the running service; the same through its own mounts, where "
            "it runs in a container or in a unit with a sandbox",
            passes="that user may read every file",
            warns="it may read a file only by a group beside its own, which somebody may take away",
            fails="a directory or a file keeps that user out: a restart could not read it; in the "
            "service's own mounts the path is missing, or another file than the one looked at here",
            unknown="a directory on the way cannot be looked at, or not within the deadline; the "
            "service has mounts of its own that this user may not look into, or a container engine "
            "runs it and none of its processes is known",
            skipped="a missing file, which file.exists tells about",
            remedies=(
                "chmod, chgrp or setfacl what keeps it out, as its owner or as root",
                "mount the directory under the same path in the container or unit",
                "give the runner CAP_SYS_PTRACE, or run it as the user that production runs as",
            ),
        ),
    )

    kind: Literal["may_read"] = "may_read"
    service: str
    paths: tuple[str, ...]
    uid: int
    pid: int | None = None
    """A process of the service: its groups and its mounts are the ones that count."""
    engine: str = ""
    """The container engine that this process only asks to run the service."""

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
        if self.engine:
            return self._says(
                State.UNKNOWN,
                f"{self.engine} runs it, and its paths are those of a container that is not known",
                remedy="run the server itself under the unit, without a container",
            )
        time = Deadline(self.deadline_s)
        seen = box.readable(self.paths, uid=self.uid, pid=self.pid, within=time.left())
        for state, chosen in (
            (State.FAIL, [one for one in seen if one.may is False]),
            (State.UNKNOWN, [one for one in seen if one.may is None and one.fault != "ENOENT"]),
            (State.WARN, [one for one in seen if one.may and one.group]),
        ):
            if chosen:
                first, remedy = self._told(chosen[0])
                more = f" (and {len(chosen) - 1} more)" if len(chosen) > 1 else ""
                return self._says(
                    state,
                    f"{first}{more}",
                    remedy=remedy,
                    who=self._home(box) if chosen[0].there else "",
                    evidence=tuple(f"{one.path}: {_why(one)}" for one in chosen),
                )
        there = sum(one.may is True for one in seen)
        return self._says(State.PASS, f"uid {self.uid} may read all {there}")

    def _told(self, one: Readable) -> tuple[str, str]:
        """What is wrong with one file, and what helps."""
        told, path = _THERE.get(one.there), short_path(one.path)
        if told is not None:
            found, remedy = told
            return found.format(path=path, said=one.said), remedy
        if one.may is False:
            found = f"uid {self.uid} may not read {path}: {one.blocked} keeps it out"
            return found, "let that user read it (chmod, chgrp or setfacl)"
        if one.may:
            found = f"uid {self.uid} may read {path} only by group {one.group}, which may change"
            return found, "let the user itself read it (chown, chmod or setfacl)"
        found = f"whether uid {self.uid} may read {path} cannot be told: {_why(one)}"
        return found, "let the runner's user pass through the directories on the way"

    def _home(self, box: Box) -> str:
        """Whose mounts they are."""
        process = box.process(self.pid) if self.pid is not None else None
        where = process.unit if process is not None else None
        return f"pid {self.pid}, {where}" if where else f"pid {self.pid}"

    def _says(
        self,
        state: State,
        found: str,
        *,
        remedy: str = "",
        who: str = "",
        evidence: tuple[str, ...] = (),
    ) -> Verdict:
        wanted = "readable for the user that runs it"
        return self.says(state, found, wanted=wanted, remedy=remedy, who=who, evidence=evidence)


_THERE = {
    "missing": (
        "{path} is not mounted where it runs, in a container or sandbox",
        "mount its directory there, under the same path",
    ),
    "another": (
        "{path} is another file where it runs, in a container or sandbox ({said})",
        "mount the directory there that was looked at here, under the same path",
    ),
    "only": (
        "{path} is only where it runs, in a container or sandbox, and not here",
        "have its directory here under the same path, so that it can be looked at",
    ),
    "hidden": (
        "{path} cannot be looked at where it runs: it has mounts of its own",
        "give the runner CAP_SYS_PTRACE, or run it as the same user",
    ),
}
"""How a path differs in the mounts of the service, and what helps."""


def _why(one: Readable) -> str:
    if one.there:
        return f"{one.there} in its own mounts {one.said}".rstrip()
    by_group = f"only by group {one.group}" if one.may and one.group else ""
    return by_group or one.blocked or one.said or one.fault
