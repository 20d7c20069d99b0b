"""The run itself is ended: by a signal, by `cancel`, by kill -9. Production comes back each time."""

import os
import signal

import pytest

from preflight.linux import proc
from runner.recovery import lock
from tests.e2e.night import Night
from tests.servers import soon


@pytest.fixture
def long(serving: Night) -> Night:
    """A box whose candidate is loading for a long time, so that the run can be ended meanwhile."""
    serving.job("--load-seconds", "300", candidate={"ready_within": "10m"})
    return serving


def test_kill_9_of_the_run_while_production_is_down(long: Night) -> None:
    """P1: the guardian brings production back; the run is interrupted, and a person is told."""
    run = long.begin_and_stop_production()
    os.kill(run.pid, signal.SIGKILL)
    killed = soon(lambda: None if proc.ident(run.pid) else True)
    assert killed
    soon(long.pid, within=15)
    run.end()
    shown = soon(lambda: _outcome(long), within=15)
    assert shown == "interrupted"
    show = long.call("show", "--json").json
    assert show["exit_code"] == 137
    assert show["production"]["state"] == "serving"
    assert show["production"]["identity"] == "same"
    assert long.candidates() == []
    told = soon(lambda: long.told() or None, within=10)
    assert "SERVING" in told
    assert "interrupted" in told.lower()
    assert long.call("status", "--json").json["obligation"] is None


@pytest.mark.slow
def test_kill_9_is_repaired_within_a_second_and_the_load(long: Night) -> None:
    """The restore begins at once: the stand-in loads in no time, so production is back in a moment."""
    run = long.begin_and_stop_production()
    os.kill(run.pid, signal.SIGKILL)
    soon(long.pid, within=2.5)
    run.end()


@pytest.mark.slow
def test_term_ends_the_run_orderly(long: Night) -> None:
    """The first signal asks for an end; exit 143, production first."""
    run = long.begin_and_stop_production()
    run.process.send_signal(signal.SIGTERM)
    ran = run.end()
    assert ran.code == 143, str(ran)
    assert ran.json["outcome"] == "interrupted"
    assert ran.json["production"]["state"] == "serving"
    assert long.candidates() == []


@pytest.mark.slow
def test_second_signal_changes_nothing(long: Night) -> None:
    """Somebody is impatient: the restore goes on, and the first signal's code counts."""
    run = long.begin_and_stop_production()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        run.process.send_signal(number)
        soon(lambda: True)
    ran = run.end()
    assert ran.code in (129, 130, 143), str(ran)
    assert ran.json["production"]["state"] == "serving"


def test_cancel_ends_the_run_from_elsewhere(long: Night) -> None:
    """`runner cancel` waits until production serves again."""
    run = long.begin_and_stop_production()
    cancelled = long.call("cancel", "--json")
    assert cancelled.code == 0, str(cancelled)
    assert cancelled.json["outcome"] == "interrupted"
    assert long.pid() is not None
    assert run.end().code == 130


def test_cancel_with_nothing_to_cancel(serving: Night) -> None:
    """Nothing runs: said plainly, exit 2."""
    ran = serving.call("cancel", "--json")
    assert ran.code == 2, str(ran)
    assert ran.json["error"]["message"]


def test_two_runs_at_once(long: Night) -> None:
    """P2: the second is skipped with exit 4 and names the first; the first goes on."""
    run = long.begin_and_stop_production()
    second = long.run()
    assert second.code == 4, str(second)
    assert second.json["outcome"] == "skipped"
    holder = lock.holder(long.state)
    assert holder is not None
    assert holder.run is not None
    assert holder.run in str(second.json)
    run.process.send_signal(signal.SIGINT)
    assert run.end().code == 130


@pytest.mark.slow
def test_next_run_after_a_kill_is_an_ordinary_one(long: Night) -> None:
    """What the dead run owed is paid; the box is free again."""
    run = long.begin_and_stop_production()
    os.kill(run.pid, signal.SIGKILL)
    soon(long.pid, within=15)
    run.end()
    soon(lambda: True if _outcome(long) else None, within=15)
    long.job()
    ran = long.run()
    assert ran.code == 0, str(ran)


def test_guardian_killed_with_the_run_is_repaired_by_recover(long: Night) -> None:
    """P1 by hand: both are dead, production is down; `runner recover` brings it back, once."""
    run = long.begin_and_stop_production()
    guardians = [pid for pid in long.left() if "guardian" in (proc.cmdline(pid) or ())]
    for pid in (*guardians, run.pid):
        os.kill(pid, signal.SIGKILL)
    run.end()
    if guardians:
        assert long.pid() is None
    recovered = long.call("recover", "--json")
    assert recovered.code in (0, 137), str(recovered)
    assert long.pid() is not None
    before = long.pid()
    again = long.call("recover", "--json")
    assert again.code == 0, str(again)
    assert long.pid() == before  # P7: a healthy production is never restarted
    assert long.candidates() == []


def _outcome(night: Night) -> str | None:
    """How the latest run ended; None while it has not."""
    said = night.call("show", "--json")
    return said.json.get("outcome") if said.code == 0 else None
