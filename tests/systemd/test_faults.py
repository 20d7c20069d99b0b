"""Whatever dies, production is back: the faults of a night, one by one and all at once."""

import pytest

from tests.systemd.box import BEGUN_WITHIN_S, LOADS_WITHIN_S, RUNNER, UNIT, Box

pytestmark = pytest.mark.systemd

GOES_DOWN_WITHIN_S = 25.0  # less than TimeoutStopSec of the units: nobody was waited for


@pytest.mark.parametrize(
    "who",
    [("run",), ("guardian",), ("run", "guardian")],
    ids="+".join,
)
def test_kill_9(box: Box, who: tuple[str, ...]) -> None:
    """kill -9 of the run, of its guardian and of both, while production is down."""
    before = box.show(UNIT, "InvocationID")
    run = box.night()
    units = {"run": run, "guardian": box.guardian(), "daemon": "runner.service"}
    at = box.kill(*(units[each] for each in who))
    box.restored(before, at)
    last = box.last()
    assert last["outcome"] == ("interrupted" if "run" in who else "broken")
    assert last["exit_code"] == (137 if "run" in who else 5)
    assert last["production"]["state"] == "serving"
    box.until(lambda: any(last["headline"].split(" · ")[0] in text for text in box.told()))
    assert box.show("runner.service", "ActiveState") in {"active", "activating"}


def test_kill_9_of_the_daemon_leaves_the_run_alone(box: Box) -> None:
    """It is another unit; the daemon comes back, and finds it running."""
    run = box.night()
    pid = box.pid(run)
    box.kill("runner.service")
    box.until(lambda: box.pid("runner.service") > 1, within=20)
    assert box.pid(run) == pid
    box.do("systemctl", "stop", run)


def test_an_upgrade_of_the_daemon_leaves_the_run_alone(box: Box) -> None:
    """A restart with new units, and of systemd itself."""
    run = box.night("night")
    pid, guardian = box.pid(run), box.pid(box.guardian())
    box.do("systemctl", "daemon-reload")
    box.do("systemctl", "restart", "runner.service")
    box.do("systemctl", "daemon-reexec")
    assert (box.pid(run), box.pid(box.guardian())) == (pid, guardian)
    assert not box.answers()
    box.do("systemctl", "stop", run)


def test_a_hung_guardian_is_ended_by_its_watchdog(box: Box) -> None:
    """It keeps the candidate: without it the run ends, and brings production back."""
    undo = box.drop_in("runner-guardian@.service", "WatchdogSec=3")
    try:
        before = box.show(UNIT, "InvocationID")
        box.night()
        box.kill(box.guardian(), signal="STOP")
        assert box.serving(LOADS_WITHIN_S) != before
        box.paid()
    finally:
        undo()
    assert box.sleepers() == []
    assert box.last()["outcome"] == "broken"


def test_a_hung_guardian_and_a_dead_run(box: Box) -> None:
    """Nobody of the run is left to act: the request of its end starts recovery, which empties the
    candidate's cgroup before production starts.
    """
    before = box.show(UNIT, "InvocationID")
    run, guardian = box.night(), box.guardian()
    box.kill(guardian, signal="STOP")
    at = box.kill(run)
    assert box.serving(LOADS_WITHIN_S) != before
    assert box.started() - at < BEGUN_WITHIN_S
    assert box.sleepers() == []
    box.kill(guardian, signal="CONT")
    box.paid()


def test_the_timer_alone_brings_production_back(box: Box) -> None:
    """Should every request for a recovery be lost."""
    undone = [
        box.drop_in(f"runner-{unit}@.service", "ExecStopPost=") for unit in ("run", "guardian")
    ]
    try:
        before = box.show(UNIT, "InvocationID")
        run = box.night()
        at = box.kill(run, box.guardian())
        assert box.serving(60 + LOADS_WITHIN_S) != before
        assert box.started() - at < 60
        box.paid()
    finally:
        for undo in undone:
            undo()


def test_stopping_the_run_is_to_cancel_it(box: Box) -> None:
    """`systemctl stop` returns when production is back, though its model loads for longer than
    TimeoutStopSec.
    """
    undo = box.drop_in("runner-run@.service", "TimeoutStopSec=2")
    box.unit("ExecStartPre=/bin/sleep 5")
    box.do("systemctl", "daemon-reload")
    try:
        before = box.show(UNIT, "InvocationID")
        run = box.night()
        box.do("systemctl", "stop", run)
        assert box.answers()
        assert box.show(UNIT, "InvocationID") != before
    finally:
        undo()
        box.unit()
        box.do("systemctl", "daemon-reload")
    assert (box.last()["outcome"], box.last()["exit_code"]) == ("interrupted", 143)


