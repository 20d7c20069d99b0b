"""A command as a person writes it: a list, or one string without shell operators. Runs nothing."""

import re
import shlex
from collections.abc import Sequence
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

from jobs.fields import ExplicitPath, shell_leftover

_OPERATORS = ("&&", "||", ">>", "<<", "|", "&", ";", ">", "<", "(", ")", "\n")
_LONE_OPERATOR = re.compile(r"\d?(&&|\|\|?|;|>>?|<<?|&>|>&\d?|\d?>&\d)$|&$")
_VARIABLE = re.compile(r"\$(\{|[A-Za-z_])")

WRAPPERS = frozenset(
    [
        "docker",
        "podman",
        "nerdctl",
        "systemd-run",
        "ssh",
        "tmux",
        "screen",
        "kubectl",
        "sudo",
        "su",
        "doas",
    ]
)
"""Programs that hand the work to somebody else, whom the runner could neither watch nor end."""

LAUNCHERS = frozenset(
    [
        "env",
        "nice",
        "ionice",
        "chrt",
        "taskset",
        "numactl",
        "stdbuf",
        "prlimit",
        "setsid",
        "nohup",
        "timeout",
        "bash",
        "sh",
        "dash",
    ]
)
"""Programs that become, or stay in front of, the program named after them."""

_INTERPRETER = re.compile(r"python[\d.]*|ruby|node|perl|(ba|da|z)?sh")


def split(text: str) -> tuple[str, ...]:
    """The words of a command line; raises ValueError naming the first thing only a shell would do."""
    _refuse_operators(text)
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise ValueError(f"cannot be split into words: {str(error).lower()}; close it") from None


def _refuse_operators(text: str) -> None:
    quote, place, word_start = "", 0, True
    while place < len(text):
        sign = text[place]
        if quote == "'":
            quote = "" if sign == "'" else quote
        elif sign == "\\":
            place += 1
        elif sign == '"':
            quote = "" if quote else '"'
        elif sign == "'" and not quote:
            quote = "'"
        elif wrong := _expanded(text[place:]) or (
            "" if quote else _operator(text[place:], word_start=word_start)
        ):
            raise ValueError(
                f"{wrong}; no shell runs here: write a plain command, or a list of words"
            )
        word_start = not quote and sign.isspace()
        place += 1


def _expanded(rest: str) -> str:
    """What a shell would expand here, also inside double quotes."""
    if rest.startswith("`"):
        return "has a backtick command substitution"
    if rest.startswith("$("):
        return "has a command substitution `$(`"
    if found := _VARIABLE.match(rest):
        return f"uses the variable `{rest[: found.end() + 11].split(maxsplit=1)[0]}`"
    return ""


def _operator(rest: str, *, word_start: bool) -> str:
    for operator in _OPERATORS:
        if rest.startswith(operator):
            shown = "a line break" if operator == "\n" else f"the shell operator `{operator}`"
            return f"has {shown}"
    if rest[0] in "*?":
        return f"has the glob `{rest[0]}`"
    if word_start and rest[0] == "~":
        return "has `~`"
    if word_start and rest[0] == "#":
        return "has a `#` comment"
    return ""


def words(value: object) -> tuple[str, ...]:
    """A command from its TOML value; raises ValueError with what is wrong and what to write."""
    argv = word_list(value)
    if not argv or not argv[0]:
        raise ValueError("is empty; write the program and its arguments")
    _refuse_wrapper(argv)
    _refuse_program(argv)
    return argv


def manager_words(value: object) -> tuple[str, ...]:
    """A command that tells a manager what to do: docker, sudo and their like are what it is for."""
    argv = word_list(value)
    if not argv or not argv[0]:
        raise ValueError("is empty; write the program and its arguments")
    _refuse_program(argv)
    return argv


def word_list(value: object) -> tuple[str, ...]:
    """Arguments from their TOML value, a list or one string; the program is named elsewhere."""
    if isinstance(value, str):
        argv = split(value)
    elif isinstance(value, Sequence) and all(isinstance(part, str) for part in value):
        argv = tuple(str(part) for part in value)
    else:
        raise ValueError('is neither a list of words nor one string; write ["--flag", "value"]')
    for word in argv:
        _refuse_word(word)
    return argv


