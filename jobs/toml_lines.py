"""Read a TOML file and remember on which line each key stands. Knows no model; tomllib does the parsing."""

import os
import re
import stat
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from jobs.errors import ConfigError, Problem

Key = tuple[str | int, ...]

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_PLACE = re.compile(r"\s*\(at line (\d+), column \d+\)")
_LARGEST = 1 << 20  # a configuration of more than a MiB is some other file


@dataclass(frozen=True)
class Document:
    """A TOML file as plain values, with the line of each key."""

    file: str
    values: dict[str, object]
    lines: Mapping[Key, int] = field(default_factory=dict)

    def line(self, key: Key) -> int | None:
        """The line of this key, or of the nearest table or value that holds it."""
        if (first := self.lines.get((*key, 0))) is not None and key not in self.lines:
            return first  # a list of tables begins with the first of them
        for length in range(len(key), 0, -1):
            if key[:length] in self.lines:
                return self.lines[key[:length]]
        return None


class NoPlainFile(OSError):
    """There is something of this name, and it is no file that can be read to its end."""


def open_plain(path: Path) -> BinaryIO:
    """Open a file without waiting: a pipe would wait for its writer. Raises OSError, NoPlainFile."""
    found = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(found).st_mode
    if not stat.S_ISREG(mode):
        os.close(found)
        raise NoPlainFile("is a directory" if stat.S_ISDIR(mode) else "is no regular file")
    return os.fdopen(found, "rb")


def read(path: Path, *, shown: str | None = None) -> Document:
    """Read a TOML file; raises ConfigError with file and line when it is missing or broken."""
    file = shown or str(path)
    try:
        with open_plain(path) as stream:
            raw = stream.read(_LARGEST + 1)
    except NoPlainFile as error:
        raise ConfigError(Problem(file, None, "", str(error), "name the file")) from None
    except OSError as error:
        reason = (error.strerror or "cannot be read").lower()
        raise ConfigError(
            Problem(file, None, "", reason, "check the path and its rights")
        ) from None
    if len(raw) > _LARGEST:
        raise ConfigError(Problem(file, None, "", "is larger than 1 MiB", "name the right file"))
    return parse(raw, file=file)


def parse(raw: bytes, *, file: str) -> Document:
    """Parse the bytes of a TOML file; raises ConfigError with the line of a mistake."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        problem = Problem(file, line, "", "is not UTF-8 text", "save it as UTF-8")
        raise ConfigError(problem) from None
    if text.startswith("\ufeff"):
        remedy = "save it as UTF-8 without one"
        raise ConfigError(Problem(file, 1, "", "begins with a byte order mark", remedy))
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(_syntax(str(error), text, file)) from None
    except RecursionError:
        raise ConfigError(
            Problem(file, None, "", "is nested too deeply", "write it flat")
        ) from None
    return Document(file, values, dict(_scan(text)))


def _syntax(said: str, text: str, file: str) -> Problem:
    found = _PLACE.search(said)
    line = int(found.group(1)) if found else text.rstrip().count("\n") + 1
    message = _PLACE.sub("", said).removesuffix(" (at end of document)")
    return Problem(file, line, "", f"is not TOML: {message}", "fix this line")


def _scan(text: str) -> Iterator[tuple[Key, int]]:
    """Yield each table header and each key with its line; the text is known to be valid TOML."""
    table: Key = ()
    counts: dict[Key, int] = {}
    rest = _Rest()
    for number, line in enumerate(text.split("\n"), start=1):
        if rest.open:
            rest.feed(line)
            continue
        start = line.strip()
        if not start or start.startswith("#"):
            continue
        if start.startswith("["):
            table = _header(start, counts)
            yield table, number
            continue
        names, value = _dotted(start)
        for length in range(1, len(names) + 1):
            yield (*table, *names[:length]), number
        rest.feed(value)


def _header(text: str, counts: dict[Key, int]) -> Key:
    """The key path of a `[table]` or `[[table]]` line; arrays of tables get their index."""
    many = text.startswith("[[")
    names, _ = _dotted(text.lstrip("[").lstrip())
    path: Key = ()
    for position, name in enumerate(names):
        path = (*path, name)
        if position == len(names) - 1 and many:
            counts[path] = counts.get(path, -1) + 1
        if path in counts:
            path = (*path, counts[path])
    return path


def _dotted(text: str) -> tuple[tuple[str, ...], str]:
    """Split `a."b.c".d = rest` into its names and what follows the `=` (or `]`)."""
    names: list[str] = []
    place = 0
    while place < len(text) and text[place] not in "=]":
        if text[place] in "\"'":
            end = _string_end(text, place)
            names.append(_unquoted(text[place:end]))
            place = end
        elif found := _BARE.match(text, place):
            names.append(found.group())
            place = found.end()
        else:
            place += 1
    return tuple(names), text[place + 1 :]


def _unquoted(text: str) -> str:
    value = tomllib.loads(f"x = {text}")["x"]
    return str(value)


def _string_end(text: str, start: int) -> int:
    quote, place = text[start], start + 1
    while place < len(text) and text[place] != quote:
        place += 2 if quote == '"' and text[place] == "\\" else 1
    return place + 1


class _Rest:
    """Whether a value goes on over the end of the line: an open bracket or an open multi-line string."""

    def __init__(self) -> None:
        self.depth = 0
        self.quote = ""

    @property
    def open(self) -> bool:
        return bool(self.depth or self.quote)

    def feed(self, text: str) -> None:
        place = 0
        while place < len(text):
            if self.quote:
                place = self._inside(text, place)
            elif text[place] == "#":
                return
            elif text.startswith(('"""', "'''"), place):
                self.quote = text[place : place + 3]
                place += 3
            elif text[place] in "\"'":
                place = _string_end(text, place)
            else:
                self.depth += (text[place] in "[{") - (text[place] in "]}")
                place += 1

    def _inside(self, text: str, place: int) -> int:
        if text.startswith(self.quote, place):
            end = place + 3
            while end < len(text) and end < place + 5 and text[end] == self.quote[0]:
                end += 1  # up to two quotes may stand right before the closing three
            self.quote = ""
            return end
        return place + (2 if self.quote == '"""' and text[place] == "\\" else 1)