def test_a_production_that_is_still_stopping_is_not_serving(box: Box) -> None:
    """The run dies while production goes down slowly and still answers: only another invocation of
    it pays the debt.
    """
    box.unit("ExecStop=/bin/sleep 4")
    box.do("systemctl", "daemon-reload")
    before = box.show(UNIT, "InvocationID")
    try:
        box.do("systemctl", "start", "runner-run@night.service")
        box.until(lambda: box.show(UNIT, "ActiveState") == "deactivating")
        assert box.answers()
        box.kill("runner-run@night.service")
        box.until(lambda: not box.owed())
        assert box.show(UNIT, "InvocationID") != before
        assert box.answers()
    finally:
        box.unit()
        box.do("systemctl", "daemon-reload")


def test_a_production_that_systemd_starts_again_and_again_is_down(box: Box) -> None:
    """It answers for a moment each time, and `Restart=always` hides that: it is told, stopped, and
    the box drained; once it holds it is back, and nobody calls it serving before.
    """
    before, told = box.show(UNIT, "InvocationID"), len(box.told())
    run = box.night()
    undo = box.drop_in(UNIT, "RuntimeMaxSec=700ms", "StartLimitIntervalSec=0")
    try:
        box.do("systemctl", "stop", "--no-block", run)
        box.until(lambda: any("DOWN since" in text for text in box.told()[told:]), within=60)
        assert not any(text.startswith("SERVING") for text in box.told()[told:])
        assert box.owed()
        assert box.ask("status")["drained"] is not None
    finally:
        undo()
    assert box.serving(60 + LOADS_WITHIN_S) != before
    box.paid()
    box.until(lambda: any(text.startswith("SERVING") for text in box.told()[told:]))
    skipped = box.runner("run", "nap")
    assert skipped.returncode == 4, skipped.stdout
    assert "drained since" in skipped.stdout
    box.do(RUNNER, "undrain", "--reason", "it holds")
    assert box.runner("run", "nap").returncode == 0


def test_what_an_administrator_stopped_stays_stopped(box: Box) -> None:
    """Nothing is owed: neither the timer nor the daemon starts it, and a run is refused."""
    undo = box.drop_in("runner-recover.timer", "OnUnitActiveSec=", "OnUnitActiveSec=1s")
    try:
        box.do("systemctl", "restart", "runner-recover.timer")
        box.do("systemctl", "stop", UNIT)
        box.do("systemctl", "start", "runner-recover.service")
        ran = box.runner("run", "night")
        assert ran.returncode == 3, ran.stdout
        box.until(lambda: "LAST" in box.do("systemctl", "list-timers", "--all"))
        assert box.show(UNIT, "ActiveState") == "inactive"
        last = box.last()
        assert (last["outcome"], last["production"]["state"]) == ("refused", "down-before")
    finally:
        undo()
        box.do("systemctl", "start", UNIT)


@pytest.mark.parametrize("enabled", [True, False], ids=["enabled", "not-enabled"])
def test_a_reboot_in_the_middle_of_a_run(box: Box, *, enabled: bool) -> None:
    """Nothing holds the shutdown up; the boot restores, whether production starts by itself or not."""
    box.do("systemctl", "enable" if enabled else "disable", UNIT)
    try:
        box.night()
        assert box.reboot() < GOES_DOWN_WITHIN_S
        box.serving(LOADS_WITHIN_S)
        box.paid()
    finally:
        box.do("systemctl", "enable", UNIT)
    last = box.last()
    assert (last["outcome"], box.sleepers()) == ("interrupted", [])
    box.until(lambda: any(text.startswith("SERVING") for text in box.told()))


def test_a_power_cut_in_the_middle_of_a_run(box: Box) -> None:
    """Nobody could say goodbye; the boot restores and tells."""
    box.night()
    box.cut_power()
    box.serving(LOADS_WITHIN_S)
    box.paid()
    last = box.last()
    assert (last["outcome"], last["exit_code"]) == ("interrupted", 137)


def test_a_missing_token_keeps_no_unit_from_starting(box: Box) -> None:
    """A deleted token must not keep production down; that it could not be told stays in the outbox."""
    token = box.read("/etc/runner/telegram-token")
    box.remove("/etc/runner/telegram-token")
    try:
        before = box.show(UNIT, "InvocationID")
        run = box.night()
        at = box.kill(run, box.guardian())
        box.restored(before, at)
        assert box.ask("status")["outbox"]["unsent"] >= 1
    finally:
        box.write("/etc/runner/telegram-token", token, mode=0o600)
    assert box.runner("alerts", "flush").returncode == 0
    assert box.ask("status")["outbox"]["unsent"] == 0


def test_the_candidate_is_the_guardian_s_and_has_nothing_of_ours(box: Box) -> None:
    """In a cgroup of its own below the guardian's, without its capabilities and its secrets."""
    run = box.night()
    try:
        for pid in box.sleepers():
            assert f"/{box.guardian()}/" in box.do("cat", f"/proc/{pid}/cgroup")
            status = box.do("cat", f"/proc/{pid}/status")
            assert "CapEff:\t0000000000000000" in status
            environment = box.do("cat", f"/proc/{pid}/environ")
            assert "CREDENTIALS_DIRECTORY" not in environment
            assert int(box.do("cat", f"/proc/{pid}/oom_score_adj")) >= 0
    finally:
        box.do("systemctl", "stop", run)
