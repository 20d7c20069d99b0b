"""What an alert is, and how its text is made safe to send. Standard library only; knows no channel."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

LIMIT = 3500
"""UTF-16 units of one message, which is what Telegram counts; its own limit is 4096."""

KINDS = (
    "proven",
    "refused",
    "skipped",
    "broken",
    "refuted",
    "production down",
    "bug",
    "interrupted",
    "incident",
    "resolved",
    "test",
)
"""The kinds that a channel's `on` may name: the outcomes of a run, and what is told besides."""

_CUT = " … [cut]"
# Without these a file name could move the cursor, ring a bell or reverse the text beside it.
_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]")
# https://core.telegram.org/bots/api#authorizing-your-bot: the bot's number, a colon, 35 characters
_TOKEN = re.compile(r"\b(?:bot)?\d{6,12}:[A-Za-z0-9_-]{20,}")
HIDDEN = "[hidden]"


@dataclass(frozen=True, slots=True)
class Alert:
    """One thing to tell: `first_line` is all that a phone shows, `text` the rest or the whole.

    `key` is the same for every try of one alert, `at` is ISO 8601, `kind` one of KINDS.
    """

    key: str
    first_line: str
    text: str = ""
    at: str = ""
    kind: str = "incident"

    @property
    def whole(self) -> str:
        """The text as a person reads it, first line first."""
        if self.text.startswith(self.first_line):
            return self.text
        return f"{self.first_line}\n{self.text}".strip("\n")

    @property
    def sendable(self) -> str:
        """The whole text as every channel can carry it."""
        return clip(clean(self.whole))

    @property
    def ident(self) -> str:
        """Four characters by which a person sees that two messages are one alert."""
        return hashlib.sha256(self.key.encode(errors="replace")).hexdigest()[:4]


class DeliveryError(Exception):
    """A channel did not take an alert; the text is fit for logs and never holds a secret.

    `permanent`: only a person can mend it. `retry_after`: seconds that the far side asked for.
    `uncertain`: it may have arrived all the same.
    """

    def __init__(
        self,
        message: str,
        *,
        permanent: bool = False,
        retry_after: float | None = None,
        uncertain: bool = False,
    ) -> None:
        super().__init__(message)
        self.permanent = permanent
        self.retry_after = retry_after
        self.uncertain = uncertain


def scrub(text: str, *secrets: str) -> str:
    """The text without these secrets, and without anything that looks like a bot's token."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, HIDDEN)
    return _TOKEN.sub(HIDDEN, text)


def clean(text: str) -> str:
    """The text as every channel can carry it: valid UTF-8, no control characters, no token.

    A file name that is no UTF-8 reaches Python with lone surrogates, which no JSON encoder of
    a server accepts; they are spelled out.
    """
    readable = text.encode("utf-8", "backslashreplace").decode()
    return scrub(_UNSAFE.sub("\N{REPLACEMENT CHARACTER}", readable)).strip() or "(no text)"


def clip(text: str, limit: int = LIMIT) -> str:
    """At most `limit` UTF-16 units of the text; a cut is marked and splits no character."""
    if _units(text) <= limit:
        return text
    wide = text.encode("utf-16-le")[: 2 * max(0, limit - _units(_CUT))]
    return wide.decode("utf-16-le", "ignore").rstrip() + _CUT


def stamped(alert: Alert, tries: int) -> Alert:
    """The alert as it is sent: clean, short enough, with its id and the number of this try.

    `tries` counts the tries before this one. The id comes last, because the first line is all
    that a phone shows.
    """
    return _ending_in(alert, _mark(alert, tries))


def digest(alerts: Sequence[tuple[Alert, int]]) -> Alert:
    """Several alerts with their tries, oldest first, as one: the newest whole, a line for each other.

    After an outage a chat would refuse a flood of single messages.
    """
    newest, tries = alerts[-1]
    lines = [
        f"{clip(clean(alert.first_line), 150)} {_mark(alert, before)}"
        for alert, before in reversed(alerts[:-1])
    ]
    head = f"{_mark(newest, tries)}\n\n{len(lines)} earlier, newest first:"
    return _ending_in(newest, "\n".join([head, *lines]))


def _mark(alert: Alert, tries: int) -> str:
    return f"[{alert.ident}]" if tries < 1 else f"[{alert.ident} · try {tries + 1}]"


def _ending_in(alert: Alert, end: str) -> Alert:
    text = clip(clean(alert.whole), LIMIT - _units(end) - 1)
    return replace(alert, first_line=text.partition("\n")[0], text=f"{text}\n{end}")


def _units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2
