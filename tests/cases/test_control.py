"""Faults of the control commands: a supervisor that revives, a sudo that asks for a password."""

import json
import os
import subprocess
from collections.abc import Iterator

import pytest

from preflight.linux import proc
from tests.cases.card import Card
from tests.cases.conftest import HELD_MIB, NEED_MIB, program, script
from tests.e2e.night import Json, Night
from tests.servers import STANDIN, soon


def copies(night: Night) -> list[int]:
    """The processes that serve production's model and run."""
    model = night.settings["production"][0]["model"]
    return [pid for pid in night.left() if model in (proc.cmdline(pid) or ())]


@pytest.fixture
def kept(night: Night, card: Card) -> Iterator[Night]:
    """A production that a manager keeps alive: killed, it is there again after a second."""
    service = night.service()
    card.holds({service["model"]: HELD_MIB, str(night.model): HELD_MIB})
    command = [*STANDIN, "--model", service["model"], "--port", str(service["port"])]
    command += ["--parallel", "1", "--ctx-size", "4096"]
    service |= {"command": command}
    for key in ("context", "parallel"):
        del service[key]
    night.write()
    room = night.room / "manager"
    room.mkdir()
    (room / "command").write_text(json.dumps(command))
    manager = subprocess.Popen(script("manager", str(room)), stdin=subprocess.DEVNULL)
    try:
        soon(lambda: night.pid() or None, within=20)
        soon(lambda: True if (room / "state").exists() else None)
        yield night
    finally:
        manager.kill()
        manager.wait()


def test_a_production_that_is_revived_ends_the_run_and_is_not_doubled(kept: Night) -> None:
    """Stopped by a signal, it comes back under the job: the run goes back, and says who came."""
    kept.job("--slow", "4", needs={"gpu": [{"free_mib": NEED_MIB}]})
    ran = kept.run(within=90)
    assert ran.code not in (0, 3), str(ran)
    assert ran.check("port.activation", "warn")
    assert "is back while it should be down" in str(ran.json) or "runs again" in str(ran.json)
    assert ran.json["production"]["state"] == "serving"
    assert kept.told().startswith("SERVING")
    assert len(copies(kept)) == 1
    assert kept.candidates() == []


def test_through_its_manager_it_is_stopped_once_and_started_once(
    kept: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Restart=always is no obstacle to a stop through whoever restarts."""
    tools = kept.room / "tools"
    tools.mkdir()
    program(tools / "systemctl", "systemctl", PLAYED_MANAGER=str(kept.room / "manager"))
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    service: Json = kept.settings["production"][0]
    service["supervisor"] = {"kind": "systemd", "unit": "llm.service"}
    del service["command"]
    kept.write()
    ran = kept.run(within=90)
    assert ran.code == 0, str(ran)
    assert "Restart=always" in ran.check("port.activation", "warn")[0]["message"]
    assert ran.check("prod.permission", "pass")
    orders = (kept.room / "manager" / "log").read_text().split()
    assert [order for order in orders if order == "stop"] == ["stop"]
    assert orders[orders.index("stop") :] == ["stop", "start"]
    assert len(copies(kept)) == 1


@pytest.mark.parametrize("flags", [[], ["-n"]])
def test_a_sudo_that_would_ask_for_a_password_is_found_beforehand(
    serving: Night, flags: list[str]
) -> None:
    """The nasty half: it may be stopped, and could not be started again."""
    calls = serving.room / "calls"
    calls.touch()
    sudo = str(program(serving.room / "sudo", "sudo", PLAYED_SUDO=str(calls)))
    through = [sudo, *flags, "/usr/bin/systemctl"]
    serving.settings["production"][0]["supervisor"] = {
        "kind": "command",
        "start": [*through, "start", "llm"],
        "stop": [*through, "stop", "llm"],
        "status": ["/bin/true"],
    }
    serving.write()
    before = proc.ident(serving.serving())
    ran = serving.run(within=60)
    assert ran.code == 3, str(ran)
    (verdict,) = ran.check("prod.permission", "fail")
    assert "password" in verdict["found"]
    assert "password" in serving.told()
    assert proc.ident(serving.serving()) == before
    assert all(
        "-n" in call.split() and "-l" in call.split() for call in calls.read_text().splitlines()
    )


def test_an_unknown_is_accepted_by_its_id_and_its_reason_is_kept(
    serving: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tool for reservations that is broken says nothing of who has the card; a person knows better."""
    tools = serving.room / "tools"
    tools.mkdir()
    (tools / "canhazgpu").write_text("#!/bin/sh\necho 'redis: connection refused' >&2\nexit 1\n")
    (tools / "canhazgpu").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    refused = serving.run(within=90)
    assert refused.code == 3, str(refused)
    assert "redis: connection refused" in refused.check("lock.others", "unknown")[0]["found"]
    reason = "redis is down until Monday; nobody else is here"
    serving.job(accept={"lock.others": reason}, needs={"gpu": [{"free_mib": NEED_MIB}]})
    ran = serving.run(within=90)
    assert ran.code == 0, str(ran)
    (verdict,) = ran.check("lock.others", "unknown")
    assert f"(accepted: {reason})" in verdict["message"]


@pytest.mark.parametrize("check", ["prod.restore", "prod.identity", "prod.permission"])
def test_nothing_about_the_way_back_is_accepted(serving: Night, check: str) -> None:
    """The job is refused with the name of the key, before anything is looked at."""
    serving.job(accept={check: "it will be fine"})
    ran = serving.run()
    assert ran.code == 2
    assert "never accepted" in ran.out
