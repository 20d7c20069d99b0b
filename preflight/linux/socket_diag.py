"""Listening sockets straight from the kernel, by netlink: sock_diag(7). Standard library only.

The text of /proc/net/tcp walks every connection of the machine to find the few that listen; this
asks for those alone, and also tells whether an IPv6 socket leaves IPv4 alone. It must not judge.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

_NETLINK_SOCK_DIAG = 4
_BY_FAMILY = 20
_REQUEST_DUMP = 0x301
_INTERRUPTED = 0x10  # NLM_F_DUMP_INTR: the table changed while it was told
_ERROR, _DONE = 2, 3
_ESTABLISHED, _LISTEN = 1 << 1, 1 << 10
_V6ONLY = 11  # INET_DIAG_SKV6ONLY
_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBxIH46x")
_MESSAGE = struct.Struct("=4B2H16s16s3I5I")
_ATTRIBUTE = struct.Struct("=HH")
_WITHIN_S = 1.0


@dataclass(frozen=True, slots=True)
class Row:
    """One listening socket. `only6` says that an IPv6 socket takes no IPv4."""

    address: str
    port: int
    uid: int
    inode: int
    v6: bool
    only6: bool = False


def listening() -> list[Row]:
    """Every listening TCP socket of this network namespace. OSError where the kernel does not tell."""
    return _dump(_LISTEN, 0)


def established(port: int) -> int:
    """How many connections to this local port are open. OSError where the kernel does not tell."""
    return len(_dump(_ESTABLISHED, port))


def _dump(states: int, port: int) -> list[Row]:
    rows: list[Row] = []
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_SOCK_DIAG) as asked:
        asked.settimeout(_WITHIN_S)  # it answers at once, or it is not there
        for family in (socket.AF_INET, socket.AF_INET6):
            request = _REQUEST.pack(family, socket.IPPROTO_TCP, 0, states, socket.htons(port))
            size = _HEADER.size + len(request)
            asked.send(_HEADER.pack(size, _BY_FAMILY, _REQUEST_DUMP, family, 0) + request)
            rows += _answer(asked)
    return rows


def _answer(asked: socket.socket) -> Iterator[Row]:
    """The rows of one dump, to its end."""
    while True:
        data = asked.recv(1 << 16)
        at = 0
        while at + _HEADER.size <= len(data):
            size, kind, flags, _, _ = _HEADER.unpack_from(data, at)
            if size < _HEADER.size or kind == _ERROR or flags & _INTERRUPTED:
                raise OSError("the kernel does not tell its sockets by netlink")
            if kind == _DONE:
                return
            yield _row(data[at + _HEADER.size : at + size])
            at += (size + 3) & ~3


def _row(body: bytes) -> Row:
    if len(body) < _MESSAGE.size:
        raise OSError("the kernel tells a socket that is too short")
    found = _MESSAGE.unpack_from(body)
    v6 = found[0] == socket.AF_INET6
    address = (
        socket.inet_ntop(socket.AF_INET6, found[6])
        if v6
        else socket.inet_ntop(socket.AF_INET, found[6][:4])
    )
    return Row(
        address=address,
        port=socket.ntohs(found[4]),
        uid=found[14],
        inode=found[15],
        v6=v6,
        only6=v6 and _only6(body[_MESSAGE.size :]),
    )


def _only6(attributes: bytes) -> bool:
    at = 0
    while at + _ATTRIBUTE.size <= len(attributes):
        size, kind = _ATTRIBUTE.unpack_from(attributes, at)
        if size < _ATTRIBUTE.size:
            return False
        if kind == _V6ONLY and size > _ATTRIBUTE.size:
            return attributes[at + _ATTRIBUTE.size] != 0
        at += (size + 3) & ~3
    return False
