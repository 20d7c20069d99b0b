"""Files as facts: what the Box tells of a path, a model, a disk. It must not look, and not judge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class FileFact:
    """One path, as stat, readlink and a first read tell it."""

    path: str
    fault: str = ""
    said: str = ""
    kind: str = ""
    """"file", "directory" or "other"; empty when `fault` is not."""
    size: int = 0
    inode: int = 0
    mtime_ns: int = 0
    uid: int = -1
    mode: int = 0
    links: tuple[str, ...] = ()
    """Where each symbolic link on the way says it points."""
    target: str = ""
    """What the path really is, links resolved; also where a dangling link ends."""
    read_fault: str = ""
    """Why a first read failed, as an errno's name; empty when the file can be read."""
    head: bytes = b""
    """The first bytes, up to 64."""
    executable: bool = False
    writable: bool = False
    nearest: str = ""
    """With a fault: the deepest directory on the way that does exist."""
    nearest_mtime_ns: int = 0
    nearest_writable: bool = False

    @property
    def fingerprint(self) -> str:
        """Changes when the file was replaced, rewritten, cut or touched."""
        return f"{self.inode}:{self.size}:{self.mtime_ns}" if not self.fault else self.fault


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Another file in the same directory: a hint for a person, never a choice."""

    name: str
    size: int
    mtime: float
    user: str


@dataclass(frozen=True, slots=True)
class GgufFact:
    """What a file's GGUF header says; `bad` tells why there is none that a server could load."""

    path: str
    fault: str = ""
    said: str = ""
    bad: str = ""
    size: int = 0
    needed: int = 0
    version: int = 0
    tensors: int = 0
    keys: Mapping[str, Any] = field(default_factory=dict)
    """The scalars of the metadata; long texts are clipped, lists left out."""
    untold: int = 0
    """How many tensors are of a type whose size is not known."""
    misplaced: str = ""
    """The first tensor that does not lie where it should."""
    hole: int = -1
    """The first byte of the tensors that was never written, -1 where all were."""
    hollow: int = 0
    """How many bytes of the tensors were never written."""
    zeros_are_holes: bool = False
    """Whether this file system shows a block of zeros as a hole."""
    marker: str = ""
    """A file beside it that says that a download goes on; empty where there is none."""


@dataclass(frozen=True, slots=True)
class SafetensorsFact:
    """What a safetensors file's header says, or an index; `bad` tells why there is none."""

    path: str
    fault: str = ""
    said: str = ""
    bad: str = ""
    size: int = 0
    needed: int = 0
    tensors: int = 0
    names: tuple[str, ...] = ()
    """Of an index: the files beside it that hold the tensors."""
    hole: int = -1
    """The first byte of the tensors that was never written, -1 where all were."""
    hollow: int = 0
    zeros_are_holes: bool = False
    """Whether this file system shows a block of zeros as a hole."""
    marker: str = ""
    """A file beside it that says that a download goes on; empty where there is none."""


@dataclass(frozen=True, slots=True)
class ModelFact:
    """A whole model, all its files put together, as their headers tell it."""

    paths: tuple[str, ...] = ()
    fault: str = ""
    said: str = ""
    bad: str = ""
    keys: Mapping[str, Any] = field(default_factory=dict)
    """The scalars of the metadata."""
    lists: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """The short lists of numbers of its architecture: a value for each layer."""
    tensors: int = 0
    size: int = 0
    """Bytes of all tensors whose type is known."""
    untold: int = 0
    """How many tensors are of a type whose size is not known."""
    blocks: tuple[int, ...] = ()
    """Bytes of each layer's tensors."""
    on_host: tuple[int, ...] = ()
    """How many of them are told to stay in the memory of the host, whatever their layer does."""
    on_gpu: tuple[int, ...] = ()
    """How many of them are told to go to the GPU."""
    placed: Mapping[str, str] = field(default_factory=dict)
    """The tensors outside of layers that are told where to go: "host" or "gpu"."""
    outside: Mapping[str, int] = field(default_factory=dict)
    """Bytes of the tensors that belong to no layer, by name."""
    mtp: tuple[int, ...] = ()
    """The layers that can predict several tokens: those with a `nextn.eh_proj` tensor."""
    repeated: tuple[str, ...] = ()
    """Tensors that are in more than one of the files."""
    gaps: tuple[int, ...] = ()
    """Layers without any tensor, before the last that has one."""
    words: int | None = None
    """How many words its vocabulary has."""


@dataclass(frozen=True, slots=True)
class Vocabularies:
    """Two vocabularies side by side."""

    one: int = 0
    other: int = 0
    differ: int = 0
    """Words that differ at the same place, as far as both go."""
    first: int = -1
    """The first such place."""
    fault: str = ""
    said: str = ""


@dataclass(frozen=True, slots=True)
class Sampled:
    """What one file is: its metadata, its header, and a sample of its content."""

    path: str
    fault: str = ""
    said: str = ""
    target: str = ""
    size: int = 0
    inode: int = 0
    mtime_ns: int = 0
    user: str = ""
    head: str = ""
    """sha256 of the GGUF header, else of the first 64 KiB."""
    sample: str = ""
    """sha256 of 17 windows over the whole length."""


@dataclass(frozen=True, slots=True)
class Readable:
    """Whether a user may read a file, as modes and access lists tell it, in its own mounts."""

    path: str
    fault: str = ""
    said: str = ""
    may: bool | None = None
    """None where it cannot be told."""
    blocked: str = ""
    """The directory or the file that keeps the user out, and how it is protected."""
    group: str = ""
    """The group beside the user's own without which it could not be read."""
    there: str = ""
    """How the path differs where the user's process lives, in mounts of its own: "missing",
    "another" (`said` tells which), "only" (it is not here), "hidden" (that cannot be told)."""


@dataclass(frozen=True, slots=True)
class Disk:
    """The file system below a path, or below the nearest directory that exists."""

    path: str
    fault: str = ""
    said: str = ""
    kind: str = ""
    """As the kernel calls it: ext4, xfs, nfs4, fuse.sshfs."""
    free_mib: int = 0
    free_inodes: int | None = None
    """None on file systems that do not count them."""
    writing: str = ""
    """Why a probe file could not be written and synced; empty when it could."""
    written: bool = False
