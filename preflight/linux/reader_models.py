"""The part of the reading child that looks into models: headers, holes, vocabularies, samples.

Standard library only. Of a large file nothing is read but its header and a few windows.
"""

from __future__ import annotations

import errno
import hashlib
import os
import time
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import BinaryIO

from preflight.linux.reader_base import Json, fault, mount_of, user_name
from preflight.models import gguf, safetensors
from preflight.models.gguf import Array, BadGguf, Header
from preflight.models.model import TOKENS, scalars, together

_MARKERS = (
    ".aria2",
    ".part",
    ".partial",
    ".crdownload",
    ".incomplete",
    ".download",
    ".downloadInProgress",
)
"""What aria2, curl, wget, browsers, huggingface_hub and llama.cpp (common/download.cpp of b11434)
write beside a file, or call it, while a download goes on."""

_MOST_EXTENTS = 4096
_MOST_KEPT = 16 << 20
_ROW = 384  # bytes of memory that a row of a tensor table takes, about
_WINDOW = 64 << 10
_WINDOWS = 16
_PIECE = 1 << 20
_COMPARE_S = 0.8  # of processor time

_Key = tuple[str, int, int, int, int]
_headers: dict[_Key, tuple[Header | BadGguf, int]] = {}


def _weight(header: Header | BadGguf) -> int:
    """How much memory a header holds on to, about."""
    if isinstance(header, BadGguf):
        return _ROW
    texts = sum(len(value) for value in header.keys.values() if isinstance(value, str))
    numbers = sum(
        8 * len(value.values or ()) for value in header.keys.values() if isinstance(value, Array)
    )
    return _ROW * (len(header.tensors) + len(header.keys)) + texts + numbers


def header_of(path: str) -> Header | BadGguf:
    """The header of a file, read once as long as the file stays the same. Raises OSError."""
    seen = Path(path).stat()
    same = (path, seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns)
    if same in _headers:
        return _headers[same][0]
    header = gguf.read_header(path)
    _headers[same] = header, _weight(header)
    kept = sum(weight for _, weight in _headers.values())
    for oldest in list(_headers)[:-1]:
        if kept <= _MOST_KEPT:
            break
        kept -= _headers.pop(oldest)[1]
    return header


def read_gguf(asked: Json) -> Json:
    """A GGUF header, and whether its tensors were all written: GgufFact's fields."""
    path = asked["path"]
    try:
        header = header_of(path)
        marker = _marker(path)
        if isinstance(header, BadGguf):
            return {"bad": f"{header.why} (at byte {header.at})", "marker": marker}
        said = _unwritten(path, header.data_start, min(header.needed_size, header.file_size))
    except OSError as error:
        return fault(error)
    return {
        "size": header.file_size,
        "needed": header.needed_size,
        "version": header.version,
        "tensors": len(header.tensors),
        "untold": header.untold,
        "misplaced": header.misplaced,
        "keys": scalars(header),
        "marker": marker,
        **said,
    }


def _marker(path: str) -> str:
    """A file that says that a download into this one goes on."""
    for name in dict.fromkeys((path, os.path.realpath(path))):
        for ending in _MARKERS:
            if name.endswith(ending):
                return name
            if os.path.lexists(name + ending):
                return name + ending
    return ""


def read_safetensors(asked: Json) -> Json:
    """A safetensors header, or an index of such files: SafetensorsFact's fields."""
    path = asked["path"]
    try:
        marker = _marker(path)
        if path.endswith(".json"):
            names = safetensors.read_index(path)
            said = {"bad": names} if isinstance(names, str) else {"names": list(names)}
            return {"marker": marker, **said}
        with Path(path).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            weights = safetensors.read_weights(file, size)
        if isinstance(weights, str):
            return {"bad": weights, "size": size, "marker": marker}
        unwritten = _unwritten(path, weights.data_start, min(weights.needed, size))
    except OSError as error:
        return fault(error)
    return {
        "size": size,
        "needed": weights.needed,
        "tensors": weights.tensors,
        "marker": marker,
        **unwritten,
    }


def _unwritten(path: str, start: int, end: int) -> Json:
    """What of the tensors was never written: those fields of a fact."""
    hole, hollow = _holes(path, start, end)
    said: Json = {"hole": hole, "hollow": hollow}
    if hole >= 0:
        kind, _ = mount_of(os.path.realpath(path), Path(path).stat().st_dev)
        said["zeros_are_holes"] = kind == "zfs"
    return said


