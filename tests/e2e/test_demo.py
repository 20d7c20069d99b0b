"""`runner demo`: two commands from an empty checkout to a proven run, and the midnight incident."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from preflight.linux import proc
from runner.demo.box import Box
from runner.demo.notes import Notes
from tests.e2e.night import RUNNER, Ran, Run
from tests.servers import needs_llama_server, soon


class Demo:
    """A demo box in a directory of the test's own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def call(self, *words: str, within: float = 200.0) -> Ran:
        """`runner demo` with these words, to its end."""
        return self.begin(*words).end(within)

    def ask(self, *words: str) -> Ran:
        """Another verb on this box."""
        return self._run("--config", str(self.directory / "runner.toml"), *words).end()

    def begin(self, *words: str) -> Run:
        """`runner demo` with these words, in a process group of its own, as a terminal has it."""
        return self._run("demo", "--dir", str(self.directory), *words)

    def _run(self, *words: str) -> Run:
        return Run(
            subprocess.Popen(
                [*RUNNER, *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        )


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    """A demo that has ended when the test has."""
    demo = Demo(tmp_path / "demo")
    try:
        yield demo
    finally:
        if (demo.directory / "demo.json").exists():
            demo.call("--stop")


@pytest.mark.real
@needs_llama_server
def test_demo_proves_the_main_job_on_real_servers(demo: Demo) -> None:
    """Done when: proven, drafts counted, 200,000 tokens found, the same production, a downtime."""
    ran = demo.call()
    assert ran.code == 0, str(ran)
    assert "Production before" in ran.out
    assert "the same answer" in ran.out
    assert "Where to look next" in ran.out
    shown = demo.ask("show", "--json")
    assert shown.json["outcome"] == "proven"
    evidence = {item["kind"]: item["value"] for item in shown.claim("speculation")["evidence"]}
    assert evidence["drafted"] > 0
    assert evidence["accepted"] > 0
    assert shown.claim("context")["numbers"]["n_ctx"] >= 200_000
    assert 0.04 < shown.claim("context")["numbers"]["filled_share"] < 0.06
    assert shown.json["production"]["identity"] == "same"
    assert shown.json["production"]["downtime_s"] > 0
    assert not Box(demo.directory).notes.alive()


@pytest.mark.real
@needs_llama_server
def test_incident_is_refused_and_names_everything(demo: Demo) -> None:
    """The midnight incident: exit 3, the draft, the shards and the stranger; production untouched."""
    ran = demo.call("--incident", "--json")
    assert ran.code == 3, str(ran)
    box = Box(demo.directory)
    checks = json.dumps(ran.json["checks"])
    assert str(box.draft) in checks
    assert box.shards[0].name in checks
    assert f"pid {ran.json['stranger_pid']}" in checks or str(ran.json["stranger_pid"]) in checks
    pids = ran.json["production_pid"]
    assert pids["before"] == pids["after"] is not None
    assert "REFUSED" in ran.json["alert"]
    assert proc.ident(ran.json["stranger_pid"]) is None


@pytest.mark.slow
def test_demo_keeps_its_box_until_it_is_stopped(demo: Demo) -> None:
    """--keep leaves production running; --stop ends exactly what the demo started."""
    kept = demo.call("--keep", "--incident", "--json")
    assert kept.code == 3, str(kept)
    pid = kept.json["production_pid"]["after"]
    assert proc.ident(pid) is not None
    stopped = demo.call("--stop", "--json")
    assert stopped.json == {"ended": [pid]}
    assert proc.ident(pid) is None
    assert demo.call("--stop", "--json").json == {"ended": []}


def test_demo_leaves_a_directory_of_somebody_else_alone(demo: Demo) -> None:
    """It makes its box in an empty place only."""
    demo.directory.mkdir()
    (demo.directory / "thesis.txt").write_text("years of work")
    ran = demo.call("--json")
    assert ran.code == 2, str(ran)
    assert "--dir" in ran.json["error"]["remedy"]
    assert [path.name for path in demo.directory.iterdir()] == ["thesis.txt"]


@pytest.mark.slow
def test_interrupted_demo_brings_production_back_and_then_ends(demo: Demo) -> None:
    """Ctrl-C while production is down: the run restores it first, and nothing is left running."""
    run = demo.begin("--json")
    soon(lambda: (demo.directory / "demo.json").exists() or None, within=30)
    soon(lambda: Notes.read(demo.directory).production_argv or None, within=30)
    port = Notes.read(demo.directory).candidate_port
    soon(lambda: proc.owners(port) or None, within=30)
    os.killpg(run.pid, signal.SIGINT)
    ran = run.end()
    assert ran.code == 130, str(ran)
    assert ran.json["outcome"] == "interrupted"
    assert ran.json["production"]["state"] == "serving"
    assert ran.json["demo"]["before"] == ran.json["demo"]["after"]
    assert not Notes.read(demo.directory).alive()
    assert not proc.owners(port)
