"""What was recorded of a job's files when it last passed, and how a directory differs from it.

Plain models that are kept as JSON; where they are kept is not known here, and nothing is looked at.
"""

from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ConfigDict

from preflight.box import Neighbour, Sampled
from preflight.models.shard_names import shard_name
from preflight.wording import named, size, when

MOST_LISTED = 200
"""So many names of a directory are looked at; a longer list says nothing of what went."""


class _Plain(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class KnownFile(_Plain):
    """One file as it was: where it really lay, its metadata, its header and a sample of it."""

    path: str
    role: str = "other"
    target: str = ""
    size: int = 0
    inode: int = 0
    mtime_ns: int = 0
    user: str = ""
    head: str = ""
    sample: str = ""

    @classmethod
    def of(cls, seen: Sampled, role: str) -> "KnownFile":
        """What is kept of a file that was just sampled."""
        return cls(
            path=seen.path,
            role=role,
            target=seen.target,
            size=seen.size,
            inode=seen.inode,
            mtime_ns=seen.mtime_ns,
            user=seen.user,
            head=seen.head,
            sample=seen.sample,
        )


class Record(_Plain):
    """One job's files when it last passed."""

    job: str
    at: float
    """Seconds since 1970."""
    by: str = ""
    version: str = ""
    """Of the runner that recorded it."""
    proven: bool = False
    """Whether a proven run recorded it, or a look alone."""
    files: tuple[KnownFile, ...] = ()
    listings: Mapping[str, Mapping[str, int]] = {}
    """Directory → the files in it with their sizes, where all of them could be listed."""
    programs: Mapping[str, str] = {}
    """Program → what it said to --version."""
    driver: str = ""
    gpus: Mapping[str, int] = {}
    """UUID of each GPU → the index that the driver gave it."""

    def file(self, path: str) -> KnownFile | None:
        """What was recorded of one path."""
        return next((one for one in self.files if one.path == path), None)

    @property
    def when(self) -> str:
        """When it was recorded, for people."""
        return when(self.at)


def listing(neighbours: Sequence[Neighbour]) -> dict[str, int] | None:
    """The names and sizes of a directory; None where it holds more than is looked at."""
    if not neighbours or len(neighbours) >= MOST_LISTED:
        return None
    return {other.name: other.size for other in neighbours}


def difference(before: Mapping[str, int], now: Sequence[Neighbour]) -> str:
    """What appeared in a directory and what went: "+ Qwen.gguf 64.0 GiB, - 33 shards of big"."""
    names = {other.name for other in now}
    came = [f"+ {other.name} {size(other.size)}" for other in now if other.name not in before]
    went: list[str] = []
    if len(now) < MOST_LISTED:
        went = [f"- {name}" for name in _together([name for name in before if name not in names])]
    return ", ".join([named(came), named(went)] if came and went else [named(came or went)])


def _together(names: Sequence[str]) -> list[str]:
    """Names with the shards of a set as one: "33 shards of big"."""
    sets: dict[str, int] = {}
    alone: list[str] = []
    for name in sorted(names):
        shard = shard_name(name)
        if shard is None:
            alone.append(name)
        else:
            sets[shard.stem] = sets.get(shard.stem, 0) + 1
    return [*(f"{count} shards of {stem}" for stem, count in sets.items()), *alone]
