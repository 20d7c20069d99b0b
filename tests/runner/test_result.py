"""The object that a run becomes: what happened to the run itself stands in it too."""

from dataclasses import replace
from pathlib import Path

from jobs.samples import Sample
from preflight.verdict import State, Verdict
from runner import logs
from runner.outcome import Outcome
from runner.recovery.account import Scale
from runner.result import Draft, Ending, _lost, to_json
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


def test_a_contended_machine_is_said_with_the_numbers(tmp_path: Path) -> None:
    """They scatter then; where nothing was measured there is nothing to say."""
    draft = Draft("r1", "night", "?", "manual", "2026-03-01T00:00:00+00:00", tmp_path)
    busy = Verdict("host.load", State.WARN, "the machine", "idle", "load 14 on 8 cores")
    draft.verdicts.append(busy)
    scale = Scale.of(FakeClock())
    assert to_json(draft, Ending(Outcome.PROVEN), scale)["notes"] == _lost()
    draft.measured.samples.append(Sample("candidate", "r", 0.0, predicted_n=64, predicted_ms=640.0))
    said = to_json(draft, Ending(Outcome.PROVEN), scale)
    assert "measured on a contended machine: load 14 on 8 cores" in said["notes"]
    assert said["measurements"]["candidate"]["contended"] is True


def test_replies_are_summed_up_by_temperature_and_fill(tmp_path: Path) -> None:
    """Medians of what counts; acceptance as sum over sum; None where nothing tells."""
    draft = Draft("r1", "night", "?", "manual", "2026-03-01T00:00:00+00:00", tmp_path)
    plain = Sample("candidate", "r", 0.0, asked=65, predicted_n=65, predicted_ms=1000.0)
    draft.measured.samples += [
        replace(plain, drafted=10, accepted=9),
        replace(plain, predicted_ms=2000.0, drafted=90, accepted=11),
        replace(plain, predicted_ms=4000.0),
        replace(plain, predicted_ms=1.0, warmup=True),
        replace(plain, predicted_ms=1.0, valid=False),
        replace(plain, temperature=0.7, predicted_ms=None),
        replace(plain, fill=0.95, prompt_n=1000, prompt_ms=2000.0),
    ]
    said = to_json(draft, Ending(Outcome.PROVEN), Scale.of(FakeClock()))
    cold, warm, deep = said["measurements"]["candidate"]["replies"]
    assert (cold["n"], cold["decoding_tps"], cold["acceptance"]) == (3, 32.0, 0.2)
    assert (warm["n"], warm["decoding_tps"], warm["acceptance"]) == (1, None, None)
    assert (deep["fill"], deep["filled_tokens"], deep["prompt_tps"]) == (0.95, 1000, 500.0)
