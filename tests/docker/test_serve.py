"""The daemon in a container: no systemd, and a process namespace of its own."""

from pathlib import Path

import pytest

from tests.docker.engine import Engine
from tests.e2e.night import RUNNER, Night, toml
from tests.servers import soon

pytestmark = pytest.mark.docker

JOB = {
    "question": "Does it run in a container?",
    "candidate": {"kind": "task", "command": ["/bin/true"]},
}


def served(night: Night, engine: Engine) -> None:
    """A container that fires the job each minute."""
    (night.room / "jobs" / "nap.toml").write_text(toml(JOB))
    night.settings["schedule"] = [{"job": "nap", "cron": "* * * * *"}]
    night.write()
    words = [*RUNNER, "--config", str(night.config), "serve"]
    engine.run("serve", words, "--init", f"--volume={night.room}:{night.room}")


def test_it_serves_and_ends_when_its_container_is_stopped(night: Night, engine: Engine) -> None:
    """`docker stop` is an orderly end, well before the engine would kill it."""
    served(night, engine)
    soon(lambda: True if "serving" in engine.logs("serve") else None, within=20)
    soon(lambda: True if (night.state / "journal.db").exists() else None, within=20)
    engine.do("stop", "serve")
    assert engine.do("inspect", "--format={{.State.ExitCode}}", "serve") == "0"
    assert "ended: interrupted by TERM" in engine.logs("serve")


@pytest.mark.slow
def test_a_slot_runs_there(night: Night, engine: Engine) -> None:
    """Each run is a child of the daemon, with a guardian of its own."""
    served(night, engine)

    def ran() -> list[Path] | None:
        return list((night.state / "runs").glob("*/result.json")) or None

    soon(ran, within=90)
    engine.do("stop", "serve")
    said = night.call("why", "nap", "--json").json
    assert said["slot"]["state"] == "ran", said
    assert said["run"]["outcome"] == "proven"
