"""Tells systemd how we are, where it asked. Standard library only."""

from __future__ import annotations

import contextlib
import os
import socket


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
