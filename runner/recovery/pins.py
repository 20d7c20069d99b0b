"""Puts a pinned file back where production wants it, right before a start. Standard library only.

A link to bytes that were kept, never a copy, and never over a file that is there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Json = Mapping[str, Any]


def put_back(pins: Sequence[Json]) -> Iterator[str]:
    """Link each pinned file whose path is empty back to its path; what was done, in words."""
    for one in pins:
        path, pin = str(one.get("path")), str(one.get("pin"))
        if os.path.lexists(path):
            continue
        try:
            found = os.stat(pin)
            if found.st_size != one.get("size"):
                yield f"{path} is gone, and its pin is not what was pinned"
                continue
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.link(pin, path)
        except OSError as error:
            yield f"{path} is gone, and its pin could not be put back: {error.strerror or error}"
        else:
            yield f"{path} was gone; its pinned bytes were put back"
