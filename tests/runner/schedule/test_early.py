"""Looking ahead: an incident opens when the verdict worsens, and resolves itself."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from runner.journal import Journal
from runner.recovery import lock
from runner.schedule.early import tell, tell_of
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


@pytest.fixture
def box(tmp_path: Path) -> Settings:
    """The same box with a state directory and a lock of its own."""
    (tmp_path / "state").mkdir()
    own = {"state_dir": str(tmp_path / "state"), "lock_name": f"test-{tmp_path}"[-100:]}
    return SETTINGS.model_copy(update=own)


def test_what_a_look_finds_while_a_run_has_the_box_is_not_told(box: Settings) -> None:
    """An early check of one job comes at the very minute in which another one runs."""
    state = Path(box.state_dir)
    with lock.hold(state, run="r", since="2027-01-15T19:42:00+00:00", name=box.lock_name):
        assert tell_of(found("/m/draft.gguf"), box) == "busy"
    with Journal.open(state) as journal:
        assert journal.outbox() == []
    assert tell_of(found("/m/draft.gguf"), box) == "opened"


def test_nor_is_what_it_finds_of_a_run_that_is_over_by_then(box: Settings) -> None:
    """It began and ended while the look went on."""
    state, ended = Path(box.state_dir), datetime.now(UTC).isoformat()
    with Journal.open(state) as journal:
        journal.begin("r", "other", "schedule", {}, ended)
        result = {"run": "r", "job": "other", "outcome": "proven", "ended": ended}
        journal.close("r", "proven", 0, "p", result=result, alert=None, ended=ended)
    assert tell_of(found("/m/draft.gguf"), box) == "busy"
