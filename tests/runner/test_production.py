"""Production as it is found, and its stop: refused while that is possible, proven when it is done."""

import dataclasses
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pydantic import TypeAdapter

from preflight import rings
from preflight.box import Gpu, GpuProc, GpuReading
from preflight.linux import proc
from preflight.linux.box import LinuxBox
from preflight.production.busy import Busy
from preflight.rings import Gate
from preflight.verdict import State
from runner import production
from runner.production import Found, StopFailed, StopRefused
from runner.recovery import state
from runner.recovery.keeper import Keeper
from runner.recovery.state import StateFile
from runner.service import AnyService, Service
from runner.until import RealClock
from tests.fakes import FakeBox
from tests.fakes_runner import FakeClock
from tests.runner.recovery.site import Site, kill, stop, until_says
from tests.servers import STANDIN, soon

CLOCK = RealClock()


@pytest.fixture
def memory(site: Site, keeper: Keeper) -> Iterator[StateFile]:
    """What the run writes down."""
    made = StateFile(site.state_dir)
    made.write(guardian=keeper.who.to_json())
    yield made
    made.close()


def service(site: Site, *flags: str, **more: Any) -> Service:
    """Production as runner.toml would describe it."""
    known: dict[str, Any] = {
        "name": "llm",
        "kind": "llamacpp",
        "command": list(STANDIN),
        "args": list(flags),
        "model": str(site.model),
        "port": site.port,
        "context": 4096,
        "idle_within": "1s",
        "env": site.env,
        "supervisor": {"kind": "process", "log": str(site.log)},
    }
    found: Service = TypeAdapter(AnyService).validate_python(known | more)
    return found


def brought_up(site: Site, of: Service, env: dict[str, str] | None = None) -> Found:
    """Start it as a person would, in a directory and an environment of his own."""
    argv = list(of.command_line().argv)
    where = ["/bin/sh", "-c", f'cd {site.room} && exec "$@"', "sh", *argv]
    site.child(where, env=env)
    soon(lambda: True if production.survey(of).look.serving else None)
    return production.survey(of)


def gate(clock: Callable[[], float] = CLOCK.now) -> Gate:
    """A gate that has just been passed: with nothing to check."""
    passed = rings.look([], FakeBox()).passed
    assert passed is not None
    made = rings.gate(passed, FakeBox(), clock)
    assert isinstance(made, Gate)
    return made


def stopped(
    site: Site,
    found: Found,
    keeper: Keeper,
    memory: StateFile,
    *,
    box: FakeBox | None = None,
    through: Gate | None = None,
) -> list[str]:
    """Stop it; what was said on the way."""
    said: list[str] = []
    production.stop(
        [found],
        gate=through or gate(),
        keeper=keeper,
        memory=memory,
        clock=site.clock,
        box=box or FakeBox(),
        say=said.append,
    )
    return said


def test_production_is_found_as_it_runs_and_not_as_it_was_configured(site: Site) -> None:
    """Its own directory and environment are what brings it back exactly so."""
    found = brought_up(site, service(site), env={"ONLY": "here"})
    assert found.up
    assert found.look.identity["context"] == 4096
    assert found.recipe.supervisor["cwd"] == str(site.room)
    assert found.recipe.supervisor["env"]["ONLY"] == "here"
    assert found.recipe.identity["said"]["model_path"] == str(site.model)
    assert [said["path"] for said in found.recipe.inputs if said["role"] == "weights"] == [
        str(site.model)
    ]
    assert {who.pid for who in found.family} == {site.listener()}


def test_production_that_is_not_there_is_not_up(site: Site) -> None:
    """Also when somebody else listens on its port."""
    of = service(site)
    assert not production.survey(of).up
    stranger = site.child(site.odd())
    assert site.listener() == stranger.pid
    assert not production.survey(of).up


