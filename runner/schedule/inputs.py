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
_BUSY = frozenset({"/", "/tmp", "/var/tmp", "/var/log", "/dev/shm", "/home", "/root", "/run"})  # noqa: S108 - these are looked at, and nothing is written there
"""Directories that are watched only for files that lie right in them."""

_NEVER = frozenset({"/", "/proc", "/sys", "/dev"})
_MODELS = (".gguf", ".safetensors", ".bin", ".pt", ".pth")
_TRIES = 5


@dataclass(frozen=True, slots=True)
class Changed:
    """What happened to one of the paths."""

    path: str
    what: str

    @property
    def blind(self) -> bool:
        """Nothing happened to a path: from now on nothing is seen."""
        return not self.path

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
        if (wanted, places) == (self._paths, self.places) and (self.alive or not places):
            return
        self._end()
        self._paths, self.places = wanted, places
        if places:
            self._stop = threading.Event()
            self._thread = threading.Thread(
                target=self._watch, args=(places, self._stop), daemon=True, name="inputs"
            )
            self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether something is watched now."""
        return self._thread is not None and self._thread.is_alive()

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
        for _ in range(_TRIES):
            try:
                self._tell_changes(places, stop)
            except FileNotFoundError:  # one of them went in this instant: those above see that
                places = tuple(place for place in places if _may_watch(place))
            except (OSError, RuntimeError) as error:
                self._say(Changed("", f"files cannot be watched: {error}"))
                return
            else:
                return

    def _tell_changes(self, places: tuple[str, ...], stop: threading.Event) -> None:
        """Until `stop`. Raises OSError and RuntimeError, also where the kernel's limit is reached:
        that must not pass for a permission that is missing.
        """
        for changes in watch(
            *places,
            watch_filter=self._is_ours,
            debounce=_DEBOUNCE_MS,
            step=_STEP_MS,
            stop_event=stop,
            recursive=False,
            ignore_permission_denied=False,
            raise_interrupt=False,
        ):
            self._say(*(Changed(path, _WORDS[change]) for change, path in changes))

    def _say(self, *changes: Changed) -> None:
        for change in changes:
            self._changed.put(change)
        with contextlib.suppress(OSError):
            os.eventfd_write(self.fd, 1)

    def _is_ours(self, _: Change, path: str) -> bool:
        """Whether it is one of the files, or a directory that one of them lies in."""
        return path in self._paths or any(one.startswith(f"{path}/") for one in self._paths)


def _places(paths: Iterable[str]) -> Iterator[str]:
    """The directories to watch: each file's own, and the one above, which sees that one go.

    Of models all of those above, since they lie in trees that are moved as a whole; the directories
    above programs are opened all the time, and each time would wake us.
    """
    for path in paths:
        own, *above = map(str, PurePosixPath(path).parents)
        far = above if path.endswith(_MODELS) else above[:1]
        for place in (own, *(one for one in far if one not in _BUSY)):
            if place not in _NEVER and _may_watch(place):
                yield place


def _may_watch(place: str) -> bool:
    """Whether a directory is there and may be listed, which is what the kernel asks for."""
    return os.path.isdir(place) and os.access(place, os.R_OK)


__all__ = ["Changed", "Inputs"]
