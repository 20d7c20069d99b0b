"""The demo told on the stand-in: what a machine without the real parts shows, clearly labelled."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.cli.out import Failure
from runner.demo import parts, servers, story
from runner.demo.box import JOB, Box
from runner.recovery import lock

MISSING = parts.stand_in("llama-server is not installed")


def options(directory: Path, **more: bool) -> dict[str, Any]:
    """The options as the command line has them."""
    words = dict.fromkeys(("incident", "full", "keep", "stop", "json"), False)
    return {"dir": str(directory), **words, **more}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """Where a demo may make its box; nothing of it runs on afterwards."""
    directory = tmp_path / "demo"
    yield directory
    if (directory / "demo.json").exists():
        servers.end(Box(directory, MISSING))


def test_stand_in_is_loudly_a_stand_in(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Without the wheels the story is the same, and nobody can take it for real."""
    assert story.play(options(place), MISSING) == 0
    said = capfd.readouterr().out
    assert "NO REAL SERVER: llama-server is not installed." in said
    assert "STAND-IN" in said
    assert "Production before" in said
    assert "PROVEN" in said
    assert "the same answer" in said
    assert f"run {JOB}" in said
    assert "Where to look next" in said
    assert Box(place, MISSING).notes.alive() == []


def test_json_is_one_object_with_both_answers(
    place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Other programs get the run's own object, and what production said before and after."""
    assert story.play(options(place, json=True), MISSING) == 0
    result = json.loads(capfd.readouterr().out)
    assert result["outcome"] == "proven"
    assert result["demo"]["real"] is False
    assert result["demo"]["before"] == result["demo"]["after"]


def test_incident_shows_damage_alert_and_an_untouched_production(
    place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The midnight incident in words: what was done, what was told, what did not happen."""
    assert story.play(options(place, incident=True), MISSING) == 3
    said = capfd.readouterr().out
    assert "deleted draft.gguf" in said
    assert "started a proxy on port" in said
    alert = said.partition("The alert:")[2]
    assert "SERVING, never touched" in alert
    assert "draft.gguf" in alert
    assert "http.server" in alert
    assert "untouched, pid" in said
    box = Box(place, MISSING)
    assert box.draft.exists()
    assert box.notes.alive() == []


def test_kept_box_is_used_again_and_then_stopped(
    place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """--keep leaves production running; the next demo takes it as it is; --stop ends it."""
    story.play(options(place, incident=True, keep=True), MISSING)
    box = Box(place, MISSING)
    kept = servers.production(box)
    assert kept is not None
    capfd.readouterr()
    story.play(options(place, incident=True, keep=True, json=True), MISSING)
    assert json.loads(capfd.readouterr().out)["production_pid"]["before"] == kept.pid
    assert story.play(options(place, stop=True, json=True), MISSING) == 0
    assert json.loads(capfd.readouterr().out) == {"ended": [kept.pid]}


def test_demo_waits_for_nobody(place: Path) -> None:
    """While a run holds this box the demo refuses with exit 4, and touches nothing."""
    box = Box(place, MISSING)
    box.make(0.05, serving=False)
    box.state.mkdir()
    with (
        lock.hold(box.state, run="another", since="now", name=f"test-{place.parent.name}"),
        pytest.raises(Failure) as refused,
    ):
        story.play(options(place), MISSING)
    assert refused.value.code == 4
    assert "another" in refused.value.message
