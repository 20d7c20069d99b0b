"""Faults of the GPU: an engine that outlives its server, a driver that hangs, a tool that is nowhere."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from preflight.linux import proc
from tests.cases.card import Card
from tests.cases.conftest import HELD_MIB, script
from tests.e2e.night import Json, Night, Ran
from tests.servers import STANDIN, soon


def mark_of(night: Night) -> str:
    """A word by which this box's server, and with .engine behind it its engine, are known."""
    return str(night.room / "mark")


def engine_of(night: Night) -> int:
    """The engine that lives."""
    mark = f"{mark_of(night)}.engine"
    (found,) = [pid for pid in proc.pids() if mark in (proc.cmdline(pid) or ())]
    return found


def with_engine(night: Night, card: Card, **more: Any) -> Json:
    """A production whose memory is held by an engine in a session of its own."""
    command = script("engine", mark_of(night), *STANDIN)
    service = night.service(command=command, cwd=str(night.room), **more)
    card.holds({f"{mark_of(night)}.engine": HELD_MIB, str(night.model): HELD_MIB})
    return service


@pytest.fixture
def managed(night: Night, card: Card) -> Night:
    """The same behind commands of a person, which end the server and forget its engine."""
    pid, room = night.room / "pid", night.room
    service = with_engine(night, card)
    server = [*STANDIN, "-m", service["model"], "--port", str(service["port"]), "-c", "4096"]
    start = " ".join(script("engine", mark_of(night), *server))
    bodies = {
        "up": f"kill -0 $(cat {pid} 2>/dev/null) 2>/dev/null && exit 0\ncd {room}\n"
        f"setsid {start} >/dev/null 2>&1 </dev/null &\necho $! > {pid}",
        "down": f"kill $(cat {pid})",
        "is": f"kill -0 $(cat {pid}) 2>/dev/null && exit 0\nexit 3",
    }
    for name, body in bodies.items():
        (room / name).write_text(f"#!/bin/sh\n{body}\n")
        (room / name).chmod(0o755)
    commands = {"start": "up", "stop": "down", "status": "is"}
    service["supervisor"] = {
        "kind": "command",
        **{verb: [str(room / name)] for verb, name in commands.items()},
    }
    del service["command"]
    night.write()
    subprocess.run([room / "up"], check=True)
    soon(lambda: night.pid() or None, within=20)
    return night


def test_an_orphan_engine_keeps_the_job_from_starting(managed: Night) -> None:
    """The port is free and the status says stopped; the memory is not there, and that decides."""
    engine = engine_of(managed)
    ran = managed.run(within=90)
    assert ran.code in (5, 10), str(ran)
    assert managed.candidates() == []
    assert not any(sample for sample in ran.json["measurements"].values())
    told = managed.told()
    assert f"pid {engine}" in told
    assert "21.0 GiB" in told
    assert "2.7 GiB of 24.0 GiB free" in told
    assert proc.ident(engine) is not None
    if ran.code == 10:
        assert told.startswith("DOWN")


def test_an_engine_of_our_own_process_is_ended_by_its_identity(night: Night, card: Card) -> None:
    """Where the ladder is ours the whole family is asked to end, and nobody else on the card."""
    with_engine(night, card)
    night.start()
    engine = engine_of(night)
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        ran = night.run(within=90)
        assert ran.code == 0, str(ran)
        assert any(f"pid {engine}" in note for note in ran.json["notes"])
        assert other.poll() is None
    finally:
        other.communicate(b"\n")


@pytest.mark.slow
def test_a_card_that_hangs_blocks_the_run_and_nothing_hangs_with_it(
    serving: Night, card: Card
) -> None:
    """No answer is neither zero MiB nor a pass; the query is killed, and production gets no signal."""
    before = proc.ident(serving.serving())
    card.is_stuck()
    ran = serving.run(within=90)
    assert ran.code == 3, str(ran)
    (verdict,) = ran.check("gpu.driver", "unknown")
    assert "timeout" in verdict["message"]
    assert "gave no answer within" in serving.told()
    assert proc.ident(serving.serving()) == before
    assert all(proc.ident(pid) is None for pid in card.asked())


def bare(night: Night, *words: str) -> Ran:
    """The runner as cron starts it: hardly any environment, another directory, no input."""
    ran = subprocess.run(
        [sys.executable, "-I", "-m", "runner", "--config", str(night.config), *words],
        env={"PATH": "/usr/bin:/bin", "SHELL": "/bin/sh", "LOGNAME": "nobody"},
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    return Ran(ran.returncode, ran.stdout, ran.stderr)


def test_a_tool_that_crons_path_lacks_is_named_and_told(serving: Night) -> None:
    """By hand it was found; the alert goes out all the same, and nothing is skipped."""
    if Path("/usr/bin/nvidia-smi").exists():
        pytest.skip("this machine has the tool in cron's PATH")
    serving.settings["gpu"] = {"reader": "nvidia-smi"}
    serving.write()
    before = proc.ident(serving.serving())
    ran = bare(serving, "run", "night", "--json")
    assert ran.code == 3, str(ran)
    assert "nvidia-smi not found in PATH=/usr/bin:/bin" in serving.told()
    assert "Traceback" not in ran.err
    assert proc.ident(serving.serving()) == before


def test_with_its_paths_written_out_cron_is_as_good_as_a_shell(serving: Night) -> None:
    """The tool is named, every path is whole: the bare environment changes nothing."""
    ran = bare(serving, "run", "night", "--json")
    assert ran.code == 0, str(ran)


def test_a_relative_path_is_refused_before_anything_is_looked_at(serving: Night) -> None:
    """It would mean another file from cron's directory."""
    serving.job(candidate={"model": "models/job.gguf"})
    before = proc.ident(serving.serving())
    ran = bare(serving, "run", "night", "--json")
    assert ran.code == 2
    assert "candidate.model" in ran.out
    assert "is a relative path" in ran.out
    assert proc.ident(serving.serving()) == before
