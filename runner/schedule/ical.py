"""Coming fires as iCalendar (RFC 5545), for a calendar that people look at anyway. Pure."""

import hashlib
from collections.abc import Iterator, Sequence
from datetime import UTC
from typing import Any

from runner import __version__
from runner.words import parsed

_MOST_OCTETS = 75


def calendar(slots: Sequence[dict[str, Any]]) -> str:
    """The slots of `next --json` as a VCALENDAR; lines end in CRLF and are folded."""
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", f"PRODID:-//runner//runner {__version__}//EN"]
    for slot in slots:
        lines += _event(slot)
    lines.append("END:VCALENDAR")
    return "".join(f"{piece}\r\n" for line in lines for piece in _folded(line))


def _event(slot: dict[str, Any]) -> list[str]:
    at = f"{parsed(slot['at']).astimezone(UTC):%Y%m%dT%H%M%SZ}"
    name = hashlib.sha256(f"{slot['job']} {at}".encode()).hexdigest()[:24]
    return [
        "BEGIN:VEVENT",
        f"UID:{name}@runner",
        f"DTSTAMP:{at}",
        f"DTSTART:{at}",
        f"SUMMARY:{_text('runner: ' + slot['job'])}",
        f"DESCRIPTION:{_text(slot['in_words'] + ' - would: ' + slot['would'])}",
        "END:VEVENT",
    ]


def _text(value: str) -> str:
    for plain, escaped in (("\\", "\\\\"), (";", "\\;"), (",", "\\,"), ("\n", "\\n")):
        value = value.replace(plain, escaped)
    return value


def _folded(line: str) -> Iterator[str]:
    """A line in pieces of at most 75 octets, none of which splits a character."""
    piece, size = "", 0
    for letter in line:
        octets = len(letter.encode())
        if size + octets > _MOST_OCTETS:
            yield piece
            piece, size = " ", 1
        piece, size = piece + letter, size + octets
    yield piece
