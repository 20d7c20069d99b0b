"""Production in a real container, driven by three commands of a person's own."""

from pathlib import Path
from typing import Any

import pytest

from preflight.linux import proc
from preflight.linux.box import LinuxBox
from preflight.ports.owner import PortOwner
from preflight.verdict import State
from runner.demo import models
from tests.docker.engine import ROOT, Engine
from tests.e2e.night import Night
from tests.servers import STANDIN, free_port, soon

pytestmark = pytest.mark.docker


@pytest.fixture
def served(night: Night, engine: Engine) -> Night:
    """A box whose production is the container `llm`, which its engine keeps alive."""
    port = free_port()
    (model,) = models.write("plain", night.room / "llm.gguf")
    words = [*STANDIN, "--model", str(model), "--port", str(port), "--ctx-size", "4096"]
    engine.run("llm", words, "--restart=always", readable=[night.room])
    driven: dict[str, Any] = {
        word: [str(ROOT / "deploy/container.sh"), word, "llm"]
        for word in ("start", "stop", "status")
    }
    night.settings["production"] = [
        {
            "name": "llm",
            "kind": "llamacpp",
            "port": port,
            "ready_within": "20s",
            "idle_within": "2s",
            "supervisor": {"kind": "command", **driven},
        }
    ]
    night.write()
    night.job()
    soon(lambda: night.pid(port), within=20)
    return night


def test_the_owner_of_a_port_is_a_container(engine: Engine, tmp_path: Path) -> None:
    """A person reads which one it is."""
    port = free_port()
    (model,) = models.write("plain", tmp_path / "web.gguf")
    engine.run("web", [*STANDIN, "-m", str(model), "--port", str(port)], readable=[tmp_path])
    soon(lambda: proc.owners(port) or None, within=20)
    with LinuxBox() as box:
        verdict = PortOwner(port=port).look(box)
    assert verdict.state is State.FAIL
    assert f"docker container {engine.id('web')}" in verdict.message()


def test_a_container_is_stopped_and_comes_back(served: Night, engine: Engine) -> None:
    """`docker stop` is not undone by --restart=always, and production is the same afterwards."""
    before = engine.pid("llm")
    ran = served.run()
    assert ran.code == 0, str(ran)
    assert ran.json["production"]["identity"] == "same"
    assert engine.pid("llm") not in {0, before}
    assert served.pid() == engine.pid("llm")


def test_a_container_that_is_started_during_the_run_is_named(served: Night, engine: Engine) -> None:
    """Somebody's `docker start` or compose brings production back: the candidate has to go."""
    served.job("--slow", "4")
    run = served.begin_and_stop_production()
    engine.do("start", "llm")
    ran = run.end()
    assert ran.code == 5, str(ran)
    assert "llm is back while it should be down" in ran.json["alert"]
    assert f"docker container {engine.id('llm')}" in ran.json["alert"]
    assert served.pid() == engine.pid("llm")
    assert served.candidates() == []


def test_kill_9_of_the_run_brings_the_container_back(served: Night, engine: Engine) -> None:
    """The guardian knows the same three commands."""
    served.job("--slow", "4")
    run = served.begin_and_stop_production()
    run.process.kill()
    run.end()
    soon(served.pid, within=20)
    assert engine.pid("llm") == served.pid()
    said = served.call("status", "--json").json
    assert said["production"]["state"] == "serving"
