"""Who is this service, and who only looks like it: strangers are never taken for production."""

import os
import shlex
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from preflight.linux import proc
from runner.recovery import probe
from runner.recovery.drivers import Driver, command, driver
from runner.recovery.drivers.process import SERVICE
from runner.recovery.drivers.systemd import SystemdDriver, _seconds
from tests.runner.recovery.site import Site, until_says
from tests.servers import soon

WAITS = "import sys; print('up', flush=True); sys.stdin.read()"


def script(path: Path, text: str) -> Path:
    """An executable file."""
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_an_editor_that_has_the_start_script_open_is_not_production(site: Site) -> None:
    """`less /opt/serve.sh` ends in production's command; it is a person's, and must not be ended."""
    serve = script(site.room / "serve.sh", "#!/bin/sh\nexec sleep 60\n")
    viewer = site.child(["/usr/bin/tail", "-f", str(serve)])
    soon(lambda: proc.cmdline(viewer.pid) == ("/usr/bin/tail", "-f", str(serve)) or None)
    assert driver(site.recipe([str(serve)])).standing().state == "inactive"


@pytest.mark.parametrize("first", ["#!/bin/sh", "#!/usr/bin/env -S bash", "#!/bin/sh -e"])
def test_a_script_is_known_behind_its_interpreter(site: Site, first: str) -> None:
    """The kernel puts the interpreter in front of it."""
    serve = script(site.room / "serve.sh", f"{first}\necho up\nread -r word\n")
    child = site.child([str(serve), "--fast"])
    until_says(child, "up")
    assert site.heads(site.recipe([str(serve), "--fast"])) == {child.pid}
    assert site.heads(site.recipe([str(serve), "--slow"])) == set()


def test_a_program_found_by_path_is_known_by_its_file(site: Site) -> None:
    """A shell shows the bare name."""
    child = site.child([sys.executable, "-c", WAITS])
    until_says(child, "up")
    real = os.path.realpath(sys.executable)
    assert site.heads(site.recipe([real, "-c", WAITS])) == {child.pid}


def test_a_candidate_with_the_same_command_is_not_production(site: Site) -> None:
    """Its tag tells it apart, and is never handed on to production."""
    argv = [sys.executable, "-c", WAITS, site.mark]
    candidate = site.child(argv, env={proc.TAG: site.run})
    until_says(candidate, "up")
    one = site.recipe(argv)
    assert site.heads(one) == set()
    tagged = site.recipe(supervisor=site.process(argv, env=site.env | {proc.TAG: site.run}))
    drive = driver(tagged)
    assert drive.start() is None
    (pid,) = soon(lambda: {who.pid for who in drive.standing().heads} or None)
    assert proc.TAG not in (proc.environ(pid) or {})
    assert pid != candidate.pid


def test_a_script_that_became_another_program_is_known_by_its_pidfile(site: Site) -> None:
    """Started by a person, it carries no mark; the pidfile names it."""
    pidfile = site.room / "serve.pid"
    serve = script(site.room / "serve.sh", f"#!/bin/sh\necho $$ > {pidfile}\nexec sleep 60\n")
    child = site.child([str(serve)])
    soon(lambda: proc.cmdline(child.pid) == ("sleep", "60") or None)
    named = site.recipe(supervisor=site.process([str(serve)], pidfile=str(pidfile)))
    assert site.heads(site.recipe([str(serve)])) == set()
    assert site.heads(named) == {child.pid}


@pytest.mark.parametrize("content", ["", "x", "0", "-1", "1", "99999999"])
def test_a_pidfile_that_names_nobody_is_none(site: Site, content: str) -> None:
    """And a number that was given away again since it was written names a stranger."""
    pidfile = site.room / "serve.pid"
    pidfile.write_text(content)
    named = site.recipe(supervisor=site.process(["/no/such"], pidfile=str(pidfile)))
    assert site.heads(named) == set()
    stranger = site.child(["/bin/sleep", "60"])
    pidfile.write_text(str(stranger.pid))
    os.utime(pidfile, (1, 1))
    assert site.heads(named) == set()


