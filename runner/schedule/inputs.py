"""Watches the files that coming runs need, by explicit path, and says at once when one changes.

watchfiles sees what happens on this machine; what another one does to a shared disk is found by the
next look. It opens and reads nothing.
"""

import contextlib
import logging
import os
import queue
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from watchfiles import Change, watch

logging.getLogger("watchfiles").setLevel(logging.WARNING)  # it tells of every change of any file

_STEP_MS = 200
_DEBOUNCE_MS = 400
_WORDS = {Change.added: "appeared", Change.modified: "changed", Change.deleted: "was deleted"}
_BUSY = frozenset({"/", "/tmp", "/var/tmp", "/dev/shm", "/home", "/root", "/proc", "/sys", "/dev"})  # noqa: S108 - directories that are not watched for their own sake


@dataclass(frozen=True, slots=True)
class Changed:
    """What happened to one of the paths."""

    path: str
    what: str

    def __str__(self) -> str:
        """For people."""
        return f"{PurePosixPath(self.path).name} {self.what}"


class Inputs:
    """A thread that watches; `fd` has news when something happened."""

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._changed: queue.SimpleQueue[Changed] = queue.SimpleQueue()
        self._paths: frozenset[str] = frozenset()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.places: tuple[str, ...] = ()

    def set(self, paths: Iterable[str]) -> None:
        """Watch these paths, and their directories, from now on."""
        wanted = frozenset(paths)
        places = tuple(sorted(_places(wanted)))
        if (wanted, places) == (self._paths, self.places):
            return
        self._end()
        self._paths, self.places = wanted, places
        if places:
            self._stop = threading.Event()
            self._thread = threading.Thread(
                target=self._watch, args=(places, self._stop), daemon=True, name="inputs"
            )
            self._thread.start()

    def changed(self) -> list[Changed]:
        """What happened since the last look, each once."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.fd)
        found: dict[Changed, None] = {}
        with contextlib.suppress(queue.Empty):
            while True:
                found[self._changed.get_nowait()] = None
        return list(found)

    def close(self) -> None:
        """End the thread."""
        self._end()
        os.close(self.fd)

    def _end(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=2.0)
            self._thread = None

    def _watch(self, places: tuple[str, ...], stop: threading.Event) -> None:
        try:
            for changes in watch(
                *places,
                watch_filter=self._is_ours,
                debounce=_DEBOUNCE_MS,
                step=_STEP_MS,
                stop_event=stop,
                recursive=False,
                ignore_permission_denied=True,
                raise_interrupt=False,
            ):
                for change, path in changes:
                    self._changed.put(Changed(path, _WORDS[change]))
                os.eventfd_write(self.fd, 1)
        except (OSError, RuntimeError) as error:
            # the early checks go on without us; a person learns that it is only those
            self._changed.put(Changed("", f"cannot be watched: {error}"))
            with contextlib.suppress(OSError):
                os.eventfd_write(self.fd, 1)

    def _is_ours(self, _: Change, path: str) -> bool:
        """Whether it is one of the files, or a directory that one of them lies in."""
        return path in self._paths or any(one.startswith(f"{path}/") for one in self._paths)


def _places(paths: Iterable[str]) -> Iterator[str]:
    """The directories to watch: each file's own, and the one above, which sees that one go."""
    for path in paths:
        for place in list(PurePosixPath(path).parents)[:2]:
            if str(place) not in _BUSY and os.path.isdir(place):
                yield str(place)
        parent = str(PurePosixPath(path).parent)
        if parent in _BUSY and os.path.isdir(parent) and parent not in {"/", "/proc", "/sys"}:
            yield parent


__all__ = ["Changed", "Inputs"]
