"""The secrets that units get from systemd, lent to a verb that root runs by hand. Standard library only.

`runner alerts test` must be able to prove the path that a run's alert will take, and it becomes the
owner before it does anything: who may not read the files of root's. So they are read before.
"""

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from runner import where

VARIABLE = "CREDENTIALS_DIRECTORY"
_IN_MEMORY = Path("/dev/shm")  # noqa: S108 - the directory made there is the owner's alone


def named(said: object) -> Iterator[str]:
    """Every `credential = "name"` in a configuration, wherever it stands."""
    if isinstance(said, dict):
        name = said.get("credential")
        if isinstance(name, str) and len(said) == 1:
            yield name
        for value in said.values():
            yield from named(value)
    elif isinstance(said, list):
        for value in said:
            yield from named(value)


def file_of(config: Path, name: str) -> Path:
    """Where root keeps a credential: a file of its name beside the configuration."""
    return config.parent / name


def lend(config: Path, uid: int, gid: int) -> None:
    """Put the configuration's credentials where systemd would, for the user that root becomes.

    Only root can. What cannot be read is left out: whoever needs it says so. In memory, closed to
    others, and gone when this process ends in order.
    """
    if os.geteuid() != 0 or os.environ.get(VARIABLE):
        return
    found: dict[str, bytes] = {}
    with suppress(OSError, ValueError):
        for name in set(named(where.read(config))):
            if "/" not in name:
                with suppress(OSError):
                    found[name] = file_of(config, name).read_bytes()
    if not found or not _IN_MEMORY.is_dir():
        return
    room = Path(tempfile.mkdtemp(prefix="runner-credentials-", dir=_IN_MEMORY))
    for name, secret in found.items():
        fd = os.open(room / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o400)
        with os.fdopen(fd, "wb") as file:
            os.fchown(fd, uid, gid)
            file.write(secret)
    os.chown(room, uid, gid)
    os.environ[VARIABLE] = str(room)
    atexit.register(shutil.rmtree, room, ignore_errors=True)