def test_requests_in_flight_are_waited_for_and_then_refuse(site: Site) -> None:
    """Nobody is cut off in the middle of an answer."""
    found = brought_up(site, service(site, "--hold-request", "forever"))
    with LinuxBox() as box:
        assert production.wait_idle(found, box, clock=site.clock, stop=lambda: None) is None
    post = (
        "import sys, urllib.request as r; print('up', flush=True);"
        'r.urlopen(r.Request(sys.argv[1], data=b\'{"prompt": "forever"}\'))'
    )
    client = site.child([sys.executable, "-c", post, f"http://127.0.0.1:{site.port}/completion"])
    until_says(client, "up")
    asked = Busy(recipe=found.recipe.to_json())
    with LinuxBox() as box:
        soon(lambda: True if asked.look(box).state is State.WARN else None)
        busy = production.wait_idle(found, box, clock=site.clock, stop=lambda: None)
    assert busy is not None
    assert busy.message().startswith(
        "FAIL prod.busy: requests to llm — 1 request is at work, after 1 s"
    )


def test_what_completes_nothing_cannot_be_stopped(site: Site) -> None:
    """Nobody could tell afterwards whether it is the same."""
    found = brought_up(site, service(site, "--health-only"))
    with pytest.raises(StopRefused, match="llm completes nothing"):
        production.take_identity(found, FakeBox())


def test_identity_is_taken_while_it_is_idle(site: Site) -> None:
    """Its greedy answer, and the GPU memory that its family holds."""
    found = brought_up(site, service(site))
    pid = site.listener()
    box = FakeBox(reading=reading(GpuProc(pid=pid, mib=900.0), GpuProc(pid=1, mib=50.0)))
    known = production.take_identity(found, box).recipe.identity
    assert known["gpu_mib"] == 900.0
    assert known["greedy"]
    assert production.residency(FakeBox())({pid}) is None


def reading(*procs: GpuProc, free: int = 1000) -> GpuReading:
    """One GPU with these processes on it."""
    gpu = Gpu(index=0, uuid="GPU-1", name="card", total_mib=2000, free_mib=free, procs=procs)
    return GpuReading(gpus=(gpu,))


def test_a_stop_is_written_down_before_it_is_asked_for(
    site: Site, keeper: Keeper, memory: StateFile
) -> None:
    """Then it is asked for, and proven."""
    found = brought_up(site, service(site))
    assert stopped(site, found, keeper, memory) == ["stopping llm"]
    known = state.read(site.state_dir)
    assert known["phase"] == "stopping"
    asked = known["services"]["llm"]
    assert asked["stop_asked"] is True
    assert (asked["boot"], asked["stopped_moment"] <= CLOCK.now()) == (proc.boot_id(), True)
    assert {who["pid"] for who in known["services"]["llm"]["family"]} == {
        who.pid for who in found.family
    }
    assert proc.claimants("127.0.0.1", site.port) == []


def refused(site: Site, found: Found, keeper: Keeper, memory: StateFile, **more: Any) -> str:
    """Why the stop is refused; production serves on, and nothing is owed."""
    pid = site.listener()
    with pytest.raises(StopRefused) as error:
        stopped(site, found, keeper, memory, **more)
    assert site.listener() == pid
    assert state.read(site.state_dir)["phase"] == "armed"
    return str(error.value)


def test_an_old_gate_opens_nothing(site: Site, keeper: Keeper, memory: StateFile) -> None:
    """P6: what was true ten seconds ago may be over."""
    found = brought_up(site, service(site))
    old = gate(FakeClock(CLOCK.now() - 11).now)
    assert refused(site, found, keeper, memory, through=old) == "the gate is older than 10 s"


def test_a_guardian_that_died_or_was_stopped_guards_nothing(
    site: Site, keeper: Keeper, memory: StateFile
) -> None:
    """P6: a process is no guardian, only one that answers is."""
    found = brought_up(site, service(site))
    keeper._lines.connection.settimeout(0.2)
    stop(keeper.who)
    assert "does not answer" in refused(site, found, keeper, memory)
    kill(keeper.who)
    soon(lambda: None if keeper.alive else True)
    assert "is gone" in refused(site, found, keeper, memory)