def test_a_service_we_started_is_known_whatever_became_of_its_title(site: Site) -> None:
    """By its mark, which only the first process of its session counts for."""
    title = "#!/bin/sh\nsleep 61 &\nexec sleep 60\n"
    one = site.recipe([str(script(site.room / "serve.sh", title))])
    drive = driver(one)
    assert drive.start() is None
    (head,) = soon(lambda: drive.standing().heads or None)
    soon(lambda: True if len(site.copies()) == 2 else None)
    fresh = driver(one).standing()
    assert fresh.heads == {head}
    assert fresh.family == set(site.copies())
    assert (proc.environ(head.pid) or {})[SERVICE] == f"llm:{site.port}"


def test_what_outlived_its_server_is_an_orphan_and_no_service(site: Site) -> None:
    """An engine without its server serves nobody, and holds the memory."""
    one = site.recipe(site.odd("--leave", "--flap", "0.01"))
    drive = driver(one)
    assert drive.start() is None
    soon(lambda: probe.health(one.probe).serving or None)
    soon(lambda: True if driver(one).standing().state == "inactive" else None)
    (orphan,) = driver(one).orphans()
    assert (proc.cmdline(orphan.pid) or ())[0] == "/bin/sleep"


def commands(site: Site, code: int, **more: Any) -> Driver:
    """A service behind commands, its status command answering this."""
    known: dict[str, Any] = {"kind": "command", "start": ["/bin/true"], "stop": ["/bin/true"]}
    known["status"] = ["/bin/sh", "-c", f"exit {code}"]
    return driver(site.recipe(supervisor=known, **more))


@pytest.mark.parametrize(("code", "state"), [(0, "active"), (3, "inactive"), (1, "unknown")])
def test_a_status_command_answers_for_its_service(site: Site, code: int, state: str) -> None:
    """0 runs, 3 is stopped, anything else tells nothing."""
    standing = commands(site, code).standing()
    assert standing.state == state
    assert standing.heads == frozenset()


def test_a_stranger_on_the_port_is_not_a_commands_service(site: Site) -> None:
    """Who listened before had another command line."""
    stranger = site.child(site.odd())
    assert site.listener() == stranger.pid
    asked = commands(site, 0, identity={"argv": ["/opt/llm/server"]})
    assert asked.standing().heads == frozenset()
    asked = commands(site, 0, identity={"argv": list(proc.cmdline(stranger.pid) or ())})
    assert {who.pid for who in asked.standing().heads} == {stranger.pid}