def _refuse_word(word: str) -> None:
    if "\0" in word:
        raise ValueError("holds a NUL byte; remove it")
    if _LONE_OPERATOR.fullmatch(word):
        raise ValueError(f"has the shell operator `{word}`; no shell runs here: remove it")
    looks_like_path = word.startswith(("/", "~", "./", "../"))
    if looks_like_path and (leftover := shell_leftover(word)):
        raise ValueError(f"`{word}`: {leftover}; write the whole path")
    if _VARIABLE.match(word):
        raise ValueError(f"`{word}`: variables are for shells; write its value")


def _refuse_wrapper(argv: Sequence[str]) -> None:
    name = PurePosixPath(argv[0]).name
    named = argv[1:] if name in LAUNCHERS else ()
    for word in (argv[0], *named):
        inner = PurePosixPath(word).name
        if inner in WRAPPERS:
            raise ValueError(
                f"`{inner}` hands the work to somebody else, whom nobody here could end; "
                "name the program itself"
            )


def _refuse_program(argv: Sequence[str]) -> None:
    name = PurePosixPath(argv[0]).name
    if not argv[0].startswith("/"):
        raise ValueError(
            f"`{argv[0]}` is looked up in a PATH that differs at midnight; "
            "write the whole path of the program"
        )
    if name in {"sh", "bash", "dash"} and any(
        word.startswith("-") and "c" in word for word in argv[1:2]
    ):
        raise ValueError(f"`{name} {argv[1]}` hides the real command; write it without the shell")


def program(path: str) -> str:
    """The path of a program; raises ValueError for one that hands the work to somebody else."""
    _refuse_wrapper((path,))
    return path


def launches(path: str) -> bool:
    """Whether this program is only the way to another one, which is named after it."""
    name = PurePosixPath(path).name
    return name in LAUNCHERS or _INTERPRETER.fullmatch(name) is not None


def with_program(argv: Sequence[str], path: str) -> tuple[str, ...]:
    """The command with another program in the place of its own; what launches it stays.

    An interpreter and its script are one program. Raises ValueError where it cannot be told which
    words are the program.
    """
    chain = _chain(argv)
    at = first = chain[-1]
    if len(chain) > 1 and _INTERPRETER.fullmatch(PurePosixPath(argv[chain[-2]]).name):
        first = chain[-2]
    elif launches(argv[at]):
        raise ValueError(f"runs `{' '.join(argv[at : at + 3])}`, where no program has a path")
    between = argv[first + 1 : at]
    if any(not word.startswith("-") or word in ("-m", "-c") for word in between):
        raise ValueError(f"runs `{' '.join(argv[first : at + 1])}`, where no program has a path")
    return (*argv[:first], path, *argv[at + 1 :])


def program_at(argv: Sequence[str]) -> int:
    """Where the program itself stands, behind `env`, `taskset`, an interpreter and their options."""
    return _chain(argv)[-1]


def executed(argv: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The programs that a command line executes, one through the other, and the scripts they read."""
    chain = _chain(argv)
    scripts = tuple(
        argv[at]
        for before, at in pairwise(chain)
        if _INTERPRETER.fullmatch(PurePosixPath(argv[before]).name)
    )
    return tuple(argv[at] for at in chain if argv[at] not in scripts), scripts


def _chain(argv: Sequence[str]) -> list[int]:
    """The places of the programs in a command line, the last of them doing the work."""
    chain = [0]
    while argv:  # nobody runs yet, and a supervisor owns the command line: there is no program
        name = PurePosixPath(argv[chain[-1]]).name
        script = len(chain) > 1 and _INTERPRETER.fullmatch(PurePosixPath(argv[chain[-2]]).name)
        if script or not (name in LAUNCHERS or _INTERPRETER.fullmatch(name)):
            return chain
        following = range(chain[-1] + 1, len(argv))
        ahead = next((place for place in following if argv[place].startswith("/")), None)
        if ahead is None:
            return chain
        chain.append(ahead)
    return chain


_SCHEMA = WithJsonSchema(
    {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "string"}]}
)

CommandLine = Annotated[tuple[str, ...], BeforeValidator(words), _SCHEMA]
"""A command: a list of words, or one string that is split like a shell would, without its operators."""

ManagerCommand = Annotated[tuple[str, ...], BeforeValidator(manager_words), _SCHEMA]
"""A command to whoever keeps a service alive; it ends by itself."""

Program = Annotated[ExplicitPath, AfterValidator(program)]
"""The path of a program that is started from here, and stays here."""
