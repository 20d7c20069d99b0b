"""One path in words: how it is not the file that was wanted, and what lies beside it.

It must not pick: what resembles a missing file is shown as a hint, and never used in its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from preflight.box import CRASH, TIMEOUT, Box, FileFact, GgufFact, Neighbour, SafetensorsFact
from preflight.files.recorded import Record, difference
from preflight.models.gguf import MAGIC
from preflight.verdict import State
from preflight.wording import size, when

_HINTS = 5
_ALIKE = 0.6
"""How similar a name must be to be shown; the same ending counts for 1."""
_SWEPT = ("/tmp/", "/var/tmp/", "/dev/shm/")  # noqa: S108 - where systemd-tmpfiles or a reboot cleans
_CACHES = ("/.cache/huggingface/", "/.ollama/models/", "/ollama/models/blobs/")
_PRIVATE = tuple(f"/{place}/" for place in ("home", "root", "media", "run/media"))
"""Where a link should not lead from anywhere else: places of one person, and disks that come and go."""
_ALIGNMENT = 32
_OLD_VERSION = 2
_NOT_GGUF = (
    (b"<!DO", "a web page"),
    (b"<!do", "a web page"),
    (b"<htm", "a web page"),
    (b"<HTM", "a web page"),
    (b"<?xml", "an XML page, such as a storage server's error"),
    (b"{", "a JSON text, such as a server's error"),
    (b"Entry not found", "a server's answer that there is no such file"),
    (b"Invalid username or password", "a server's answer that asks for a login"),
    (b"Access to model", "a server's answer that asks for a login"),
    (b"version https://git-lfs", "a Git LFS pointer, not the file it points to"),
    (b"PK\x03\x04", "a zip archive"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive"),
    (b"FUGG", "a big-endian GGUF, for another kind of processor"),
)


class Trouble(NamedTuple):
    """How something is not what was wanted: the state, what was found, what to do."""

    state: State
    found: str
    remedy: str


_FAULTS = {
    "ELOOP": Trouble(State.FAIL, "is a symbolic link that leads back to itself", "mend the link"),
    "ENOTDIR": Trouble(State.FAIL, "lies below {nearest}, which is no directory", "mend the path"),
    "ENAMETOOLONG": Trouble(State.FAIL, "is longer than any name can be here", "mend the path"),
    "EINVAL": Trouble(State.FAIL, "is no path: {said}", "mend the path"),
    "EACCES": Trouble(
        State.UNKNOWN,
        "cannot be looked at: no permission below {nearest}",
        "let the runner's user pass through that directory (chmod o+x, or a group)",
    ),
    TIMEOUT: Trouble(
        State.UNKNOWN, "{said} (timeout)", "see whether the file system it lies on still answers"
    ),
    CRASH: Trouble(State.UNKNOWN, "{said}", "see whether the file system it lies on still answers"),
}
_OTHER_FAULT = Trouble(
    State.UNKNOWN,
    "cannot be looked at: {said} ({fault})",
    "see what is wrong with the file system it lies on",
)


def _missing(fact: FileFact) -> Trouble:
    if fact.links:
        return Trouble(
            State.FAIL,
            f"is a symbolic link to {fact.links[-1]}, which is gone",
            f"put {fact.target or fact.links[-1]} back (a cleaned cache?), or name another file",
        )
    parent = fact.path.rsplit("/", 1)[0] or "/"
    if fact.nearest and fact.nearest != parent:
        return Trouble(
            State.FAIL,
            f"does not exist, nor does its directory (the deepest that does is {fact.nearest})",
            "put it back (a disk not mounted?), or name another file",
        )
    changed = ""
    if fact.nearest_mtime_ns:
        changed = f" (its directory last changed {when(fact.nearest_mtime_ns / 1e9)})"
    return Trouble(State.FAIL, f"does not exist{changed}", "put it back, or name another file")


def trouble_of(fact: FileFact) -> Trouble | None:
    """How this path is not a readable, non-empty file; None when it is one."""
    if fact.fault == "ENOENT":
        return _missing(fact)
    if fact.fault:
        trouble = _FAULTS.get(fact.fault, _OTHER_FAULT)
        found = trouble.found.format(
            said=fact.said, fault=fact.fault, nearest=fact.nearest or "its directory"
        )
        return trouble._replace(found=found)
    if fact.kind == "directory":
        return Trouble(State.FAIL, "is a directory, not a file", "name the file itself")
    if fact.kind != "file":
        found = "is no regular file (a pipe, a socket or a device)"
        return Trouble(State.FAIL, found, "name a file")
    if fact.size == 0:
        return Trouble(State.FAIL, "is empty (0 bytes)", "fetch or copy it again")
    return _unreadable(fact) if fact.read_fault else None


def _unreadable(fact: FileFact) -> Trouble:
    if fact.read_fault in ("EACCES", "EPERM"):
        found = "exists, but this user may not read it"
        return Trouble(
            State.FAIL, found, "give the runner's user read permission (chmod, or a group)"
        )
    found = f"exists, but cannot be read ({fact.read_fault})"
    return Trouble(State.UNKNOWN, found, "see what is wrong with the file system it lies on")


def swept(fact: FileFact) -> str:
    """Who may take this file away without a thought of us; empty when nobody is known to."""
    for path in (fact.path, fact.target):
        if path.startswith(_SWEPT):
            return f"lies under {next(p for p in _SWEPT if path.startswith(p))}, which gets cleaned"
        for cache in _CACHES:
            if cache in path:
                return "lies in a cache that another program cleans"
    astray = next((place for place in _PRIVATE if fact.target.startswith(place)), "")
    if fact.links and astray and not fact.path.startswith(astray):
        return f"is a link into {astray}, where somebody else may move it"
    return ""


class Around(NamedTuple):
    """What lies around a missing file, and what is known of the time when it was there."""

    hints: tuple[str, ...] = ()
    who: str = ""
    was: str = ""
    """How it was when its job last passed; empty where nothing is recorded."""
    changes: str = ""
    """What appeared in its directory since, and what went."""
    remedy: str = ""

    def since(self, found: str) -> str:
        """What was found, told with what happened."""
        if not self.was:
            return found
        return f"is gone ({self.was}){self.changes}"


def beside(
    box: Box, path: str, *, without: Sequence[str], record: Record | None, within: float
) -> Around:
    """What lies beside a missing file and resembles it, who wrote there last, what happened there.

    Hints for a person: nothing of it is ever chosen in the missing file's place.
    """
    directory, _, name = path.rpartition("/")
    neighbours = box.neighbours(directory or "/", within=within)
    near = [
        other
        for other in neighbours
        if other.name not in without and _nearness(name, other) >= _ALIKE
    ]
    near.sort(key=lambda other: _nearness(name, other), reverse=True)
    hints = tuple(
        f"beside it now: {other.name}, {size(other.size)}, written {when(other.mtime)} by {other.user}"
        for other in near[:_HINTS]
    )
    newest = max(neighbours, key=lambda other: other.mtime, default=None)
    who = (
        f"newest file there: {newest.name} by {newest.user}, {when(newest.mtime)}" if newest else ""
    )
    return _since(Around(hints, who), path, record, neighbours)


def _nearness(name: str, other: Neighbour) -> float:
    ending = name.rpartition(".")[2].lower()
    same_ending = other.name.lower().endswith(f".{ending}") if ending else False
    return SequenceMatcher(None, name.lower(), other.name.lower()).ratio() + same_ending


def _since(
    around: Around, path: str, record: Record | None, neighbours: Sequence[Neighbour]
) -> Around:
    """What the record of its job adds."""
    known = record.file(path) if record is not None else None
    if record is None or known is None:
        return around
    before = record.listings.get(path.rpartition("/")[0] or "/")
    changes = difference(before, neighbours) if before is not None else ""
    return around._replace(
        was=f"was {size(known.size)}, validated {record.when}",
        changes=f"; in its directory since then: {changes}" if changes else "",
        remedy=f"put it back, or edit the job, then: runner check {record.job} --record",
    )


def what_it_is(head: bytes) -> str:
    """What a file is that does not begin like a model, for people; empty where nobody knows."""
    for start, what in _NOT_GGUF:
        if head.lstrip().startswith(start) or head.startswith(start):
            return f"is {what}"
    return ""


def gguf_trouble(box: Box, fact: FileFact, *, within: float) -> tuple[Trouble | None, GgufFact]:
    """How a readable file is not a whole GGUF file, from its header alone."""
    nothing = GgufFact(fact.path)
    if fact.head[:4] != MAGIC:
        letters = fact.head[:5].decode("latin-1")
        unknown = f"is no GGUF file: it begins with {letters!r}, not 'GGUF'"
        found = what_it_is(fact.head) or unknown
        return Trouble(State.FAIL, found, "fetch the model file again"), nothing
    header = box.gguf(fact.path, within=within)
    return _of_header(header) or unfinished(header) or _oddity(header), header


def _of_header(header: GgufFact) -> Trouble | None:
    """What the header alone gives away."""
    if header.fault:
        return Trouble(
            State.UNKNOWN,
            f"its header cannot be read: {header.said} ({header.fault.lower()})",
            "see whether the file system it lies on still answers",
        )
    if header.bad:
        return Trouble(State.FAIL, f"has a broken header: {header.bad}", "fetch the file again")
    if header.misplaced:
        return Trouble(
            State.FAIL,
            f"has a broken header: tensor {header.misplaced} does not lie where it should",
            "make or fetch the file again",
        )
    if header.needed > header.size:
        short = header.needed - header.size
        return Trouble(
            State.FAIL,
            f"is short by {short} bytes (has {header.size}, its header needs {header.needed})",
            "fetch it again: a download or a copy did not finish",
        )
    return None


def unfinished(header: GgufFact | SafetensorsFact) -> Trouble | None:
    """A file of the right length that nobody has finished: a server loads it without a word."""
    if header.marker:
        return Trouble(
            State.FAIL,
            f"is being downloaded: {header.marker} is there",
            "let the download end; if it is a leftover, remove it",
        )
    if header.hole < 0:
        return None
    found = (
        f"has a hole of {size(header.hollow)} at byte {header.hole} of {header.size}: preallocated, "
        "or an unfinished copy; a server would load it without an error"
    )
    if header.zeros_are_holes:
        found = f"{found}. Or this is zfs, which keeps blocks of zeros as holes"
    return Trouble(
        State.UNKNOWN if header.zeros_are_holes else State.FAIL,
        found,
        "fetch it again; if its zeros are its own: cp --sparse=never",
    )


def _oddity(header: GgufFact) -> Trouble | None:
    """What a server may load, and what no tool of today would have written."""
    alignment = header.keys.get("general.alignment", _ALIGNMENT)
    padding = alignment if isinstance(alignment, int) else _ALIGNMENT
    if header.untold:
        return Trouble(
            State.WARN,
            f"has {header.untold} tensors of a type that is not known here, so its length cannot "
            "be checked",
            "see that the server is new enough for it",
        )
    if header.tensors and header.size - header.needed >= padding:
        return Trouble(
            State.WARN,
            f"has {header.size - header.needed} bytes behind its last tensor",
            "see where they come from: a file that was written over a longer one?",
        )
    if header.version == _OLD_VERSION:
        found = f"is of GGUF version {_OLD_VERSION}, which no tool writes any more"
        return Trouble(State.WARN, found, "make or fetch it again")
    return None
