"""A new build of the server: production's own command, run by another program."""

import sys
from pathlib import Path

import pytest

from tests.e2e.night import Night, toml
from tests.servers import STANDIN


@pytest.fixture
def build(serving: Night) -> Path:
    """Another program that takes production's flags, and a job that is about it alone."""
    path = serving.room / "builds" / "new-server"
    path.parent.mkdir()
    path.write_text(
        f"#!{sys.executable} -I\nimport runpy\n"
        f"runpy.run_path({STANDIN[-1]!r}, run_name='__main__')\n"
    )
    path.chmod(0o755)
    job = {
        "question": "Does the new build run?",
        "downtime_budget": "60s",
        "candidate": {"like": "llm", "binary": str(path), "port": serving.candidate_port},
        "workload": {"max_tokens": 8, "repeats": 1, "warmups": 0, "fill": [0.5]},
        "claim": [{"kind": "context", "tokens": 4096, "filled_at_least": 0.4}],
    }
    (serving.room / "jobs" / "build.toml").write_text(toml(job))
    return path


def test_a_new_build_runs_in_production_s_place(serving: Night, build: Path) -> None:
    """It has production's model and flags; production comes back with the build that it had."""
    (arm,) = serving.call("run", "build", "--dry-run", "--json").json["arms"]
    assert arm["command"][0] == str(build)
    assert "--model" in arm["command"] or "-m" in arm["command"]
    assert not set(STANDIN) & set(arm["command"])
    ran = serving.run("build")
    assert ran.code == 0, str(ran)
    assert ran.json["production"]["identity"] == "same"
    assert ran.json["measurements"]["candidate"]["build"]  # as the server says it, not the job
    for check in ("file.exists", "host.binary"):
        assert any(build.name in verdict["subject"] for verdict in ran.check(check))


def test_a_new_build_that_is_gone_stops_nothing(serving: Night, build: Path) -> None:
    """Somebody tidied up the builds: refused, and production is the one it was."""
    before = serving.serving()
    build.unlink()
    ran = serving.run("build")
    assert ran.code == 3, str(ran)
    (gone,) = ran.check("file.exists", "fail")
    assert build.name in gone["message"]
    assert serving.serving() == before
