"""The calendar of coming fires, as other programs read it."""

from runner.schedule.ical import calendar

SLOT = {
    "job": "200k-mtp",
    "at": "2027-03-28T03:00:00+02:00",
    "in_words": "At 02:30 every day; moved to 03:00: the clocks go forward over its time",
    "would": "run",
}


def test_an_event_has_its_time_in_utc_and_its_text_escaped() -> None:
    """Whatever zone the calendar is looked at in."""
    lines = calendar([SLOT]).replace("\r\n ", "").split("\r\n")
    assert lines[0] == "BEGIN:VCALENDAR"
    assert "DTSTART:20270328T010000Z" in lines
    assert "SUMMARY:runner: 200k-mtp" in lines
    assert any(r"every day\; moved to 03:00" in line for line in lines)
    assert lines[-2:] == ["END:VCALENDAR", ""]


def test_long_lines_are_folded_at_75_octets_without_cutting_a_letter() -> None:
    """RFC 5545 counts octets."""
    text = calendar([SLOT | {"would": "refuse: " + "ä" * 100}])
    assert all(len(line.encode()) <= 75 for line in text.split("\r\n"))
    assert "ä" * 100 in text.replace("\r\n ", "")


def test_the_same_fire_keeps_its_identity() -> None:
    """A calendar that is read again shows no event twice."""
    assert calendar([SLOT]) == calendar([SLOT])