def test_a_status_command_that_hangs_tells_nothing(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is ended with all that it started, and named."""
    monkeypatch.setattr(command, "_COMMAND_WITHIN", 0.3)
    hangs = {"kind": "command", "start": ["/bin/true"], "stop": ["/bin/true"]}
    hangs["status"] = ["/bin/sh", "-c", f"/bin/sh -c 'sleep 60; : {site.mark}'; true"]
    standing = driver(site.recipe(supervisor=hangs)).standing()
    assert standing.state == "unknown"
    assert "no answer within 0.3 s" in standing.why
    soon(
        lambda: (
            None
            if any(site.mark in " ".join(proc.cmdline(pid) or ()) for pid in proc.pids())
            else True
        )
    )


@pytest.fixture
def systemctl(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[SystemdDriver, Path]]:
    """A systemctl that answers what a test says, and keeps what it was asked."""

    def make(answers: str, code: int = 0) -> tuple[SystemdDriver, Path]:
        asked = site.room / "asked"
        bin_ = site.room / "bin"
        bin_.mkdir(exist_ok=True)
        told = f"printf '%s\\n' {shlex.quote(answers)}\nexit {code}\n"
        text = f'#!/bin/sh\necho "$XDG_RUNTIME_DIR|$*" >> {asked}\n{told}'
        script(bin_ / "systemctl", text)
        monkeypatch.setenv("PATH", f"{bin_}:{os.environ['PATH']}")
        unit = {"kind": "systemd", "unit": "llama.service", "scope": "system"}
        made = driver(site.recipe(supervisor=unit))
        assert isinstance(made, SystemdDriver)
        return made, asked

    return make


@pytest.mark.parametrize(
    ("shown", "state"),
    [
        ("ActiveState=active\nJob=0", "active"),
        ("ActiveState=active\nJob=", "active"),
        ("ActiveState=active\nJob=812", "changing"),
        ("ActiveState=deactivating\nJob=0", "changing"),
        ("ActiveState=activating\nSubState=auto-restart", "changing"),
        ("ActiveState=reloading", "changing"),
        ("ActiveState=failed\nResult=exit-code", "inactive"),
        ("ActiveState=inactive", "inactive"),
    ],
)
def test_a_unit_is_active_only_with_no_job_queued(
    systemctl: Callable[..., tuple[SystemdDriver, Path]], shown: str, state: str
) -> None:
    """A service that is still stopping answers too."""
    drive, _ = systemctl(f"{shown}\nMainPID=0\nInvocationID=abc\nControlGroup=")
    standing = drive.standing()
    assert (standing.state, standing.heads, standing.token) == (state, frozenset(), "abc")
    assert standing.cgroup is None


def test_the_pid_zero_of_a_stopped_unit_is_nobody(
    systemctl: Callable[..., tuple[SystemdDriver, Path]],
) -> None:
    """kill(0) ends the caller's own group."""
    drive, _ = systemctl("ActiveState=active\nMainPID=0\nControlGroup=/")
    assert drive.standing().family == set()
    drive, _ = systemctl(f"ActiveState=active\nMainPID={os.getpid()}\nControlGroup=/")
    assert {who.pid for who in drive.standing().heads} == {os.getpid()}
    assert os.getpid() not in drive.standing().family


def test_a_manager_that_does_not_answer_is_unknown(
    systemctl: Callable[..., tuple[SystemdDriver, Path]],
) -> None:
    """Unknown blocks a stop, and never a restore."""
    drive, _ = systemctl("Failed to connect to bus", code=1)
    assert drive.standing().state == "unknown"
    assert drive.start() == "systemctl start llama.service: Failed to connect to bus"


def test_systemctl_is_never_left_waiting_for_a_password(
    systemctl: Callable[..., tuple[SystemdDriver, Path]],
) -> None:
    """And never waits for the job itself: the answer is polled."""
    drive, asked = systemctl("")
    assert drive.start() is None
    assert drive.stop() is None
    lines = [line.partition("|")[2] for line in asked.read_text().splitlines()]
    assert lines == [
        "--no-ask-password reset-failed -- llama.service",
        "--no-ask-password start --no-block -- llama.service",
        "--no-ask-password stop --no-block -- llama.service",
    ]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1min 30s", 90), ("20s", 20), ("1h", 3600), ("infinity", 90), ("", 90), ("500ms", 0.5)],
)
def test_systemd_says_its_time_outs_in_words(text: str, seconds: float) -> None:
    """What cannot be read is its own default."""
    assert _seconds(text) == seconds


def test_a_log_that_nobody_reads_does_not_hold_up_the_start(site: Site) -> None:
    """A queue without a reader would block the open for ever."""
    queue = site.room / "queue"
    os.mkfifo(queue)
    one = site.recipe(supervisor=site.process(site.odd(), log=str(queue)))
    drive = driver(one)
    assert drive.start() is None
    assert stat.S_ISFIFO(queue.stat().st_mode)
    (who,) = drive.standing().heads
    assert os.readlink(f"/proc/{who.pid}/fd/1") == os.devnull


def test_a_start_that_cannot_be_says_why(site: Site) -> None:
    """The program, or the directory, and the system's reason."""
    gone = site.process(site.odd(), cwd=str(site.room / "gone"))
    assert driver(site.recipe(["/no/such/server"])).start() == (
        "cannot start /no/such/server: No such file or directory (/no/such/server)"
    )
    said = driver(site.recipe(supervisor=gone)).start()
    assert said is not None
    assert str(site.room / "gone") in said