def test_a_stop_that_cannot_be_written_down_is_not_asked_for(
    site: Site, keeper: Keeper, memory: StateFile
) -> None:
    """A full disk, a bad one: nothing is stopped that could not be found again."""
    found = brought_up(site, service(site))
    closed = os.open(os.devnull, os.O_RDONLY)
    kept, memory._fd = memory._fd, closed
    assert "the stop cannot be recorded" in refused(site, found, keeper, memory)
    memory._fd = kept
    os.close(closed)


def test_a_supervisor_that_refuses_the_stop_leaves_nothing_owed(
    site: Site, keeper: Keeper, memory: StateFile
) -> None:
    """It was asked nothing, so a recovery must not restart it."""
    found = brought_up(site, service(site))
    commands = {"kind": "command", "start": ["/bin/true"], "status": ["/bin/true"]}
    commands["stop"] = ["/bin/sh", "-c", "echo not allowed; exit 1"]
    refusing = dataclasses.replace(found.recipe, supervisor=commands)
    found = dataclasses.replace(found, recipe=refusing)
    assert "not allowed" in refused(site, found, keeper, memory)
    assert state.read(site.state_dir)["services"] == {}


def test_a_service_that_does_not_end_is_a_failed_stop(
    site: Site, keeper: Keeper, memory: StateFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From then on it is owed."""
    monkeypatch.setattr("runner.recovery.drivers.command._COMMAND_WITHIN", 0.5)
    monkeypatch.setattr("runner.recovery.stop.SUPERVISOR_SLACK_S", 0.1)
    found = brought_up(site, service(site))
    commands = {"kind": "command", "start": ["/bin/true"], "status": ["/bin/true"]}
    commands["stop"] = ["/bin/true"]
    lazy = dataclasses.replace(found.recipe, supervisor=commands)
    with pytest.raises(StopFailed, match="llm does not end"):
        stopped(site, dataclasses.replace(found, recipe=lazy), keeper, memory)
    assert state.read(site.state_dir)["phase"] == "stopping"


def test_gpu_memory_that_is_not_given_back_is_a_failed_stop(
    site: Site, keeper: Keeper, memory: StateFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process is gone, an engine of it holds the card: by pid, as long as it is looked at."""
    monkeypatch.setattr("runner.gpu_memory.MEMORY_BACK_S", 0.3)
    found = brought_up(site, service(site))
    pid = site.listener()
    box = FakeBox(reading=reading(GpuProc(pid=pid, mib=900.0)))
    with pytest.raises(StopFailed, match=f"GPU memory is still held by pid {pid}"):
        stopped(site, found, keeper, memory, box=box)


def test_a_gpu_that_can_no_longer_be_read_is_a_failed_stop(
    site: Site, keeper: Keeper, memory: StateFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P8: unknown is not pass."""
    monkeypatch.setattr("runner.gpu_memory.MEMORY_BACK_S", 0.3)
    found = brought_up(site, service(site))
    box = FakeBox(reading=GpuReading(fault="failed", said="driver hangs"))
    with pytest.raises(StopFailed, match="the GPU cannot be read any more: driver hangs"):
        stopped(site, found, keeper, memory, box=box)


def test_steady_memory_is_memory_given_back(site: Site, keeper: Keeper, memory: StateFile) -> None:
    """Two looks that agree."""
    found = brought_up(site, service(site))
    stopped(site, found, keeper, memory, box=FakeBox(reading=reading()))


def test_a_service_that_is_back_while_it_should_be_down_is_named(site: Site) -> None:
    """By pid and command."""
    found = brought_up(site, service(site))
    pid = site.listener()
    said = production.revived([found], set())
    assert said is not None
    assert said.startswith(f"llm is back while it should be down: pid {pid}, ")
    kill(proc.ident(pid))
    soon(lambda: None if proc.claimants("127.0.0.1", site.port) else True)
    assert production.revived([found], set()) is None


def test_a_candidate_on_productions_port_is_no_production_and_ends_the_run(site: Site) -> None:
    """Its clients would meet the candidate; what a task or a whole command does shows only now."""
    found = brought_up(site, service(site))
    said = production.revived([found], {site.listener()})
    assert said == (
        f"the candidate listens on port {site.port}, where the clients of llm would meet it; "
        "give it a port of its own"
    )
