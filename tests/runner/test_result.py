"""The object that a run becomes: what happened to the run itself stands in it too."""

from pathlib import Path

from runner import logs
from runner.outcome import Outcome
from runner.recovery.account import Scale
from runner.result import Draft, Ending, to_json
from tests.fakes_runner import FakeClock


def test_lost_log_lines_are_counted(tmp_path: Path) -> None:
    """A full disk behind standard error ends nothing and is noticed all the same."""
    clock = FakeClock()
    draft = Draft("r1", "night", "?", "manual", "2026-03-01T00:00:00+00:00", tmp_path)
    before = to_json(draft, Ending(Outcome.PROVEN), Scale.of(clock))["log_lost"]
    logs._lose()
    after = to_json(draft, Ending(Outcome.PROVEN), Scale.of(clock))
    assert after["log_lost"] == before + 1
    assert any("log lines could not be written" in note for note in after["notes"])


def test_production_that_nobody_looked_at_is_not_none(tmp_path: Path) -> None:
    """A run that found the box busy must not say that there is no production on it."""
    draft = Draft("r1", "night", "?", "manual", "2026-03-01T00:00:00+00:00", tmp_path)
    scale = Scale.of(FakeClock())
    ending = Ending(Outcome.SKIPPED, "busy")
    assert to_json(draft, ending, scale)["production"]["state"] == "none"
    draft.services = 1
    assert to_json(draft, ending, scale)["production"]["state"] == "unknown"
