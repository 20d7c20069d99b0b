"""Faults that people met, replayed: two runs at once, and the bare environment of a scheduler."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

from runner.recovery import lock
from runner.schedule.slots import State
from tests.e2e.night import JOB, RUNNER, Night
from tests.runner.schedule.served import Served
from tests.servers import soon

BARE = {"PATH": "/usr/bin:/bin", "SHELL": "/bin/sh", "LOGNAME": "nobody"}
"""What cron leaves of an environment."""


def test_of_runs_at_once_exactly_one_is_active(served: Served) -> None:
    """Case 16: by hand, from another shell, and by schedule: production is stopped once."""
    served.night.job("--slow", "1")
    first = served.night.begin_and_stop_production()
    holder = lock.holder(served.night.state)
    run = holder.run if holder else None
    second = served.night.run()
    assert second.code == 4, second
    assert second.json["outcome"] == "skipped"
    assert "pid" in second.json["why"]
    assert str(first.pid) in second.json["why"]
    served.fire()
    slot = served.decided()
    assert slot.state is State.BUSY
    assert f"already running: run {run}, pid {first.pid}" in slot.reason
    assert len(served.night.candidates()) == 1
    first.process.send_signal(signal.SIGINT)
    ended = first.end()
    assert ended.json["outcome"] in {"proven", "interrupted", "refuted"}
    assert served.night.serving()
    served.night.job()
    third = served.night.run()
    assert third.code != 4, "the lock is free after the first run's end"


def bare(night: Night, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run the runner as cron would."""
    return subprocess.run(
        [*RUNNER, "--config", str(night.config), *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd="/",
        env=BARE,
        timeout=60,
        check=False,
    )


def without_the_tool(night: Night) -> None:
    """The GPU is read by nvidia-smi alone, which is in nobody's PATH there."""
    night.settings["gpu"] = {"reader": "nvidia-smi"}
    night.write()
    night.job(needs={"gpu": [{"free_mib": 20000}]})


def test_a_tool_that_is_not_in_the_path_is_named(night: Night) -> None:
    """Case 17: a preflight failure with an alert, not a silent nothing."""
    without_the_tool(night)
    before = night.serving()
    ran = bare(night, "run", JOB, "--json")
    assert ran.returncode == 3, ran
    said: dict[str, Any] = json.loads(ran.stdout)
    assert "nvidia-smi" in json.dumps(said["checks"])
    assert "nvidia-smi" in night.told()
    assert night.serving() == before


def test_the_daemon_with_the_bare_environment_tells_it_too(served: Served) -> None:
    """Case 17, by schedule: ahead of the slot, and in the slot's own row."""
    without_the_tool(served.night)
    served.fire(environment=BARE)
    slot = served.decided()
    assert slot.state is State.REFUSED
    assert "nvidia-smi" in slot.reason
    assert "nvidia-smi" in served.told("WOULD BE REFUSED")


def test_a_secret_that_is_missing_is_said(night: Night) -> None:
    """Case 17: it lay in the shell's exports; a run that nobody would hear of is refused."""
    night.settings["alerts"] = {
        "channel": [
            {
                "kind": "telegram",
                "token": {"env": "TELEGRAM_TOKEN"},
                "chat_id": 1,
                "api_base": "http://127.0.0.1:9",
            }
        ]
    }
    night.write()
    before = night.serving()
    ran = bare(night, "run", JOB, "--json")
    assert ran.returncode == 3, ran
    assert "self.alert" in ran.stdout
    tested = bare(night, "alerts", "test")
    assert tested.returncode != 0
    assert "TELEGRAM_TOKEN" in tested.stdout + tested.stderr
    assert night.serving() == before


def test_the_lock_is_free_after_a_kill(night: Night) -> None:
    """Case 16: SIGKILL too; the guardian brings production back, and the next run may begin."""
    night.job("--slow", "1")
    first = night.begin_and_stop_production()
    os.kill(first.pid, signal.SIGKILL)
    first.end()
    soon(night.pid, within=30)
    night.job()

    def free() -> bool | None:
        return True if night.run().code != 4 else None

    soon(free, within=30)
    assert Path(night.state / "lock").exists()
