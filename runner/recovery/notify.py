"""Tells systemd how we are, where it asked. Standard library only."""

from __future__ import annotations

import contextlib
import os
import socket
import time

_ALIVE_EVERY_S = 1.0
_said_at = 0.0


def notify(*said: str) -> None:
    """Send lines such as READY=1 to the service manager; nothing happens without one."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as manager,
    ):
        manager.sendto("\n".join(said).encode(), address)


def alive() -> bool:
    """Feed the manager's watchdog, where something was just done; whether it was time for that.

    For steps of work only: a thread that did nothing else would say that we live when we hang.
    """
    global _said_at  # noqa: PLW0603 - one process, one watchdog
    now = time.monotonic()
    if now - _said_at < _ALIVE_EVERY_S:
        return False
    _said_at = now
    notify("WATCHDOG=1")
    return True
