"""Change and read a command line flag by flag, knowing which names mean the same flag. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from jobs.shell import program_at

Setting = str | bool | tuple[str, ...]
"""The value of one flag: text, true for a switch, several texts for a flag that may be repeated."""

Kind = Literal["switch", "int", "float", "layers", "on", "path", "text"]

_CHOICES = ("on", "off", "auto")
_VALUES: Mapping[str, tuple[re.Pattern[str], str]] = MappingProxyType(
    {
        "int": (re.compile(r"-?\d+"), "write a whole number"),
        "float": (re.compile(r"-?\d+(\.\d*)?([eE]-?\d+)?|-?\.\d+"), "write a number"),
        "layers": (re.compile(r"-?\d+|auto|all"), 'write a number, "auto" or "all"'),
        "path": (re.compile(r"/.*", re.DOTALL), "write the whole path"),
        "text": (re.compile(r".*", re.DOTALL), ""),
    }
)
_FLAG = re.compile(r"--?[A-Za-z]")


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag of a program, under all its names."""

    names: tuple[str, ...]
    kind: Kind = "text"
    repeats: bool = False
    env: str | None = None


class Flags:
    """All flags of one program."""

    def __init__(self, flags: Sequence[Flag] = ()) -> None:
        self.all = tuple(flags)
        self._named: Mapping[str, Flag] = MappingProxyType(
            {name: flag for flag in flags for name in flag.names}
        )

    @classmethod
    def from_text(cls, text: str) -> "Flags":
        """Read `names : kind[*] [: ENVIRONMENT_VARIABLE]`, a line a flag; `*` = may be repeated."""
        flags = []
        for line in text.strip().splitlines():
            names, kind, *env = (part.strip() for part in line.split(" : "))
            plain: Kind = kind.rstrip("*")  # type: ignore[assignment]  # the tests read every line
            flags.append(Flag(tuple(names.split()), plain, kind.endswith("*"), *env))
        return cls(flags)

    def find(self, name: str) -> Flag | None:
        """The flag of this name, if the program's table has it."""
        return self._named.get(name)

    def same(self, one: str, other: str) -> bool:
        """Whether both names mean the same flag."""
        return one == other or (other in flag.names if (flag := self.find(one)) else False)

    def of_env(self, variable: str) -> Flag | None:
        """The flag that this environment variable sets unseen."""
        return next((flag for flag in self.all if flag.env == variable), None)


@dataclass(frozen=True, slots=True)
class Piece:
    """A flag with its value, or a word that is neither (then `name` is empty)."""

    name: str
    words: tuple[str, ...]

    @property
    def value(self) -> str | None:
        """The flag's value; None for a switch."""
        if len(self.words) > 1:
            return self.words[1]
        return self.words[0].partition("=")[2] if self.name and "=" in self.words[0] else None


def pieces(argv: Sequence[str], flags: Flags) -> Iterator[Piece]:
    """The command line in pieces: the program and what stands before it, then flag by flag."""
    start = min(program_at(argv) + 1, len(argv))
    if start:
        yield Piece("", tuple(argv[:start]))
    place = start
    while place < len(argv):
        word, following = argv[place], argv[place + 1 : place + 2]
        if not _FLAG.match(word):
            yield Piece("", (word,))
            place += 1
            continue
        flag = flags.find(word)
        if flag is None and "=" in word:
            yield Piece(word.partition("=")[0], (word,))
            place += 1
            continue
        takes = bool(following) and _takes(flag, following[0])
        yield Piece(word, (word, *following) if takes else (word,))
        place += 2 if takes else 1


def _takes(flag: Flag | None, following: str) -> bool:
    """Whether the next word is this flag's value."""
    if flag is None:
        return not _FLAG.match(following)
    if flag.kind == "on":
        return following in _CHOICES
    return flag.kind != "switch"


def derive(
    argv: Sequence[str], put: Mapping[str, Setting], drop: Sequence[str], flags: Flags
) -> tuple[str, ...]:
    """The command line with the flags of `drop` gone and those of `put` set, where they stood before."""
    parts = [
        piece
        for piece in pieces(argv, flags)
        if not any(piece.name and flags.same(name, piece.name) for name in drop)
    ]
    for name, setting in put.items():
        parts = list(_put(parts, name, setting, flags))
    return tuple(word for piece in parts for word in piece.words)


def _put(parts: Sequence[Piece], name: str, setting: Setting, flags: Flags) -> Iterator[Piece]:
    done = False
    for piece in parts:
        if not piece.name or not flags.same(name, piece.name):
            yield piece
        elif not done:
            done = True
            yield from _written(name, setting, glued="=" in piece.words[0])
    if not done:
        yield from _written(name, setting, glued=False)


def _written(name: str, setting: Setting, *, glued: bool) -> Iterator[Piece]:
    if setting is True:
        yield Piece(name, (name,))
        return
    values = setting if isinstance(setting, tuple) else (str(setting),)
    for value in values:
        yield Piece(name, (f"{name}={value}",) if glued else (name, value))


def value_of(argv: Sequence[str], name: str, flags: Flags) -> str | None:
    """The value that the program would use for this flag: the last one given."""
    found = None
    for piece in pieces(argv, flags):
        if piece.name and flags.same(name, piece.name):
            found = piece.value
    return found


def values_of(argv: Sequence[str], name: str, flags: Flags) -> tuple[str, ...]:
    """All values of a flag that may be repeated."""
    found = (piece for piece in pieces(argv, flags) if piece.name and flags.same(name, piece.name))
    return tuple(piece.value for piece in found if piece.value is not None)


def may_repeat(name: str, flags: Flags) -> bool:
    """Whether the program takes this flag several times."""
    return (flag := flags.find(name)) is not None and flag.repeats


def has(argv: Sequence[str], name: str, flags: Flags) -> bool:
    """Whether this flag is given, under any of its names."""
    return any(piece.name and flags.same(name, piece.name) for piece in pieces(argv, flags))


def faults(argv: Sequence[str], flags: Flags) -> list[tuple[str, str]]:
    """What the program would misread or silently overrule: (what is wrong, what to do) a fault."""
    wrong: list[tuple[str, str]] = []
    seen: dict[Flag, Piece] = {}
    for piece in pieces(argv, flags):
        flag = flags.find(piece.name) if piece.name else None
        if flag is None:
            continue
        first = seen.setdefault(flag, piece)
        if first is not piece and not flag.repeats:
            both = f"`{_shown(first, flag)}` and `{_shown(piece, flag)}`"
            wrong.append(
                (f"{both} are the same flag; only the last would count", "keep one of them")
            )
        if fault := _misread(piece, flag):
            wrong.append(fault)
    return wrong


def _shown(piece: Piece, flag: Flag) -> str:
    """A flag as it was given; free text may be a secret, and is left out."""
    return piece.name if flag.kind == "text" else " ".join(piece.words)


def _misread(piece: Piece, flag: Flag) -> tuple[str, str] | None:
    rule = _VALUES.get(flag.kind)
    if rule is None:
        return None
    shown, value = " ".join(piece.words), piece.value
    if value is None:
        return f"`{shown}` has no value", "add its value, or remove the flag"
    pattern, remedy = rule
    if pattern.fullmatch(value):
        return None
    if flag.kind == "path":
        return f"`{shown}` is a relative path", remedy
    return f"`{shown}`: the server would misread `{value}`", remedy
