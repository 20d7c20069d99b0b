"""The stop and its proofs: all of the family, nobody else, and each failure by its name."""

import dataclasses
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from preflight.linux import proc
from preflight.linux.proc import Ident
from runner.recovery import stop as stopping
from runner.recovery import world
from runner.recovery.drivers import driver
from runner.recovery.recipe import Recipe
from runner.recovery.stop import Halt, Stop, households
from tests.runner.recovery.site import Site, kill, until_says
from tests.servers import soon


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ladder's steps, shortened."""
    monkeypatch.setattr(stopping, "FIRST_TERM_S", 0.6)
    monkeypatch.setattr(stopping, "SECOND_TERM_S", 0.4)
    monkeypatch.setattr(stopping, "HEADLESS_S", 0.1)
    monkeypatch.setattr(stopping, "SUPERVISOR_SLACK_S", 0.3)


def halted(site: Site, one: Recipe) -> Halt:
    """Stop a service of the site."""
    return Stop(one, driver(one), site.clock).run()


def test_a_service_that_ends_when_asked_is_stopped_at_once(site: Site) -> None:
    """Gone, nobody listens, no note."""
    one = site.start(site.recipe())
    halt = halted(site, one)
    assert halt.stopped
    assert halt.notes == ()
    assert halt.took < 2
    assert proc.claimants("127.0.0.1", site.port) == []


def test_the_second_term_goes_to_all_of_it(site: Site) -> None:
    """Told: it did not end the first time."""
    one = site.start(site.recipe(site.standin("--term-needs-two")))
    halt = halted(site, one)
    assert halt.stopped
    (note,) = halt.notes
    assert "did not end 1 s after TERM; signalled again" in note


def test_what_ignores_term_is_killed_and_that_is_told(site: Site) -> None:
    """Three steps, and no fourth is needed."""
    one = site.start(site.recipe(site.standin("--ignore-term")))
    halt = halted(site, one)
    assert halt.stopped
    assert halt.notes[-1] == "llm: killed, it ignored two TERMs"


def test_a_wrapper_that_swallows_the_signal_does_not_hide_its_server(site: Site) -> None:
    """The shell ends, the server behind it never heard; it is signalled without the long wait."""
    serve = site.room / "serve.sh"
    serve.write_text(f"#!/bin/sh\n{' '.join(site.standin())}\necho over\n")
    serve.chmod(0o755)
    one = site.start(site.recipe([str(serve)]))
    server = proc.ident(site.listener())
    assert server is not None
    assert site.heads(one) != {server.pid}
    halt = halted(site, one)
    assert halt.stopped
    assert not proc.alive(server)
    (note,) = halt.notes
    assert "was left behind by the process that got the TERM" in note


def test_an_engine_that_outlives_its_server_is_ended_with_it(site: Site) -> None:
    """A free port proves nothing: engines hold the memory."""
    one = site.start(site.recipe(site.standin("--leave-child-on-exit")))
    (engine,) = {proc.ident(pid) for pid in proc.descendants(site.listener())}
    assert engine is not None
    assert halted(site, one).stopped
    assert not proc.alive(engine)


def test_a_request_in_flight_does_not_keep_the_old_process(site: Site) -> None:
    """The port is free and the process lives on for a client: it is no stopped service."""
    one = site.start(site.recipe(site.standin("--hold-request", "forever")))
    post = (
        "import sys, urllib.request as r; print('up', flush=True);"
        'r.urlopen(r.Request(sys.argv[1], data=b\'{"prompt": "forever"}\'))'
    )
    client = site.child([sys.executable, "-c", post, f"http://127.0.0.1:{site.port}/completion"])
    until_says(client, "up")
    soon(lambda: True if proc.established(site.port) else None)
    who = proc.ident(site.listener())
    assert who is not None
    halt = halted(site, one)
    assert halt.stopped
    assert not proc.alive(who)
    assert "signalled again" in halt.notes[0]


def test_what_is_brought_back_by_somebody_is_named(site: Site) -> None:
    """A loop of somebody's that starts it anew: the service is back while it should be down."""
    loop = f"echo up; while :; do {' '.join(site.odd('--model', str(site.model)))}; done"
    babysitter = site.child(["/bin/sh", "-c", loop])
    until_says(babysitter, "up")
    one = site.recipe()
    soon(lambda: site.serves(one) or None)
    old = site.listener()
    stopper = Stop(one, driver(one), site.clock)
    finding = stopper.run().finding
    if not finding:  # it needs a moment to start
        soon(lambda: proc.owners(site.port) or None)
        finding = stopper._finding()
    assert finding.startswith("llm was stopped and runs again: pid ")
    assert f"pid {old} " not in finding
    assert babysitter.poll() is None


