"""Looking ahead: an incident opens when the verdict worsens, and resolves itself."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from runner.journal import Journal
from runner.schedule.early import tell
from runner.settings import Settings

NOW = datetime(2027, 1, 15, 19, 42, tzinfo=UTC)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    """An empty journal."""
    with Journal.open(tmp_path) as opened:
        yield opened


SETTINGS = Settings.model_validate(
    {"timezone": "UTC", "schedule": [{"job": "200k-mtp", "cron": "0 0 * * *"}]}
)


def found(*missing: str, **more: Any) -> dict[str, Any]:
    """What a look found: these files are missing."""
    checks = [
        {
            "id": "file.exists",
            "state": "fail",
            "subject": f"draft model {path}",
            "found": "does not exist",
            "remedy": "put it back",
            "who": "newest file there: x by anna",
            "evidence": [],
        }
        for path in missing
    ]
    state = "fail" if missing else "pass"
    return {"job": "200k-mtp", "state": state, "checks": checks, "standing": "SERVING", **more}


def look(journal: Journal, *missing: str, because: str = "") -> str:
    """Tell of one look."""
    return tell(found(*missing), journal, SETTINGS, now=NOW, because=because)


def test_the_incident_is_told_at_19_42_and_not_at_midnight(journal: Journal) -> None:
    """What changed, when, by whom where that can be seen, and how long there is to mend it."""
    assert look(journal) == "good"
    assert look(journal, "/m/draft.gguf", because="draft.gguf was deleted at 19:42") == "opened"
    (row,) = journal.outbox()
    assert row.body["text"].splitlines() == [
        "SERVING · 200k-mtp at 00:00 WOULD BE REFUSED (in 4h18m)",
        "draft.gguf was deleted at 19:42, seen at 19:42",
        "draft model /m/draft.gguf: does not exist [newest file there: x by anna]",
        "To fix: put it back",
    ]


def test_the_same_verdict_again_is_no_news(journal: Journal) -> None:
    """The next early check finds what is known."""
    look(journal, "/m/draft.gguf")
    journal.sent(journal.outbox()[0].id, "file")
    assert look(journal, "/m/draft.gguf") == "known"
    assert len(journal.outbox()) == 1


def test_a_worse_verdict_is_told(journal: Journal) -> None:
    """One more file is gone."""
    look(journal, "/m/draft.gguf")
    journal.sent(journal.outbox()[0].id, "file")
    assert look(journal, "/m/draft.gguf", "/m/model.gguf") == "worse"
    assert len(journal.outbox()) == 2


def test_it_resolves_by_itself_when_it_is_mended(journal: Journal) -> None:
    """Before the fire, without a person saying so."""
    look(journal, "/m/draft.gguf")
    assert look(journal, because="draft.gguf appeared at 20:00") == "resolved"
    assert journal.incidents() == []
    assert "200k-mtp at 00:00 would run again" in journal.outbox()[-1].body["first_line"]


def test_an_accepted_unknown_refuses_nothing(journal: Journal) -> None:
    """The job has said why."""
    unknown = {
        "id": "gpu.budget",
        "state": "unknown",
        "subject": "the GPU",
        "found": "?",
        "evidence": ["accepted: no GPU here"],
    }
    said = found() | {"checks": [unknown]}
    assert tell(said, journal, SETTINGS, now=NOW) == "good"
