"""The demo box: its files, its ports, and the processes that it may end."""

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.load import load_job
from preflight.linux import proc
from preflight.linux.proc import Ident
from runner.demo import parts, servers
from runner.demo.box import JOB, Box, CannotPlay
from runner.demo.notes import NAME, Notes
from runner.recovery import world
from runner.settings import load_settings
from tests.servers import STANDIN, Child, soon


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    """A demo box on the stand-in server; whatever it starts ends with the test."""
    box = Box(tmp_path / "demo", parts.stand_in("this is a test"))
    try:
        yield box
    finally:
        servers.end(box)


def again(box: Box) -> Box:
    """The same box as another process finds it."""
    return Box(box.directory, box.parts)


def test_configuration_and_job_are_valid_first_examples(box: Box) -> None:
    """What the demo writes loads without a complaint."""
    box.make(0.05, serving=False)
    settings = load_settings(box.config)
    assert settings.lock_name.startswith("demo-")
    assert settings.production[0].port == box.notes.production_port
    job = load_job(box.directory / "jobs", JOB)
    assert job.candidate.context == 200_000
    assert [claim.kind for claim in job.claims] == ["speculation", "context", "throughput"]


def test_tidying_up_and_mending_are_opposites(box: Box) -> None:
    """The incident's damage is real, and undone afterwards."""
    box.make(0.05, serving=False)
    shards = [path.read_bytes() for path in box.shards]
    box.tidy_up()
    assert box.merged.exists()
    assert not any(path.exists() for path in (*box.shards, box.draft))
    box.mend()
    assert not box.merged.exists()
    assert [path.read_bytes() for path in box.shards] == shards
    assert box.draft.exists()


def test_ports_stay_while_free_and_change_when_taken(box: Box) -> None:
    """The next demo uses the same addresses, unless somebody has them by now."""
    box.make(0.05, serving=False)
    production, candidate = box.notes.production_port, box.notes.candidate_port
    assert production != candidate
    with socket.create_server(("127.0.0.1", candidate)):
        later = again(box)
        later.make(0.05, serving=False)
        assert later.notes.production_port == production
        assert later.notes.candidate_port != candidate


def test_folder_of_somebody_else_is_left_alone(box: Box) -> None:
    """Other files in the place of the box: nothing is written."""
    box.directory.mkdir()
    (box.directory / "thesis.txt").touch()
    with pytest.raises(CannotPlay) as refused:
        box.make(0.05, serving=False)
    assert refused.value.code == 2
    assert [path.name for path in box.directory.iterdir()] == ["thesis.txt"]


def test_folder_that_cannot_be_made_is_a_sentence(box: Box) -> None:
    """A file stands where the folder should be."""
    box.directory.parent.joinpath("demo").write_text("a file")
    with pytest.raises(CannotPlay) as refused:
        box.make(0.05, serving=False)
    assert str(box.directory) in refused.value.what


def test_unreadable_notes_are_a_sentence(box: Box) -> None:
    """Notes of another version, or broken ones, end the demo and touch nothing."""
    box.directory.mkdir()
    for text in ("{", '{"other": 1}'):
        (box.directory / NAME).write_text(text)
        with pytest.raises(CannotPlay):
            again(box)


def test_production_starts_once_answers_and_ends(box: Box) -> None:
    """Started twice it is one process; its end is noted too."""
    box.make(0.05, serving=False)
    first = servers.start_production(box)
    assert servers.start_production(again(box)) == first
    assert servers.ask(box).split()
    assert servers.end(again(box)) == [first]
    assert proc.ident(first.pid) is None
    assert Notes.read(box.directory).started == []


def test_production_that_a_run_restarted_is_ours_too(box: Box) -> None:
    """Its command on its port tells, whoever started it again."""
    box.make(0.05, serving=False)
    first = servers.start_production(box)
    os.kill(first.pid, signal.SIGKILL)
    recipe = load_settings(box.config).production[0].command_line()
    log = box.logs / "again.log"
    again_ = world.spawn(recipe.argv, environment=os.environ, cwd="/", log=log)
    soon(lambda: again_.pid in proc.owners(box.notes.production_port) or None)
    ended = servers.end(again(box))
    again_.wait()
    assert [who.pid for who in ended] == [again_.pid]


def test_another_process_on_productions_port_is_not_ours(box: Box, tmp_path: Path) -> None:
    """A server with another command is never taken for production, and never ended."""
    box.make(0.05, serving=False)
    argv = (*STANDIN, "-m", str(box.shards[0]))
    with Child(argv, tmp_path / "other.log", port=box.notes.production_port) as other:
        other.ready()
        assert servers.production(box) is None
        assert servers.end(box) == []
        assert other.status("/health") == 200


def test_pid_that_is_somebody_elses_by_now_is_never_signalled(box: Box, tmp_path: Path) -> None:
    """The same pid with another start time is another process."""
    box.make(0.05, serving=False)
    with Child((*STANDIN, "-m", str(box.shards[0])), tmp_path / "other.log") as other:
        other.ready()
        now = proc.ident(other.pid)
        assert now is not None
        box.notes.add("production", Ident(now.boot, now.pid, now.start - 1))
        assert servers.end(box) == []
        assert other.status("/health") == 200


def test_production_that_cannot_start_says_why(box: Box) -> None:
    """The last line of its log is in the sentence."""
    box.make(0.05, serving=False)
    (box.directory / "models" / "production.gguf").write_bytes(b"<html>")
    with pytest.raises(CannotPlay) as failed:
        servers.start_production(box)
    assert "model loading error" in failed.value.what
    assert box.notes.alive() == []


def test_stranger_takes_the_candidates_port(box: Box) -> None:
    """The incident's proxy listens where the candidate should."""
    box.make(0.05, serving=False)
    stranger = servers.start_stranger(box)
    assert stranger.pid in proc.owners(box.notes.candidate_port)
    assert servers.end(box, "stranger") == [stranger]


def test_real_parts_are_found_or_the_reason_is_told() -> None:
    """Never a stand-in without a word of why."""
    found = parts.find()
    assert found.real == (not found.missing)
    assert found.command
