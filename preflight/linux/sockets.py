"""How /proc tells of TCP sockets: who listens, and who holds which. Standard library only.

The kernel's tables are read and nothing is connected or bound. Read it through `preflight.linux.proc`,
which has the processes beside it.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from preflight.linux import socket_diag
from preflight.linux.processes import link, open_files, pids

_LISTEN = "0A"
_ESTABLISHED = "01"


@dataclass(frozen=True, slots=True)
class Socket:
    """One LISTEN row of a socket table. The kernel tells uid and inode even of other users'."""

    address: str
    port: int
    uid: int
    inode: int
    v6: bool
    only6: bool = False
    """Whether it is known to take no IPv4; the text of /proc does not tell."""


def _address(text: str, *, v6: bool) -> str:
    raw = bytes.fromhex(text)
    if not v6:
        return socket.inet_ntop(socket.AF_INET, raw[::-1])
    words = struct.unpack("<4I", raw)
    return socket.inet_ntop(socket.AF_INET6, struct.pack(">4I", *words))


def _rows(path: str, *, v6: bool, state: str) -> list[Socket]:
    raw = Path(path).read_text(encoding="ascii")
    found: list[Socket] = []
    for line in raw.splitlines()[1:]:
        fields = line.split()
        if len(fields) < 10 or fields[3] != state:  # columns of the table
            continue
        address, _, port = fields[1].rpartition(":")
        found.append(
            Socket(
                address=_address(address, v6=v6),
                port=int(port, 16),
                uid=int(fields[7]),
                inode=int(fields[9]),
                v6=v6,
            )
        )
    return found


def listening(port: int | None = None, seen_from: int | None = None) -> list[Socket]:
    """Who listens, from the kernel's tables; OSError when they may not be read.

    With `seen_from`, a pid: in the network namespace of that process. A connect would also succeed
    on a stopped process, and a bind on a shared port: neither tells.
    """
    if seen_from is None:
        with suppress(OSError):
            return [row for row in map(_told, socket_diag.listening()) if port in (None, row.port)]
    place = "/proc/net" if seen_from is None else f"/proc/{seen_from}/net"
    rows = _rows(f"{place}/tcp", v6=False, state=_LISTEN)
    if Path(f"{place}/tcp6").exists():
        rows += _rows(f"{place}/tcp6", v6=True, state=_LISTEN)
    return [row for row in rows if port is None or row.port == port]


def _told(row: socket_diag.Row) -> Socket:
    return Socket(row.address, row.port, row.uid, row.inode, row.v6, row.only6)


def other_namespaces() -> dict[str, int]:
    """Every other network namespace that can be seen → a process that lives in it."""
    own = link("/proc/self/ns/net")
    found: dict[str, int] = {}
    for pid in pids():
        name = link(f"/proc/{pid}/ns/net")
        if name is not None and name != own:
            found.setdefault(name, pid)
    return found


def claimants(host: str, port: int) -> list[Socket]:
    """The listeners that would answer for `host`:`port`, or keep somebody else from it."""
    wild = ("0.0.0.0", "::")  # noqa: S104 - read here, never bound
    return [
        row for row in listening(port) if host in wild or row.address == host or row.address in wild
    ]


def established(port: int) -> int:
    """How many connections to this local port are open."""
    with suppress(OSError):
        return socket_diag.established(port)
    rows = _rows("/proc/net/tcp", v6=False, state=_ESTABLISHED)
    if Path("/proc/net/tcp6").exists():
        rows += _rows("/proc/net/tcp6", v6=True, state=_ESTABLISHED)
    return sum(row.port == port for row in rows)


def holders(inodes: set[int], among: Iterable[int] | None = None) -> dict[int, set[int]]:
    """inode → every pid that holds that socket. An inode nobody visible holds is missing.

    `among` limits the look to some pids: all of a busy machine takes many milliseconds.
    """
    wanted = {f"socket:[{inode}]": inode for inode in inodes}
    found: dict[int, set[int]] = {}
    for pid in pids() if among is None else among:
        for target in open_files(pid):
            inode = wanted.get(target)
            if inode is not None:
                found.setdefault(inode, set()).add(pid)
    return found


def owners(port: int, among: Iterable[int] | None = None) -> set[int]:
    """The pids that hold a listening socket on this port, as far as they can be seen.

    With `among`, only those of these pids that do.
    """
    rows = listening(port)
    held = holders({row.inode for row in rows}, among) if rows else {}
    return set().union(*held.values()) if held else set()
