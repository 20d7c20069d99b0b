"""Other users of the box: what a member of the group may do, and what nobody else may."""

import json
import signal

import pytest

from tests.systemd.box import RUNNER, STATE, UNIT, Box

pytestmark = pytest.mark.systemd


def test_a_member_starts_a_run_and_sees_how_it_goes(box: Box) -> None:
    """As if it were theirs: the story as it goes on, and its exit code; the same as one object."""
    ran = box.runner("run", "200k-mtp", user="anna")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "PROVEN" in ran.stdout
    assert "stopping production" in ran.stdout
    said = json.loads(box.runner("run", "200k-mtp", "--json", user="anna").stdout)
    assert (said["outcome"], said["exit_code"]) == ("proven", 0)
    assert said["claims"][0]["state"] == "proven"


def test_a_member_reads_what_became_of_runs(box: Box) -> None:
    """history, show and status, from what is public; the rest stays closed."""
    box.runner("run", "nap", user="anna")
    assert box.ask("history", user="anna")["runs"][0]["job"] == "nap"
    assert box.ask("show", user="anna")["job"] == "nap"
    box.runner("status")
    assert box.ask("status", user="anna")["production"]["state"] == "serving"
    for path in ("journal.db", "runs", "recovery.state", "spool"):
        assert box.attempt("cat", f"{STATE}/{path}", user="anna").returncode != 0
        assert box.attempt("ls", f"{STATE}/{path}/", user="anna").returncode != 0


def test_a_refusal_reaches_the_member(box: Box) -> None:
    """With its exit code, and with why."""
    box.do("systemctl", "stop", UNIT)
    try:
        ran = box.runner("run", "nap", user="anna")
    finally:
        box.do("systemctl", "start", UNIT)
    assert ran.returncode == 3, ran.stdout + ran.stderr
    assert "REFUSED" in ran.stdout


def test_a_mistake_in_the_job_reaches_the_member(box: Box) -> None:
    """Exit 2, file, line and key, though the run ended before anything could be seen of it."""
    box.write("/etc/runner/jobs/odd.toml", "question = 'What?'\n[candidate]\ncontxt = 1\n")
    ran = box.runner("run", "odd", user="anna")
    assert ran.returncode == 2
    assert "odd.toml:3" in ran.stderr
    box.remove("/etc/runner/jobs/odd.toml")


def test_a_member_cancels_and_production_comes_first(box: Box) -> None:
    """`runner cancel` from another terminal, and INT in the one that follows the run."""
    box.night()
    ran = box.runner("cancel", user="anna")
    assert ran.returncode == 0, ran.stderr
    assert box.answers()
    assert box.last()["outcome"] == "interrupted"
    following = box.begin(RUNNER, "run", "night", user="anna")
    box.until(lambda: len(box.sleepers()) >= 2)
    inside = box.do("pgrep", "--full", "--uid", "anna", f"{RUNNER} run night").split()
    box.do("kill", f"-{signal.SIGINT.value}", *inside)
    out, _ = following.communicate(timeout=60)
    assert following.returncode == 143, out
    assert box.answers()


def test_a_terminal_that_closes_leaves_the_run_alone(box: Box) -> None:
    """The run is systemd's, not the shell's."""
    following = box.begin(RUNNER, "run", "night", user="anna")
    box.until(lambda: len(box.sleepers()) >= 2)
    inside = box.do("pgrep", "--full", "--uid", "anna", f"{RUNNER} run night").split()
    box.do("kill", f"-{signal.SIGHUP.value}", *inside)
    following.communicate(timeout=60)
    assert box.show("runner-run@night.service", "ActiveState") == "active"
    box.do("systemctl", "stop", "runner-run@night.service")


def test_a_second_start_of_a_running_job_is_busy(box: Box) -> None:
    """Exit 4, and the run that goes on is not disturbed."""
    run = box.night()
    pid = box.pid(run)
    ran = box.runner("run", "night", user="anna")
    assert ran.returncode == 4
    other = box.runner("run", "nap", user="anna")
    assert other.returncode == 4, other.stdout + other.stderr
    assert box.pid(run) == pid
    box.do("systemctl", "stop", run)


def test_a_member_who_sees_the_run_die_sees_production_come_back(box: Box) -> None:
    """kill -9 of the run: whoever follows it is told by recovery."""
    following = box.begin(RUNNER, "run", "night", user="anna")
    box.until(lambda: len(box.sleepers()) >= 2)
    box.kill("runner-run@night.service")
    out, err = following.communicate(timeout=60)
    assert following.returncode == 137, out + err
    assert "SERVING" in out


@pytest.mark.parametrize(
    "words",
    [
        ("stop", UNIT),
        ("start", "runner-recover.service"),
        ("stop", "runner.service"),
        ("start", "runner-guardian@x.service"),
        ("start", "ssh.service"),
        ("daemon-reload",),
    ],
    ids=" ".join,
)
def test_a_member_may_nothing_else(box: Box, words: tuple[str, ...]) -> None:
    """Not production, not the runner's own units, nothing of the machine's."""
    ran = box.attempt("systemctl", "--no-ask-password", *words, user="anna")
    assert ran.returncode != 0
    assert box.answers()


@pytest.mark.parametrize("verb", ["restart", "kill", "disable", "mask"])
def test_the_runner_s_user_may_only_start_and_stop_production(box: Box, verb: str) -> None:
    """What it is given is what it needs."""
    ran = box.attempt("systemctl", "--no-ask-password", verb, UNIT, user="runner")
    assert ran.returncode != 0
    assert (
        box.attempt("systemctl", "--no-ask-password", "start", UNIT, user="runner").returncode == 0
    )


def test_a_stranger_is_told_whose_box_it_is(box: Box) -> None:
    """Exit 2 naming the group and the owner; nothing was touched."""
    ran = box.runner("run", "nap", user="bob")
    assert ran.returncode == 2
    assert "runner-users" in ran.stderr
    assert "runner" in ran.stderr
    assert box.runner("recover", user="bob").returncode == 2
    assert box.runner("run", "nap", "--set", "downtime_budget=20m", user="anna").returncode == 2
    assert box.answers()