def _holes(path: str, start: int, end: int) -> tuple[int, int]:
    """The first byte of the tensors that was never written, and how many there are; -1 for none.

    `st_blocks` does not tell: space that was only reserved counts there as used.
    """
    first, hollow, at = -1, 0, start
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        for _ in range(_MOST_EXTENTS):
            if at >= end:
                break
            hole = os.lseek(fd, at, os.SEEK_HOLE)
            if hole >= end:
                break
            first = hole if first < 0 else first
            at = _data_after(fd, hole, end)
            hollow += min(at, end) - hole
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP, errno.ENXIO):
            raise
    finally:
        os.close(fd)
    return first, hollow


def _data_after(fd: int, hole: int, end: int) -> int:
    try:
        return os.lseek(fd, hole, os.SEEK_DATA)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return end  # nothing but holes from here on


def read_model(asked: Json) -> Json:
    """All files of one model together: ModelFact's fields."""
    headers: list[Header] = []
    for path in asked["paths"]:
        try:
            header = header_of(path)
        except OSError as error:
            said = fault(error)
            return {**said, "said": f"{path}: {said['said']}"}
        if isinstance(header, BadGguf):
            return {"bad": f"{path}: {header.why} (at byte {header.at})"}
        headers.append(header)
    if not headers:
        return {"bad": "no file"}
    return together(headers, [(pattern, place) for pattern, place in asked.get("overrides", ())])


def compare_vocabularies(asked: Json) -> Json:
    """The words of two models, one by one: Vocabularies' fields."""
    lists: list[Array] = []
    for path in (asked["one"], asked["other"]):
        try:
            header = header_of(path)
        except OSError as error:
            return fault(error)
        tokens = header.keys.get(TOKENS) if isinstance(header, Header) else None
        if not isinstance(tokens, Array):
            return {"fault": "ENODATA", "said": f"{path} has no vocabulary"}
        lists.append(tokens)
    found: Json = {"one": lists[0].count, "other": lists[1].count}
    try:
        with Path(asked["one"]).open("rb") as one, Path(asked["other"]).open("rb") as other:
            if _same_bytes(one, lists[0], other, lists[1]):
                return found
            return found | _differences(_words(one, lists[0]), _words(other, lists[1]))
    except OSError as error:
        return fault(error)


def _same_bytes(one: BinaryIO, first: Array, other: BinaryIO, second: Array) -> bool:
    left = first.end - first.start
    if left != second.end - second.start:
        return False
    one.seek(first.start)
    other.seek(second.start)
    while left > 0:
        piece = one.read(min(left, _PIECE))
        if not piece or piece != other.read(len(piece)):
            return False
        left -= len(piece)
    return True


def _words(file: BinaryIO, tokens: Array) -> Iterator[bytes]:
    """The words of a list of texts, each by its length and its bytes."""
    file.seek(tokens.start)
    left = tokens.end - tokens.start
    for _ in range(tokens.count):
        length = int.from_bytes(file.read(8), "little")
        left -= 8 + length
        if left < 0:
            return
        yield file.read(length)


def _differences(one: Iterator[bytes], other: Iterator[bytes]) -> Json:
    ends = time.thread_time() + _COMPARE_S
    differ, first = 0, -1
    for place, (word, another) in enumerate(zip_longest(one, other)):
        if word is None or another is None:
            break
        if word != another:
            differ += 1
            first = place if first < 0 else first
        if place % 4096 == 0 and time.thread_time() > ends:
            return {"fault": "EFBIG", "said": "they are too long to be compared"}
    return {"differ": differ, "first": first}


def sample_file(asked: Json) -> Json:
    """What a file is, by its header and 17 windows of its content: Sampled's fields."""
    path = asked["path"]
    try:
        header = header_of(path)
        with Path(path).open("rb", buffering=0) as file:
            seen = os.fstat(file.fileno())
            start = header.data_start if isinstance(header, Header) else _WINDOW
            head = hashlib.sha256()
            for piece in _pieces(file, 0, min(start, seen.st_size)):
                head.update(piece)
            sample = hashlib.sha256()
            for place in _places(seen.st_size):
                for piece in _pieces(file, place, _WINDOW):
                    sample.update(piece)
    except OSError as error:
        return fault(error)
    return {
        "target": os.path.realpath(path),
        "size": seen.st_size,
        "inode": seen.st_ino,
        "mtime_ns": seen.st_mtime_ns,
        "user": user_name(seen.st_uid),
        "head": head.hexdigest(),
        "sample": sample.hexdigest(),
    }


def _places(size: int) -> list[int]:
    """Where the windows lie: evenly over the file, and one at its very end."""
    last = max(0, size - _WINDOW)
    return [*dict.fromkeys(last * number // _WINDOWS for number in range(_WINDOWS + 1))]


def _pieces(file: BinaryIO, start: int, count: int) -> Iterator[bytes]:
    file.seek(start)
    while count > 0 and (piece := file.read(min(count, _PIECE))):
        count -= len(piece)
        yield piece
