"""Files by explicit path: is each one there, readable and whole, and if not, how not.

It must not pick a file, and reads nothing of a model but its header.
"""

from typing import ClassVar, Literal

from pydantic import Field

from preflight.box import Box, FileFact
from preflight.check import Check, Deadline, Explained
from preflight.files.paths import Trouble, beside, gguf_trouble, swept, trouble_of
from preflight.files.recorded import Record
from preflight.verdict import BlastRadius, State, Verdict
from preflight.wording import size, when

Role = Literal["weights", "draft", "mmproj", "binary", "prompt", "other"]

_WORDS: dict[str, str] = {
    "weights": "model",
    "draft": "draft model",
    "mmproj": "vision projector",
    "binary": "program",
    "prompt": "prompt file",
    "other": "file",
}
TOLD_BY_EXISTS = ("ENOENT", "EACCES", "EPERM")
"""Why a file cannot be opened, where this check tells it once for all others."""
LET_US_READ = "let the runner's user read it, so that it can be looked at"
_WANTED = "a readable, non-empty file"


class FileExists(Check):
    """A file that has to be there, with its magic letters and length if it is a GGUF file."""

    id: ClassVar[str] = "file.exists"
    radius: ClassVar[BlastRadius] = BlastRadius.FILES
    cheap: ClassVar[bool] = True
    explains: ClassVar[tuple[Explained, ...]] = (
        Explained(
            "file.exists",
            reads="stat, symbolic links and a first read of each path that is named, in a child with "
            "a deadline; of a missing file also its directory",
            passes="a regular, readable file that is not empty",
            warns="it lies in /tmp, /var/tmp, /dev/shm or a cache that another program cleans; a link "
            "leads into somebody's home or to a disk that comes and goes; or it is production's and "
            "only production may read it",
            fails="missing, a dangling link, a directory, a pipe, empty, or not readable for this user "
            "(a program need only be executable)",
            unknown="a directory on the way may not be entered, a stale or dying file system, no "
            "answer within the deadline (a dead mount)",
            remedies=(
                "put it back, or name another file; what lies beside it is shown, and never taken",
            ),
        ),
        Explained(
            "file.gguf",
            reads="the first bytes, the header with its tensor table, the length, holes (SEEK_HOLE), "
            "and whether a download marker (.aria2, .part, .incomplete, …) lies beside it",
            passes="a whole GGUF file (it is then file.exists that says so)",
            warns="bytes behind the last tensor, a tensor type that is not known here, version 2",
            fails="a web page, a Git LFS pointer or an archive instead of a model; a broken header; "
            "short by some bytes; a hole where a tensor should be; a download that goes on",
            unknown="the header cannot be read; a hole on zfs, which keeps blocks of zeros so",
            remedies=("fetch or copy the file again", "let the download end"),
            about="A GGUF file that is whole, and was really written.",
        ),
    )

    kind: Literal["file"] = "file"
    path: str
    role: Role = "other"
    gguf: bool = False
    owner: Literal["job", "production"] = "job"
    record: Record | None = Field(default=None, exclude=True, repr=False)
    """What was recorded when its job last passed, to tell what happened since."""

    @property
    def subject(self) -> str:
        """The role in words, and the path as it was written."""
        whose = "production's " if self.owner == "production" else ""
        return f"{whose}{_WORDS[self.role]} {self.path}"

    @property
    def acceptable(self) -> bool:
        """Production's own files are part of its way back."""
        return self.owner != "production"

    def look(self, box: Box) -> Verdict:
        """Stat, first bytes, header: nothing behind the header is read."""
        time = Deadline(self.deadline_s)
        (fact,) = box.files([self.path], within=time.left())
        trouble = trouble_of(fact)
        runs = self.role == "binary" and fact.executable  # without being read, it may be
        if trouble is not None and not (runs and _closed(fact)):
            return self._refusal(box, fact, trouble, time)
        if self.gguf:
            trouble, _ = gguf_trouble(box, fact, within=time.left())
            if trouble is not None:
                state, found, remedy = trouble
                return self.says(
                    state,
                    found,
                    wanted="a whole GGUF file",
                    remedy=remedy,
                    id="file.gguf",
                    evidence=(f"path: {self.path}",),
                    seen=fact.fingerprint,
                )
        return self._consent(fact)

    def _refusal(self, box: Box, fact: FileFact, trouble: Trouble, time: Deadline) -> Verdict:
        state, found, remedy = trouble
        hints: tuple[str, ...] = ()
        who = ""
        if fact.fault == "ENOENT":
            around = beside(
                box, self.path, without=[_last(self.path)], record=self.record, within=time.left()
            )
            hints, who = around.hints, around.who
            found, remedy = around.since(found), around.remedy or remedy
        if self.owner == "production" and _closed(fact):
            # it is there, and the user that production runs as is the one that has to read it
            state, remedy = State.WARN, LET_US_READ
        return self.says(
            state,
            found,
            wanted=_WANTED,
            remedy=remedy,
            who=who,
            evidence=(f"path: {self.path}", *hints),
            seen=fact.fingerprint,
        )

    def _consent(self, fact: FileFact) -> Verdict:
        evidence: tuple[str, ...] = (f"path: {self.path}",)
        if fact.links:
            evidence += (f"links to: {fact.target}",)
        found = f"{size(fact.size)}, written {when(fact.mtime_ns / 1e9)}"
        cleaned = swept(fact)
        return self.says(
            State.WARN if cleaned else State.PASS,
            f"{found}; {cleaned}" if cleaned else found,
            wanted=_WANTED,
            remedy="move it to a directory that nobody else cleans" if cleaned else "",
            evidence=evidence,
            seen=fact.fingerprint,
        )


def _closed(fact: FileFact) -> bool:
    return fact.read_fault in ("EACCES", "EPERM")


def _last(path: str) -> str:
    return path.rsplit("/", 1)[-1]
