"""What a pattern would match now, for a person to see why it is refused. Nothing is ever chosen by it."""

import re
from contextlib import closing

from preflight.linux.files import LinuxFiles
from preflight.wording import named, printable

_WITHIN_S = 1.0
_PIECES = re.compile(r"\*|\?|\[[^\]]*\]|\{[^{}]*\}|[^*?\[{]+|.", re.DOTALL)


def matching(path: str) -> str:
    """The files that a pattern matches now: " (now a.gguf, b.gguf)"; empty where none can be told.

    Only a pattern in the last part of a path is looked at, in a child that a dead mount cannot hold
    up.
    """
    directory, _, pattern = path.rpartition("/")
    if not directory.startswith("/") or re.search(r"[*?\[{]", directory):
        return ""
    try:
        names = re.compile("".join(_regex(piece) for piece in _PIECES.findall(pattern)), re.DOTALL)
    except re.error:
        return ""
    with closing(LinuxFiles()) as files:
        there = [other.name for other in files.neighbours(directory, within=_WITHIN_S)]
    found = sorted(name for name in there if names.fullmatch(name))
    return f" (now {printable(named(found, 4))})" if found else ""


def _regex(piece: str) -> str:
    """One piece of a shell's pattern as a regular expression."""
    if piece == "*":
        return ".*"
    if piece == "?":
        return "."
    if piece.startswith("[") and len(piece) > 2:
        inside = piece[1:-1].replace("\\", "\\\\")
        return f"[^{inside[1:]}]" if inside.startswith("!") else f"[{inside}]"
    if piece.startswith("{") and piece.endswith("}"):
        return f"(?:{'|'.join(re.escape(word) for word in piece[1:-1].split(','))})"
    return re.escape(piece)
