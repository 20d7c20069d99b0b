"""Production of several services, and production that does not come back by itself."""

from pathlib import Path

import pytest

from preflight.linux import proc
from tests.e2e.night import Night
from tests.servers import free_port, soon


def test_services_are_stopped_last_first_and_started_in_order(night: Night) -> None:
    """Two services: both down while the candidate runs, both back and the same."""
    night.service("llm")
    night.service("embed", serves="embedding")
    night.job()
    night.start()
    ran = night.run()
    assert ran.code == 0, str(ran)
    services = {each["name"]: each for each in ran.json["production"]["services"]}
    assert {each["identity"] for each in services.values()} == {"same"}
    assert services["embed"]["stopped_at"] < services["llm"]["stopped_at"]
    assert services["llm"]["serving_at"] < services["embed"]["serving_at"]


@pytest.mark.slow
def test_service_that_need_not_stop_goes_on(night: Night) -> None:
    """`stops` names who makes room; the other one keeps its process."""
    night.service("llm")
    embed = night.service("embed", serves="embedding")
    night.job(stops=["llm"])
    night.start()
    before = night.pid(embed["port"])
    ran = night.run()
    assert ran.code == 0, str(ran)
    assert night.pid(embed["port"]) == before


@pytest.mark.slow
def test_production_that_needs_two_terms_is_stopped(night: Night) -> None:
    """Two TERMs end it; the run goes on."""
    night.service("llm", "--term-needs-two")
    night.job()
    night.start()
    ran = night.run()
    assert ran.code == 0, str(ran)
    assert ran.json["production"]["identity"] == "same"


@pytest.mark.slow
def test_production_that_ignores_term_is_killed(night: Night) -> None:
    """Two TERMs in vain, then KILL: gone is gone, and it comes back."""
    night.service("llm", "--ignore-term")
    night.job()
    night.start()
    ran = night.run()
    assert ran.code == 0, str(ran)
    assert ran.json["production"]["state"] == "serving"


def test_production_whose_model_vanishes_meanwhile_is_down(night: Night) -> None:
    """P1: it cannot come back; exit 10 outranks everything, a person is told, the box is drained."""
    service = night.service()
    night.job("--load-seconds", "300", candidate={"ready_within": "3s"})
    night.start()
    run = night.begin_and_stop_production()
    Path(service["model"]).unlink()
    ran = run.end(within=90)
    assert ran.code == 10, str(ran)
    assert ran.json["production"]["state"] == "down"
    assert night.told().startswith("DOWN")
    assert night.call("status", "--json").code == 10
    assert night.run().code == 4  # drained: no job fires until a person acts


@pytest.mark.slow
def test_slow_production_is_waited_for(night: Night) -> None:
    """It loads for a while: never ended early for being slow."""
    night.service("llm", "--load-seconds", "1.5")
    night.job()
    night.start()
    ran = night.run()
    assert ran.code == 0, str(ran)
    assert ran.json["production"]["services"][0]["load_s"] >= 1.5


@pytest.mark.slow
def test_box_without_production_says_so(night: Night) -> None:
    """Nothing to stop, nothing to restore; the candidate is proven all the same."""
    night.job()
    ran = night.run()
    assert ran.code == 0, str(ran)
    assert ran.json["production"]["state"] == "none"


def test_candidate_never_gets_productions_port(night: Night) -> None:
    """Clients of production must not meet a candidate: refused with what to write instead."""
    service = night.service()
    night.job(candidate={"port": service["port"]})
    night.start()
    before = night.serving()
    ran = night.run()
    assert ran.code in (2, 3), str(ran)
    assert "candidate.port" in ran.out
    assert night.serving() == before


@pytest.mark.slow
def test_free_port_is_found_for_the_candidate(night: Night) -> None:
    """`port = "free"` asks the kernel right before the start."""
    night.service()
    night.job(candidate={"port": "free"})
    night.start()
    assert night.run().code == 0


@pytest.mark.slow
def test_command_supervisor_brings_it_back(night: Night) -> None:
    """Three commands of the user: stop, start and status are all that is known."""
    port = free_port()
    log, pidfile = night.room / "own.log", night.room / "own.pid"
    script = night.room / "service.sh"
    from tests.servers import STANDIN

    words = " ".join(STANDIN)
    script.write_text(
        f"""#!/bin/sh
alive() {{ [ -f {pidfile} ] && kill -0 "$(cat {pidfile})" 2>/dev/null; }}
case "$1" in
  start) alive && exit 0
         setsid {words} -m {night.model} -c 4096 --port {port} >>{log} 2>&1 </dev/null &
         echo $! >{pidfile} ;;
  stop) alive && kill "$(cat {pidfile})"; while alive; do :; done ;;
  status) alive || exit 3 ;;
esac
exit 0
"""
    )
    script.chmod(0o755)
    night.settings["production"] = [
        {
            "name": "llm",
            "kind": "llamacpp",
            "port": port,
            "ready_within": "20s",
            "idle_within": "2s",
            "supervisor": {
                "kind": "command",
                **{word: [str(script), word] for word in ("start", "stop", "status")},
            },
        }
    ]
    night.write()
    night.job()
    import subprocess

    subprocess.run([str(script), "start"], check=True)
    soon(lambda: night.pid(port))
    before = proc.ident(night.pid(port) or 0)
    ran = night.run()
    assert ran.code == 0, str(ran)
    assert ran.json["production"]["identity"] == "same"
    assert proc.ident(night.pid(port) or 0) != before
