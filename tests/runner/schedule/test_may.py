"""Others ask before they delete, use or stop: yes or no, with a sentence, by what is published."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from runner.schedule import may
from tests.e2e.night import Night
from tests.runner.schedule.served import as_nobody

NOW = datetime(2027, 1, 15, 19, 42, tzinfo=UTC)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model in its directory."""
    path = tmp_path / "models" / "mtp" / "draft.gguf"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"GGUF")
    return path


def reserved(model: Path, **more: Any) -> dict[str, Any]:
    """What is published for a run at midnight."""
    wanted = {"ports": [8080, 8081], "units": ["llama.service"]}
    over = "2027-01-16T01:30:00+00:00"
    run = {
        "job": "200k-mtp",
        "at": "2027-01-16T00:00:00+00:00",
        "until": over,
        "needs": {**wanted, "gpu": [{"mib": "estimate"}]},
    }
    return {
        "at": "2027-01-15T19:00:00+00:00",
        "contact": "anna",
        "runs": [run],
        "jobs": {"200k-mtp": {"files": [str(model)], **wanted, "until": over, "known": True}},
        "production": [{"name": "llm", "port": 8080, "unit": "llama.service", "files": []}],
        "pins": [],
        "own": ["/var/lib/runner", "/etc/runner/runner.toml"],
        **more,
    }


def test_a_file_that_a_coming_run_needs_may_not_be_deleted(model: Path) -> None:
    """With who needs it, when, and whom to ask."""
    answer = may.delete(str(model), reserved(model), NOW)
    assert not answer.yes
    assert answer.said == (
        f"no: {model}: 200k-mtp needs it at 2027-01-16 00:00 (in 4h18m); ask anna"
        " → runner reservations"
    )


def test_neither_may_its_directory_nor_a_link_to_it(model: Path, tmp_path: Path) -> None:
    """What is deleted is the same."""
    link = tmp_path / "link"
    link.symlink_to(model.parent)
    for path in (model.parent, model.parent.parent, link, link / "draft.gguf"):
        assert not may.delete(str(path), reserved(model), NOW).yes


def test_another_file_may(model: Path) -> None:
    """Also beside it, and also one whose name begins alike."""
    for path in (model.with_name("draft.gguf.old"), model.parent.parent / "mtp2"):
        assert may.delete(str(path), reserved(model), NOW).yes


def pin_of(model: Path) -> dict[str, Any]:
    """A pin as it is published."""
    pin = model.parents[2] / "pins" / model.name
    pin.parent.mkdir()
    pin.hardlink_to(model)
    found = model.stat()
    return {
        "path": str(model),
        "pin": str(pin),
        "inode": found.st_ino,
        "size": found.st_size,
        "mtime_ns": found.st_mtime_ns,
        "how": "hard link",
    }


def test_a_pinned_file_may_be_deleted(model: Path) -> None:
    """Its bytes are kept, and the run uses the pin; the pin itself may not."""
    pin = pin_of(model)
    known = reserved(model, pins=[pin])
    answer = may.delete(str(model), known, NOW)
    assert answer.yes
    assert "its bytes are pinned" in answer.said
    model.unlink()
    assert may.delete(str(model), known, NOW).yes
    kept = may.delete(pin["pin"], known, NOW)
    assert not kept.yes
    assert f"it is the pin of {model}" in kept.said
    assert not may.delete(str(Path(pin["pin"]).parent), known, NOW).yes


def test_a_pin_of_another_file_frees_nothing(model: Path) -> None:
    """The file was replaced since, or its pin is gone: then the bytes at the path are all there is."""
    pin = pin_of(model)
    known = reserved(model, pins=[pin])
    fresh = model.with_name("fresh")
    fresh.write_bytes(b"GGUF")
    fresh.replace(model)
    assert not may.delete(str(model), known, NOW).yes
    Path(pin["pin"]).unlink()
    assert not may.delete(str(model), known, NOW).yes


