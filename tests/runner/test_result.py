"""The one object that a run becomes: what was measured on a contended machine says so."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from jobs.samples import Sample
from preflight.verdict import State, Verdict
from runner.outcome import Outcome
from runner.recovery.account import Scale
from runner.result import Draft, Ending, to_json

SCALE = Scale(1000.0, datetime(2026, 11, 29, tzinfo=UTC), UTC)


def a_draft(state: State, *, measured: bool = True) -> Draft:
    """A run whose look at the machine came out like this."""
    draft = Draft("r1", "night", "?", "manual", "", Path("/nowhere"))
    draft.verdicts = [
        Verdict("host.load", state, "this machine", "a quiet machine", "cpu pressure 34 %")
    ]
    if measured:
        draft.measured.samples.append(
            Sample(
                arm="candidate",
                request="a",
                temperature=0.0,
                prompt="p",
                fill=0.0,
                asked=8,
                warmup=False,
                valid=True,
                why="",
                at="",
            )
        )
    return draft


@pytest.mark.parametrize(("state", "contended"), [(State.WARN, True), (State.PASS, False)])
def test_measurements_of_a_contended_machine_are_tagged(state: State, contended: bool) -> None:
    """In the numbers themselves, and in a note that every alert carries."""
    said = to_json(a_draft(state), Ending(Outcome.PROVEN), SCALE)
    assert said["measurements"]["candidate"]["contended"] is contended
    notes = ["measured on a contended machine: cpu pressure 34 %"] if contended else []
    assert said["notes"] == notes


def test_without_measurements_there_is_nothing_to_tag() -> None:
    """A refused run measured nothing."""
    assert (
        to_json(a_draft(State.WARN, measured=False), Ending(Outcome.REFUSED), SCALE)["notes"] == []
    )
