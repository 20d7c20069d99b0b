"""Starting, asking and signalling: nothing of it may hang, and nothing leaks."""

import os
import signal
import sys
from pathlib import Path

import pytest

from preflight.linux import proc
from runner.recovery import world
from runner.recovery.notify import notify
from tests.runner.recovery.site import Site, kill, until_says
from tests.servers import soon


def test_a_short_command_gives_its_code_and_all_it_said() -> None:
    """Standard output and error together, without input."""
    assert world.quiet(["/bin/sh", "-c", "echo a; echo b >&2; cat; exit 3"], within=10) == (
        3,
        "a\nb",
    )
    assert world.quiet(["/no/such/tool"], within=10) == (
        127,
        "/no/such/tool: No such file or directory",
    )


def test_a_command_past_its_deadline_is_ended_with_what_it_started(site: Site) -> None:
    """Nothing of it is left waiting for a password."""
    shell = f"/bin/sleep 60 & /bin/sh -c 'sleep 61; : {site.mark}'; true"
    code, said = world.quiet(["/bin/sh", "-c", shell], within=0.3)
    assert code is None
    assert said == "/bin/sh: no answer within 0.3 s"
    soon(
        lambda: (
            None
            if any(site.mark in " ".join(proc.cmdline(pid) or ()) for pid in proc.pids())
            else True
        )
    )


def test_a_daemon_that_keeps_the_output_open_does_not_hold_us(site: Site) -> None:
    """A start command that leaves its server behind on its own output."""
    shell = f"RUNNER_TEST={site.mark} setsid -f /bin/sleep 60; echo up"
    assert world.quiet(["/bin/sh", "-c", shell], within=10) == (0, "up")


def test_what_systemd_meant_for_us_is_not_handed_on() -> None:
    """A child that said READY=1 in our name would lie."""
    known = {"NOTIFY_SOCKET": "x", "INVOCATION_ID": "y", "PATH": "/bin"}
    assert world.scrubbed(known) == {"PATH": "/bin"}


def test_the_users_own_manager_is_found_without_a_login(monkeypatch: pytest.MonkeyPatch) -> None:
    """A timer or a cron line knows no XDG_RUNTIME_DIR."""
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    room = f"/run/user/{os.getuid()}"
    said = world.quiet(["/bin/sh", "-c", "echo $XDG_RUNTIME_DIR"], within=10)
    assert said == (0, room if os.path.isdir(room) else "")


def test_a_child_has_no_terminal_no_input_and_nothing_of_ours(site: Site, tmp_path: Path) -> None:
    """A session of its own, and three descriptors."""
    log = tmp_path / "log"
    kept = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(kept, True)
    child = world.spawn(["/bin/sleep", "60"], environment=site.env, cwd="/", log=log)
    who = proc.ident(child.pid)
    assert who is not None
    held = {fd: os.readlink(f"/proc/{child.pid}/fd/{fd}") for fd in ("0", "1", "2")}
    # a program opens libraries while it starts; what is handed down to it stays
    soon(lambda: True if sorted(os.listdir(f"/proc/{child.pid}/fd")) == ["0", "1", "2"] else None)
    assert held == {"0": "/dev/null", "1": str(log), "2": str(log)}
    found = proc.stat(child.pid)
    assert found is not None
    assert found.session == child.pid
    kill(who)
    child.wait()
    os.close(kept)


def test_a_candidate_ends_with_its_keeper(site: Site) -> None:
    """Also one whose keeper dies before it could ask to be told."""
    keeper = site.child([sys.executable, "-c", KEEPS, str(site.room / "log")])
    pid = int(until_says(keeper, "child"))
    who = proc.ident(pid)
    assert who is not None
    with open(f"/proc/{pid}/oom_score_adj") as file:
        assert int(file.read()) == 700  # it may be raised by anybody, and lowered by root alone
    kill(keeper)
    soon(lambda: None if proc.alive(who) else True)


KEEPS = """
import os, sys
from pathlib import Path
from runner.recovery import world
Path("/proc/self/oom_score_adj").write_text("700")
child = world.spawn(["/bin/sleep", "60"], environment=dict(os.environ), cwd="/",
                    log=Path(sys.argv[1]), prepare=world.bound_to_parent(None, 300))
print("child", child.pid, flush=True)
sys.stdin.read()
"""


def test_what_escapes_becomes_the_subreapers_child(site: Site) -> None:
    """And is collected when it ends, with its exit code."""
    reaper = site.child([sys.executable, "-c", REAPS])
    pid = int(until_says(reaper, "escaped"))
    found = proc.stat(pid)
    assert found is not None
    assert found.ppid == reaper.pid
    who = proc.ident(pid)
    kill(who, signal.SIGTERM)
    assert until_says(reaper, "reaped") == f"{pid} -15"


REAPS = """
import os, subprocess
from preflight.linux import proc
from runner.recovery import world
from runner.until import RealClock, until
world.become_subreaper()
subprocess.run(["/bin/sh", "-c", "setsid -f /bin/sleep 60"])
(pid,) = until(lambda: proc.descendants(os.getpid()) or None, within=10, clock=RealClock())
print("escaped", pid, flush=True)
reaped = until(lambda: world.reap() or None, within=30, clock=RealClock())
print("reaped", pid, reaped[pid], flush=True)
"""


def test_the_shutdown_is_asked_for_once_a_second_and_not_at_every_poll(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each answer costs a process, and a restore polls fifty times a second."""
    asked = tmp_path / "asked"
    tool = tmp_path / "systemctl"
    tool.write_text(f"#!/bin/sh\necho x >> {asked}\necho stopping\nexit 1\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    look = world._Shutdown()
    assert all(look() for _ in range(20))
    assert asked.read_text() == "x\n"


def test_without_a_service_manager_nothing_is_notified(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a socket that is gone is no reason to end."""
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    notify("READY=1")
    monkeypatch.setenv("NOTIFY_SOCKET", "/no/such/socket")
    notify("READY=1")
