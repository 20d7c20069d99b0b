"""How verbs answer: text for people on standard output, or exactly one JSON object. Knows no verb."""

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jobs.errors import Problem, render
from runner import secrets, words
from runner.outcome import USAGE

_COLOURS = {
    "pass": "32",
    "proven": "32",
    "serving": "32",
    "warn": "33",
    "unknown": "33",
    "unproven": "33",
    "skipped": "2",
    "refused": "33",
    "interrupted": "33",
    "fail": "31",
    "refuted": "31",
    "contradicted": "31",
    "broken": "31",
    "bug": "31",
    "down": "31",
    "degraded": "31",
    "production down": "31",
}


class Failure(Exception):
    """A verb cannot answer: what is wrong, where, and what to do about it."""

    def __init__(
        self,
        message: str,
        *,
        code: int = USAGE,
        where: str = "",
        remedy: str = "",
        problems: Sequence[Problem] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.where = where
        self.remedy = remedy
        self.problems = tuple(problems)

    def to_json(self) -> dict[str, Any]:
        """The object that `--json` prints instead of the answer."""
        error: dict[str, Any] = {
            "code": self.code,
            "where": self.where,
            "message": self.message,
            "remedy": self.remedy,
        }
        if self.problems:
            error["problems"] = [problem.to_json() for problem in self.problems]
        return {"error": error}

    def __str__(self) -> str:
        """For people: where, what, and what to do; every problem of a file on a line of its own."""
        if self.problems:
            return "\n".join(render(problem) for problem in self.problems)
        said = ": ".join(part for part in (self.where, self.message) if part)
        return f"{said} → {self.remedy}" if self.remedy else said


def say(*lines: str) -> None:
    """Print lines of text without secrets; names in them are escaped by whoever puts them there."""
    _write("".join(f"{secrets.redact(line)}\n" for line in lines))


def verbatim(text: str) -> None:
    """Print what other programs read as it stands; whoever calls this knows of no secret in it."""
    _write(text)


def answer(value: Mapping[str, Any], text: str | Iterable[str], *, as_json: bool) -> None:
    """Print the answer of a verb: the object, or its text."""
    if as_json:
        safe = secrets.redact_tree(value)
        _write(json.dumps(safe, indent=2, ensure_ascii=False, default=str) + "\n")
    else:
        say(*([text] if isinstance(text, str) else text))


def complain(failure: Failure, *, as_json: bool) -> None:
    """Say why there is no answer: on standard error, or as the one JSON object on standard output."""
    if as_json:
        answer(failure.to_json(), "", as_json=True)
    else:
        said = words.shown(failure, lines=True)
        warn(said if failure.where.startswith("runner ") else f"runner: {said}")


def warn(text: str) -> None:
    """One line on standard error."""
    try:
        if sys.stderr is not None:
            sys.stderr.write(f"{secrets.redact(text)}\n")
            sys.stderr.flush()
    except OSError:
        _to_nowhere(2)


def on_terminal() -> bool:
    """Whether a person sees standard output."""
    try:
        return sys.stdout is not None and sys.stdout.isatty()
    except ValueError:  # closed
        return False


def coloured(word: str, text: str | None = None) -> str:
    """The text in the colour of a state or outcome, on a terminal that wants colours."""
    shown = words.shown(word if text is None else text)
    code = _COLOURS.get(word.lower())
    wanted = on_terminal() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    return f"\x1b[{code}m{shown}\x1b[0m" if code and wanted else shown


def columns(rows: Sequence[Sequence[str]], head: Sequence[str] = ()) -> list[str]:
    """Rows as aligned lines; the heading only on a terminal, so that scripts get rows alone."""
    cells = [[words.shown(cell) for cell in row] for row in rows]
    if not cells:
        return []
    titles = [[cell.upper() for cell in head]] if head and on_terminal() else []
    widths = [max(map(len, column)) for column in zip(*titles, *cells, strict=True)]
    lines = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in titles]
    lines += [
        [coloured(cell, cell.ljust(width)) for cell, width in zip(row, widths, strict=True)]
        for row in cells
    ]
    return ["  ".join(line).rstrip() for line in lines]


def _write(text: str) -> None:
    try:
        if sys.stdout is not None:
            sys.stdout.write(text)
            sys.stdout.flush()
    except OSError:  # a full disk or a reader who left: neither changes what a run found
        _to_nowhere(1)
    except UnicodeEncodeError:  # a locale without UTF-8
        sys.stdout.buffer.write(text.encode("ascii", "backslashreplace"))


def _to_nowhere(fd: int) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), fd)
