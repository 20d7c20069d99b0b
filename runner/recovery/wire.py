"""How the run and its guardian talk: one JSON object a line over a socket in the run's directory."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAME = "keeper.sock"
_LARGEST = 4 << 20

Json = dict[str, Any]


@contextlib.contextmanager
def short_path(directory: Path) -> Iterator[str]:
    """The socket's path by way of an open directory: a socket's own path may have 107 bytes only."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{NAME}"
    finally:
        os.close(fd)


def listen(directory: Path) -> socket.socket:
    """The guardian's end. Raises OSError."""
    (directory / NAME).unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with short_path(directory) as path:
        listener.bind(path)
    listener.listen(4)
    listener.setblocking(False)
    return listener


def connect(directory: Path, within: float) -> socket.socket:
    """The run's end. Raises OSError while nobody listens."""
    asking = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    asking.settimeout(within)
    try:
        with short_path(directory) as path:
            asking.connect(path)
    except OSError:
        asking.close()
        raise
    return asking


class Lines:
    """JSON objects over one socket, whole lines at a time."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._held = b""

    def send(self, said: Json) -> None:
        """Send one object. Raises OSError when the other side is gone."""
        self.connection.sendall(json.dumps(said).encode() + b"\n")

    def receive(self) -> Json | None:
        """The next object; None when the other side has closed. Raises OSError, TimeoutError too."""
        while b"\n" not in self._held:
            piece = self.connection.recv(65536)
            if not piece or len(self._held) > _LARGEST:
                return None
            self._held += piece
        line, _, self._held = self._held.partition(b"\n")
        said = json.loads(line)
        return said if isinstance(said, dict) else {}

    def close(self) -> None:
        """Close the socket."""
        self.connection.close()
