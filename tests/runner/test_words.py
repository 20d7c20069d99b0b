"""Times, durations and names as people read them."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from runner import words


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "?"),
        (0, "0s"),
        (0.41, "0.4s"),
        (4.0, "4s"),
        (9.96, "10s"),
        (45.4, "45s"),
        (89, "89s"),
        (37 * 60, "37m"),
        (3599, "1h00m"),
        (65 * 60, "1h05m"),
        (48 * 3600, "2d"),
        (51 * 3600, "2d3h"),
        (-120, "-2m"),
    ],
)
def test_durations_are_as_short_as_they_can_be(seconds: float | None, text: str) -> None:
    """A phone's first line has room for `37m`, not for `2220.481 seconds`."""
    assert words.duration(seconds) == text


def test_moments_carry_the_offset_of_the_configured_zone() -> None:
    """ISO 8601 with offset: 23:38 UTC in winter is 00:38 in Berlin."""
    at = datetime(2026, 11, 2, 23, 38, 5, 250_000, tzinfo=UTC)
    text = words.iso(at, ZoneInfo("Europe/Berlin"))
    assert text == "2026-11-03T00:38:05.250+01:00"
    assert words.clock(text) == "00:38"
    assert words.day_and_clock(text) == "2026-11-03 00:38"
    assert words.parsed(text) == at
    assert words.at_epoch(at.timestamp(), ZoneInfo("Europe/Berlin")) == text


def test_a_time_that_is_none_or_nonsense_is_a_question_mark() -> None:
    """No value is invented for what is not known."""
    assert words.clock(None) == words.clock("soon") == "?"
    assert words.day_and_clock("") == words.day_and_clock("soon") == "?"


def test_terminal_escapes_in_names_are_shown_escaped() -> None:
    """A file name must not be able to turn a FAIL green."""
    assert words.shown("a\x1b[32mPASS\x07") == r"a\x1b[32mPASS\x07"
    assert words.shown("a\u202egpj.exe") == r"a\u202egpj.exe"
    assert words.shown("one\ntwo\tthree") == r"one\ntwo\tthree"
    assert words.shown("one\ntwo\tthree\x1b", lines=True) == "one\ntwo\tthree\\x1b"
    assert words.shown("größer · 5 %") == "größer · 5 %"


def test_of_a_traceback_its_last_line_is_told() -> None:
    """What went wrong, for a person; where, stands in the log."""
    said = 'Traceback (most recent call last):\n  File "x.py", line 1\nOSError: no\n\n'
    assert words.last_line(said) == "OSError: no"
    assert words.last_line("a" * 500 + "b", most=3) == "aab"
    assert words.last_line(" \n") == ""
