"""How times and durations are written, the same everywhere. Knows no run and no file."""

import re
from datetime import UTC, datetime, tzinfo

_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]")
_UNSAFE_IN_LINE = re.compile(_UNSAFE.pattern[:-1] + r"\t\n\u2028\u2029]")


def duration(seconds: float | None) -> str:
    """Seconds as a person says them: `0.4s`, `45s`, `37m`, `1h05m`, `2d3h`; None is `?`."""
    if seconds is None:
        return "?"
    if seconds < 0:
        return "-" + duration(-seconds)
    minutes = round(seconds / 60)
    hours = minutes // 60
    if round(seconds) < 10:  # below ten seconds the tenth matters
        return f"{seconds:.1f}".removesuffix(".0") + "s"
    if round(seconds) < 90:
        return f"{round(seconds)}s"
    if hours == 0:
        return f"{minutes}m"
    days = f"{hours // 24}d" + (f"{hours % 24}h" if hours % 24 else "")
    return days if hours >= 24 else f"{hours}h{minutes % 60:02d}m"


def iso(at: datetime, zone: tzinfo | None = None) -> str:
    """A moment in ISO 8601 with its offset, to the millisecond, in `zone` if one is given."""
    return (at.astimezone(zone) if zone else at.astimezone()).isoformat(timespec="milliseconds")


def at_epoch(seconds: float, zone: tzinfo | None = None) -> str:
    """The same from seconds since 1970."""
    return iso(datetime.fromtimestamp(seconds, UTC), zone)


def parsed(text: str) -> datetime:
    """The moment an ISO 8601 text with an offset names; without an offset it is taken as UTC."""
    at = datetime.fromisoformat(text)
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def clock(text: str | None, zone: tzinfo | None = None) -> str:
    """`00:38` of an ISO 8601 text, in the offset it carries or in `zone`."""
    if not text:
        return "?"
    try:
        at = parsed(text)
        return (at.astimezone(zone) if zone else at).strftime("%H:%M")
    except ValueError:
        return "?"


def day_and_clock(text: str | None, zone: tzinfo | None = None) -> str:
    """`2026-11-03 00:38` of an ISO 8601 text, in the offset it carries or in `zone`."""
    if not text:
        return "?"
    try:
        at = parsed(text)
        return (at.astimezone(zone) if zone else at).strftime("%Y-%m-%d %H:%M")
    except ValueError:
        return "?"


def shown(text: object, *, lines: bool = False) -> str:
    """A text for a terminal: what would move the cursor or colour it is shown as `\\x1b`.

    File and process names are other people's; a name must not be able to rewrite a verdict.
    """
    unsafe = _UNSAFE if lines else _UNSAFE_IN_LINE
    return unsafe.sub(lambda found: ascii(found.group())[1:-1], str(text))


def last_line(text: str, most: int = 300) -> str:
    """The last line that says something: of a traceback what went wrong, and not where."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][-most:] if lines else ""
