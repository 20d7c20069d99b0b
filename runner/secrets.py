"""What must never be written down: tokens and keys, replaced before a text leaves the process.

Standard library only. Knows the shapes of common secrets and the ones it was told by `keep`;
must not know where a text goes.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

HIDDEN = "[hidden]"

_SHORTEST_KEPT = 6
_kept: set[str] = set()

# Not `tokens`: those are what a model counts.
_NAMED = (
    r"[A-Za-z0-9_.-]*(?:token|secret|passw(?:or)?d|passphrase"
    r"|(?:api|auth|access|private)[_-]?key)(?:_?\d+)?"
)
_VALUE = r"(\"[^\"]+\"|'[^']+'|[^\s\"'{\[,;&)}]+)"
_SHAPES: tuple[tuple[re.Pattern[str], str], ...] = (
    # Telegram: https://core.telegram.org/bots/api#authorizing-your-bot
    (re.compile(r"\b(bot)?\d{6,12}:[A-Za-z0-9_-]{30,}"), HIDDEN),
    (re.compile(r"\b(?:sk|pk|rk)-[A-Za-z0-9_-]{16,}"), HIDDEN),
    (re.compile(r"\b(?:hf|gh[opsur]|glpat|xox[abpr])[_-][A-Za-z0-9_-]{16,}"), HIDDEN),
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,}"), rf"\1 {HIDDEN}"),
    # From here on each begins where a word does: begun anywhere, a line of dashes takes minutes.
    (re.compile(r"(?i)(?<![a-z0-9+.-])([a-z][a-z0-9+.-]*://)[^\s/@]+@"), rf"\1{HIDDEN}@"),
    (
        re.compile(
            rf"(?i)((?<![A-Za-z0-9_.-])-++{_NAMED})(=|\s+)(?!-)(\"[^\"]*\"|'[^']*'|[^\s\"']+)"
        ),
        rf"\1\2{HIDDEN}",
    ),
    (re.compile(rf"(?i)((?<![A-Za-z0-9_.-]){_NAMED}[\"']?\s*=\s*){_VALUE}"), rf"\1{HIDDEN}"),
    # A colon behind a path is the end of a file's name: "/etc/runner/telegram-token: No such file".
    (re.compile(rf"(?i)((?<![A-Za-z0-9_./-]){_NAMED}[\"']?\s*:\s*){_VALUE}"), rf"\1{HIDDEN}"),
)
_FLAG = re.compile(rf"(?i)^--?{_NAMED}$")
_NAME = re.compile(rf"(?i)^{_NAMED}$")


def keep(values: Iterable[str]) -> None:
    """Remember secrets by value, so that they are hidden wherever they turn up."""
    for value in values:
        if len(value.strip()) >= _SHORTEST_KEPT:  # shorter ones would blank ordinary words
            _kept.add(value.strip())


def redact(text: str) -> str:
    """The text as it may be written down: each known and each likely secret is `[hidden]`, and what
    no UTF-8 can hold is spelled out (half a character of a server's JSON, a byte of a file's name).
    """
    return _hidden(text).encode("utf-8", "backslashreplace").decode()


def holds(text: str) -> bool:
    """Whether anything in this text would be hidden."""
    return _hidden(text) != text


def _hidden(text: str) -> str:
    for value in sorted(_kept, key=len, reverse=True):
        text = text.replace(value, HIDDEN)
    for shape, instead in _SHAPES:
        text = shape.sub(instead, text)
    return text


def redact_argv(argv: Sequence[str]) -> list[str]:
    """A command line fit for reports: the value after a flag such as `--api-key` is hidden."""
    safe: list[str] = []
    hide_next = False
    for word in argv:
        if hide_next and not word.startswith("--"):
            safe.append(HIDDEN)
        else:
            safe.append(redact(word))
        hide_next = bool(_FLAG.match(word))
    return safe


def redact_tree(value: object) -> object:
    """A JSON value with every text in it redacted; keys named like secrets lose their value."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {key: _entry(str(key), part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [redact_tree(part) for part in value]
    return value


def _entry(key: str, part: object) -> object:
    if isinstance(part, str) and _NAME.match(key):
        return HIDDEN
    return redact_tree(part)