@pytest.mark.parametrize("path", ["/", "/.", "//", "/../"])
def test_the_root_directory_holds_everything(model: Path, path: str) -> None:
    """However it is written."""
    assert not may.delete(path, reserved(model), NOW).yes


@pytest.mark.parametrize(
    "path",
    ["/var/lib/runner", "/var/lib/runner/journal.db", "/var/lib", "/etc/runner/runner.toml"],
)
def test_what_the_runner_works_with_is_not_free(model: Path, path: str) -> None:
    """Its state, and the files that it is told by; also all that lies in them, or around."""
    answer = may.delete(path, reserved(model), NOW)
    assert not answer.yes
    assert "the runner works with it" in answer.said


def test_needs_that_nobody_has_looked_up_yet_are_no_yes(model: Path) -> None:
    """A daemon that has just begun: any file may be the one."""
    known = reserved(model)
    known["jobs"]["weekly"] = {"files": [], "ports": [], "units": [], "known": False}
    answer = may.delete("/data/other", known, NOW)
    assert not answer.yes
    assert "what weekly needs is not known yet" in answer.said


def test_production_s_files_port_and_unit_are_never_free(model: Path) -> None:
    """Whether or not a run is to come."""
    known = reserved(model, runs=[], jobs={})
    known["production"][0]["files"] = [str(model)]
    assert "production (llm) runs from it" in may.delete(str(model), known, NOW).said
    assert "it is production's (llm)" in may.use(8080, known, NOW).said
    assert "it is production (llm)" in may.stop("llama", known, NOW).said


def test_a_port_that_a_coming_run_needs_may_not_be_used(model: Path) -> None:
    """Until that run is over."""
    assert not may.use(8081, reserved(model), NOW).yes
    assert may.use(8081, reserved(model), NOW + timedelta(hours=6)).yes
    assert may.use(9000, reserved(model), NOW).yes


def test_another_unit_may_be_stopped(model: Path) -> None:
    """With or without its suffix."""
    assert may.stop("nginx", reserved(model), NOW).yes
    assert not may.stop("llama.service", reserved(model), NOW).yes


def test_what_cannot_be_told_is_no_yes(model: Path) -> None:
    """Nothing published, or something from last month."""
    assert not may.delete(str(model), None, NOW).yes
    assert "cannot tell" in may.use(8081, None, NOW).said
    old = may.stop("nginx", reserved(model), NOW + timedelta(days=30))
    assert not old.yes
    assert "30d old" in old.said


def test_the_message_of_the_day_is_one_line(model: Path) -> None:
    """Empty where nothing is to come."""
    line = may.motd(reserved(model), NOW)
    assert line.startswith("runner: 200k-mtp takes this GPU at 2027-01-16 00:00.")
    assert "\n" not in line
    assert may.motd(reserved(model, runs=[]), NOW) == ""


def test_every_user_may_ask_and_nobody_else_s_words_are_needed(open_night: Night) -> None:
    """Neither the owner's rights nor a daemon: what is published is enough; unreadable is a no."""
    night = open_night
    night.settings["schedule"] = [{"job": "night", "cron": "0 0 * * *"}]
    night.settings["contact"] = "anna, room 5"
    night.write()
    assert night.call("reservations").code == 0
    asked = as_nobody(night, "may-i", "delete", str(night.model))
    assert asked.code == 1, asked
    assert "night needs it at" in asked.out
    assert "ask anna, room 5" in asked.out
    assert as_nobody(night, "may-i", "delete", "/srv/other").code == 0
    assert "night" in as_nobody(night, "reservations").out
    assert as_nobody(night, "reservations", "--motd").out.startswith("runner: night takes")
    (night.state / "public").chmod(0o700)
    closed = as_nobody(night, "may-i", "delete", "/srv/other")
    assert closed.code == 1, closed
    assert closed.out.startswith("cannot tell about /srv/other: ")
    night.config.chmod(0o600)
    assert as_nobody(night, "may-i", "use", "8080").code != 0
