"""Puts a pinned file back where production wants it, right before a start. Standard library only.

A link to bytes that were kept, never a copy, and never over a file that is there.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Json = Mapping[str, Any]


def put_back(pins: Sequence[Json]) -> Iterator[str]:
    """Link each pinned file whose path is empty back to its path; what was done, in words.

    `pins` are {path, pin, size, inode}. What comes without an inode is compared by its size alone.
    """
    for one in pins:
        path = str(one.get("path"))
        if not is_gone(path):
            continue
        try:
            put_one_back(one)
        except OSError as error:
            yield f"{path} is gone, and its pin could not be put back: {error.strerror or error}"
        else:
            yield f"{path} was gone; its pinned bytes were put back"


def is_gone(path: str) -> bool:
    """Whether nothing lies at a path, or where its links end: then there is room for its bytes."""
    return not os.path.lexists(os.path.realpath(path))


def put_one_back(one: Json) -> None:
    """Link one pin to its path, which is empty; where that is a link, to where it ends.

    Raises OSError, also where the pin is not what was pinned.
    """
    pin, place = str(one.get("pin")), os.path.realpath(str(one.get("path")))
    found = os.stat(pin)
    inode = one.get("inode", found.st_ino)
    if (found.st_size, found.st_ino) != (one.get("size"), inode):
        raise OSError(errno.ESTALE, "it is not what was pinned")
    os.makedirs(os.path.dirname(place), exist_ok=True)
    os.link(pin, place)