def test_a_stranger_who_takes_the_port_is_named_and_not_signalled(site: Site) -> None:
    """Stopped, and yet the port is not free."""
    one = site.start(site.recipe())
    (who,) = driver(one).standing().heads
    stopper = Stop(one, driver(one), site.clock)
    kill(who)
    soon(lambda: None if proc.alive(who) else True)
    stranger = site.child(site.odd())
    assert site.listener() == stranger.pid
    halt = stopper.run()
    assert (
        halt.finding
        == (f"llm has stopped, but port {site.port} is held by pid {stranger.pid} (python3.11)")
        or f"held by pid {stranger.pid} " in halt.finding
    )
    assert stranger.poll() is None


def test_a_refused_stop_has_asked_nobody(site: Site) -> None:
    """The supervisor's words are the finding."""
    one = site.start(site.recipe())
    pid = site.listener()
    supervisor = {"kind": "command", "start": ["/bin/true"], "status": ["/bin/true"]}
    supervisor["stop"] = ["/bin/sh", "-c", "echo not today; exit 1"]
    halt = halted(site, dataclasses.replace(one, supervisor=supervisor))
    assert halt.refused
    assert halt.finding == "stop command /bin/sh answers 1: not today"
    assert site.listener() == pid


def test_a_service_behind_commands_is_never_signalled_by_us(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its processes are its own commands' business; that it does not end is said."""
    monkeypatch.setattr("runner.recovery.drivers.command._COMMAND_WITHIN", 0.5)
    one = site.start(site.recipe())
    pid = site.listener()
    supervisor = {"kind": "command", "start": ["/bin/true"], "status": ["/bin/true"]}
    supervisor["stop"] = ["/bin/true"]
    halt = halted(site, dataclasses.replace(one, supervisor=supervisor))
    assert halt.finding.startswith(f"llm does not end: pid {pid} ")
    assert site.listener() == pid


def test_a_number_that_is_used_again_names_nobody(site: Site) -> None:
    """A look that finds a pid twice, with two processes behind it, has found neither."""
    stranger = site.child(["/bin/sleep", "60"])
    looks = iter([{stranger.pid}, set[int]()])
    assert world.identified(lambda: next(looks)) == frozenset()
    who = proc.ident(stranger.pid)
    assert who is not None
    other = Ident(who.boot, who.pid, who.start - 1)
    assert not world.send(other, signal.SIGKILL)
    assert world.open_pidfd(other) is None
    assert world.send_all([other], signal.SIGKILL) == set()
    assert stranger.poll() is None


def test_nobody_signals_himself_or_the_first_process(site: Site) -> None:
    """Whatever a family looks like."""
    me = proc.ident(os.getpid())
    assert me is not None
    assert world.send_all([me], signal.SIGKILL) == set()
    assert world.identified(lambda: {0, 1}) == frozenset()
    assert Ident.from_json({"boot": "b", "pid": 1, "start": 0}) is None
    assert Ident.from_json({"boot": "b", "pid": 0, "start": 0}) is None
    assert os.getpid() not in {who.pid for who in households(driver(site.recipe()), site.port)}


def test_a_process_whose_first_thread_has_ended_is_still_there(site: Site) -> None:
    """The kernel shows a zombie; the other threads hold all of its memory."""
    text = (
        "import ctypes, os, sys, threading\n"
        "def stay():\n"
        "    print('up', flush=True)\n"
        "    os.read(0, 1)\n"
        "    os._exit(0)\n"
        "threading.Thread(target=stay).start()\n"
        "ctypes.CDLL(None).pthread_exit(None)\n"
    )
    child = site.child([sys.executable, "-c", text])
    until_says(child, "up")
    found = soon(lambda: it if (it := proc.stat(child.pid)) and it.state == "Z" else None)
    assert not found.gone
    assert proc.ident(child.pid) is not None
    assert child.stdin is not None
    child.stdin.write("x")
    child.stdin.flush()
    soon(lambda: True if proc.ident(child.pid) is None else None)


@pytest.fixture
def login(site: Site) -> Iterator[Path]:
    """A cgroup as sshd has one: everybody who logs in lives in it. Only root can make it."""
    room = Path("/sys/fs/cgroup/systemd" if proc.cgroup(1) else "/sys/fs/cgroup")
    if not (room / "cgroup.procs").exists():
        room = Path("/sys/fs/cgroup")
    made = room / f"test-{site.mark}.service"
    try:
        made.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made here: {error}")
    yield made
    site.end()
    soon(lambda: None if (made / "cgroup.procs").read_text().strip() else True)
    made.rmdir()


def test_who_shares_a_logins_cgroup_is_no_family(site: Site, login: Path) -> None:
    """Production was started by hand from a login: its stop must not end sshd and everybody else."""
    sshd = site.child(["/bin/sleep", "60"])
    (login / "cgroup.procs").write_text(str(sshd.pid))
    one = site.start(site.recipe())
    server = site.listener()
    (login / "cgroup.procs").write_text(str(server))
    if proc.cgroup(server) != proc.cgroup(sshd.pid) or proc.unit_of(proc.cgroup(server)) is None:
        pytest.skip("the cgroup made here is not the one that processes are known by")
    assert proc.family(server) == {server}
    assert proc.family(sshd.pid) == {sshd.pid, server}
    assert halted(site, one).stopped
    assert sshd.poll() is None
