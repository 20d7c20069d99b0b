"""An incident is told once, edited while it lasts, and told again when it ends."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.journal import Journal
from runner.schedule.incidents import Incidents


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    """An empty journal."""
    with Journal.open(tmp_path) as opened:
        yield opened


def told(journal: Journal) -> list[str]:
    """Everything that is to be told, whole."""
    return [row.body["text"] for row in journal.outbox()]


def test_it_is_told_once_and_edited_while_it_waits(journal: Journal) -> None:
    """What was not delivered yet says what is true by now."""
    incidents = Incidents(journal)
    assert incidents.open("k", "DOWN since 00:10", ["no process"])
    assert not incidents.open("k", "DOWN since 00:10", ["exit code 1"])
    assert told(journal) == ["DOWN since 00:10\nexit code 1"]
    assert journal.incidents()[0]["text"] == "DOWN since 00:10\nexit code 1"


def test_what_was_delivered_is_told_again_only_if_it_got_worse(journal: Journal) -> None:
    """A second message about the same thing is noise; one more missing file is not."""
    incidents = Incidents(journal)
    incidents.open("k", "WOULD BE REFUSED", ["a"])
    journal.sent(journal.outbox()[0].id, "file")
    incidents.open("k", "WOULD BE REFUSED", ["a, since 19:42"])
    assert len(told(journal)) == 1
    incidents.open("k", "WOULD BE REFUSED", ["a", "b"], worse=True)
    assert told(journal)[1:] == ["WOULD BE REFUSED\na\nb"]


def test_its_end_is_told_with_how_long_it_lasted(journal: Journal) -> None:
    """And only where it was open."""
    incidents = Incidents(journal)
    assert not incidents.resolve("k", "SERVING")
    incidents.open("k", "DOWN")
    assert incidents.resolve("k", "SERVING since 00:12 · llm is back")
    assert told(journal)[1].startswith("SERVING since 00:12 · llm is back\nit lasted 0")
    assert journal.outbox()[1].body["kind"] == "resolved"
    assert journal.incidents() == []


def test_it_can_open_again(journal: Journal) -> None:
    """Each opening is told."""
    incidents = Incidents(journal)
    incidents.note("restarted", "llm was restarted")
    assert journal.incidents() == []
    assert len(told(journal)) == 1


def test_secrets_and_control_characters_stay_out(journal: Journal) -> None:
    """A file name is somebody else's text."""
    Incidents(journal).open(
        "k", "a\x1b[31mfile", ["bot123456789:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"]
    )
    assert "\x1b" not in told(journal)[0]
    assert "AAAAAAAAAA" not in told(journal)[0]
