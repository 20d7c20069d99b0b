"""What was told past the journal, so that a look each half minute does not tell it each half minute.

Where nothing can be written into the state directory this lies in memory that is gone with the
boot. Nothing here keeps anybody from telling: what is not remembered is told again, and what is
remembered is told again too, ever more rarely, for as long as it is so.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

AGAIN_AFTER_S = (3600.0, 6 * 3600.0, 24 * 3600.0)
"""What is still so is told again after an hour, then six, then every day."""

_LARGEST = 1 << 20
_LAST_ROOM = ".told"

Json = dict[str, Any]


class Told:
    """What was told of one state directory without its journal: key → when, how often, and why.

    `files` are where it may stand, the best one first.
    """

    def __init__(self, state_dir: Path) -> None:
        """Nothing is opened yet, and nothing here raises."""
        self._state_dir = state_dir
        marked = hashlib.sha256(os.fsencode(state_dir.absolute())).hexdigest()[:16]
        name = f"runner-{marked}.json"
        self.files = [room / name for room in _rooms()] + [state_dir / _LAST_ROOM]

    def due(self, key: str, now: float) -> bool:
        """Whether this is to be told at this moment of CLOCK_BOOTTIME."""
        said = self.all().get(key)
        return said is None or not _stands(said, now)

    def standing(self, now: float) -> list[Json]:
        """What was told and is not yet due again: as far as anybody knows it is still so."""
        return [said for said in self.all().values() if _stands(said, now)]

    def note(self, key: str, now: float, because: str) -> bool:
        """It was told; False where that can be remembered nowhere."""
        known = self.all()
        times = known[key]["times"] + 1 if key in known else 1
        since = known[key]["since"] if key in known else now
        known[key] = {"at": now, "times": times, "since": since, "because": because}
        return self._write(known)

    def forget(self, beginning: str) -> None:
        """What begins like this is over; its next time is told at once."""
        known = self.all()
        left = {key: said for key, said in known.items() if not key.startswith(beginning)}
        if len(left) != len(known):
            self._write(left)

    def all(self) -> dict[str, Json]:
        """Key → {at, times, since (seconds of CLOCK_BOOTTIME), because}; the latest of each."""
        found: dict[str, Json] = {}
        for key, said in self._read():
            if key not in found or said["at"] > found[key]["at"]:
                found[key] = said
        return found

    def _read(self) -> Iterator[tuple[str, Json]]:
        """Only what we wrote ourselves: others may write there too, and could silence us."""
        for file in self.files:
            for key, said in _content(file, self._whose()).items():
                if _is_whole(said):
                    yield key, said

    def _whose(self) -> set[int]:
        """Ours, and for root, who reads for others, the state directory's owner."""
        with contextlib.suppress(OSError):
            return {os.geteuid(), self._state_dir.stat().st_uid}
        return {os.geteuid()}

    def _write(self, known: dict[str, Json]) -> bool:
        """Into the first room that takes it; elsewhere nothing may be left that says otherwise."""
        content, written = json.dumps(known).encode(), False
        for file in self.files:
            with contextlib.suppress(OSError):
                if known and not written:
                    _replace(file, content)
                    written = True
                else:
                    file.unlink(missing_ok=True)
        return written


def _stands(said: Json, now: float) -> bool:
    passed = now - said["at"]  # below 0: of another boot
    return bool(0 <= passed < AGAIN_AFTER_S[min(said["times"], len(AGAIN_AFTER_S)) - 1])


def _rooms() -> tuple[Path, ...]:
    """Memory of this boot that is the same for a unit, however hardened, and for a person."""
    return (Path("/dev/shm"), Path(f"/run/user/{os.geteuid()}"))  # noqa: S108 - see `_content`


def _content(file: Path, owners: set[int]) -> dict[str, Any]:
    try:
        fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return {}
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid not in owners:
            return {}
        said = json.loads(os.pread(fd, _LARGEST, 0))
    except (OSError, ValueError):
        return {}
    finally:
        os.close(fd)
    return said if isinstance(said, dict) else {}


def _is_whole(said: object) -> bool:
    if not isinstance(said, dict):
        return False
    numbers = all(isinstance(said.get(name), int | float) for name in ("at", "since"))
    times = said.get("times")
    return numbers and isinstance(times, int) and times > 0 and isinstance(said.get("because"), str)


def _replace(file: Path, content: bytes) -> None:
    """As a whole, and never through a link that somebody else has put there."""
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        beside.unlink()
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, content)
    finally:
        os.close(fd)
    os.replace(beside, file)
