"""Each reason of the ledger, and what a person is told of it, on a clock of the test's own."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.journal import Journal
from runner.recovery import lock
from runner.schedule import why
from runner.schedule.children import Children, Done
from runner.schedule.desk import Desk
from runner.schedule.firing import Ended, Firing
from runner.schedule.incidents import Incidents
from runner.schedule.ledger import EVERY_JOB, Ledger, Pause
from runner.schedule.reconcile import Reconciler, rows
from runner.schedule.slots import Slot, State
from runner.settings import Settings
from tests.runner.schedule.times import FakeTimes

JOB = """\
question = "Does it run?"
[candidate]
kind = "task"
command = ["/usr/bin/true"]
"""


class Runs(Firing):
    """Runs that are started in name only, and end as the test says."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger, self.started = ledger, list[Slot]()
        self.results: dict[str, dict[str, Any]] = {}

    def start(self, slot: Slot, now: float) -> Slot:
        """Claimed and adopted at once."""
        run = f"run-{len(self.started)}-{slot.job}"
        self.ledger.journal.begin(run, slot.job, slot.trigger, {}, "2027-01-16T00:00:00+00:00")
        running = replace(slot, state=State.RUNNING, run=run, changed=now)
        assert self.ledger.move(running)
        self.started.append(running)
        return running

    def end(self, outcome: str, **more: Any) -> None:
        """Let the last run end so."""
        slot = self.started[-1]
        assert slot.run
        result = {"run": slot.run, "job": slot.job, "outcome": outcome, **more}
        result.setdefault("started", "2027-01-16T00:41:00+00:00")
        self.ledger.journal.close(
            slot.run, outcome, 0, outcome, result=result, alert=None, ended="2027-01-16T01:00"
        )

    def ended(self, now: float) -> list[Ended]:
        """As the real one reads it from the journal."""
        return Firing(self.ledger, NoChildren(), units=False).ended(now)

    def fds(self) -> list[int]:
        """Nothing to wait for."""
        return []


class NoChildren(Children):
    """Looks that answer what the test has put in."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers: dict[str, Done] = {}

    def start(self, name: str, words: Any, *, within: float) -> str | None:
        """Remember who was looked at."""
        del words, within
        self.asked.append(name)
        return None

    def ended(self) -> dict[str, Done]:
        """What is there, once."""
        found, self.answers = self.answers, {}
        return found

    def fds(self) -> list[int]:
        """Nothing to wait for."""
        return []


class Box:
    """A ledger, a clock and a desk."""

    def __init__(self, room: Path, journal: Journal) -> None:
        self.room, self.journal = room, journal
        self.ledger, self.times = Ledger(journal), FakeTimes("2027-01-15T23:59:00+00:00")
        self.runs, self.looks = Runs(self.ledger), NoChildren()
        (room / "jobs").mkdir()
        for name in ("night", "other"):
            (room / "jobs" / f"{name}.toml").write_text(JOB)
        self.desk = Desk(self.ledger, Incidents(journal), self.runs, self.looks, lambda: "SERVING")
        self.reconciler: Reconciler

    def schedule(self, *tables: dict[str, Any]) -> None:
        """Take up this schedule."""
        self.settings = Settings.model_validate(
            {
                "timezone": "UTC",
                "jobs_dir": str(self.room / "jobs"),
                "state_dir": str(self.room / "state"),
                "lock_name": f"test-{id(self)}",
                "schedule": [{"cron": "0 0 * * *", "job": "night", **one} for one in tables],
            }
        )
        self.rows = rows(self.settings)
        self.reconciler = Reconciler(self.ledger, self.settings.zone)
        self.reconciler.follow(self.rows, self.times.moment())
        self.desk.follow(self.settings, self.rows)
        self.tick()

    def tick(self) -> None:
        """One look of the daemon."""
        now = self.times.moment()
        self.desk.missed(self.reconciler.due(now))
        self.desk.tick(now, self.reconciler.slept)

    def at(self, clock: str, *, step: float = 30.0) -> None:
        """Let time pass until the clock shows this, with a look every half a minute."""
        end = FakeTimes(f"2027-01-16T{clock}+00:00").wall()
        while self.times.wall() < end:
            left = (end - self.times.wall()).total_seconds()
            self.times.passes(min(step, left))
            self.tick()

    def slot(self, job: str = "night") -> Slot:
        """The last slot of a job."""
        (found,) = self.ledger.latest(job, before=2e9)
        return found

    def told(self) -> list[str]:
        """The first line of everything that a person is told."""
        return [row.body["first_line"] for row in self.journal.outbox()]


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    """A box before midnight."""
    with Journal.open(tmp_path / "state") as journal:
        yield Box(tmp_path, journal)


def test_a_slot_runs_on_time(box: Box) -> None:
    """One run, one row, and nothing is told besides what the run tells."""
    box.schedule({})
    box.at("00:00:00")
    assert [slot.job for slot in box.runs.started] == ["night"]
    assert box.slot().state is State.RUNNING
    box.runs.end("proven")
    box.at("00:01:00")
    assert box.slot().state is State.RAN
    assert box.slot().reason == "ran at 00:41: proven"
    assert box.told() == []


def test_why_knows_that_a_run_is_over_before_the_daemon_has_looked(box: Box) -> None:
    """The moment after the run has ended; with the daemon dead it would stay so for ever."""
    box.schedule({})
    box.at("00:00:00")

    def asked() -> dict[str, Any]:
        return why.explain("night", box.ledger, box.settings, before=box.times.wall())

    assert "its run goes on" in "\n".join(why.lines(asked()))
    box.runs.end("proven")
    assert asked()["slot"]["state"] == "ran"
    assert "ran at 00:41: proven" in "\n".join(why.lines(asked()))


def test_a_late_slot_says_how_late_and_why(box: Box) -> None:
    """SIGSTOP for three seconds: it runs, and the row says that it was late."""
    box.schedule({})
    box.times.passes(59)
    box.tick()
    box.times.sleeps(12)
    box.tick()
    box.runs.end("proven")
    box.tick()
    assert box.slot().state is State.LATE
    assert "11s late: the box was suspended for 12s" in box.slot().reason


def test_a_catch_up_runs_once(box: Box) -> None:
    """Down across the slot, `missed = "run-once"`: the newest runs, the older one is missed."""
    box.schedule({"missed": "run-once", "cron": "0 0,1 * * *"})
    box.times.reboots(2 * 3600)
    box.tick()
    box.runs.end("proven")
    box.tick()
    slots = box.ledger.latest("night", before=2e9, limit=5)
    assert [slot.state for slot in slots] == [State.LATE, State.MISSED]
    assert len(box.runs.started) == 1
    assert box.told() == ["SERVING · night MISSED its slot of 00:00"]


def test_a_missed_slot_is_told(box: Box) -> None:
    """Skipped by policy is no person's decision: it stands in the outbox."""
    box.schedule({})
    box.times.sleeps(3600)
    box.tick()
    assert box.slot().state is State.MISSED
    assert "the box was suspended for 1h00m" in box.slot().reason
    assert box.told() == ["SERVING · night MISSED at 00:00"]
    assert box.runs.started == []


def test_a_paused_slot_is_silent_and_the_pause_ends_by_itself(box: Box) -> None:
    """A person decided it; the next slot after its end fires."""
    box.schedule({"cron": "0 0,1 * * *"})
    until = FakeTimes("2027-01-16T00:30:00+00:00").wall().timestamp()
    box.ledger.pause(Pause("night", until, "demo day", 0.0, "anna"))
    box.at("00:00:30")
    assert box.slot().state is State.PAUSED
    assert box.told() == []
    box.at("01:00:00")
    assert [slot.due[11:16] for slot in box.runs.started] == ["01:00"]


def test_a_pause_of_all_jobs_holds_each(box: Box) -> None:
    """Also a job that nobody named."""
    box.schedule({})
    box.ledger.pause(Pause(EVERY_JOB, None, "moving house", 0.0, "anna"))
    box.at("00:00:30")
    assert box.slot().state is State.PAUSED
    assert box.ledger.resume(EVERY_JOB)


def test_a_drained_slot_is_told(box: Box) -> None:
    """Production did not come back: no job fires until a person says so."""
    box.schedule({})
    box.journal.drain("llm does not start")
    box.at("00:00:30")
    assert box.slot().state is State.DRAINED
    assert "llm does not start" in box.slot().reason
    assert box.told() == ["SERVING · night DRAINED at 00:00"]


def test_a_skipped_slot_is_silent(box: Box) -> None:
    """A blackout is a person's decision."""
    box.schedule({"blackout": ["2027-01-16"]})
    box.at("00:00:30")
    assert box.slot().state is State.SKIPPED
    assert box.told() == []


def test_the_same_job_is_busy_at_once(box: Box) -> None:
    """Case 16: it does not wait until morning for itself."""
    box.schedule({"cron": "*/5 * * * *"})
    box.at("00:05:30")
    assert len(box.runs.started) == 1
    assert box.slot().state is State.BUSY
    assert "already running" in box.slot().reason
    assert box.told() == ["SERVING · night BUSY at 00:05"]


def test_a_run_by_hand_keeps_its_own_job_busy(box: Box) -> None:
    """Case 16: started from a shell, two seconds before the slot."""
    box.schedule({})
    box.journal.begin("by-hand", "night", "manual", {}, "2027-01-15T23:59:58+00:00")
    with lock.hold(
        Path(box.settings.state_dir), run="by-hand", since="23:59", name=box.settings.lock_name
    ):
        box.at("00:00:30")
    assert box.slot().state is State.BUSY
    assert "run by-hand" in box.slot().reason
    assert box.runs.started == []


def test_two_jobs_at_one_time_run_in_the_order_of_the_file(box: Box) -> None:
    """The second waits for the first, and says so."""
    box.schedule({"job": "other"}, {"job": "night"})
    box.at("00:00:30")
    assert [slot.job for slot in box.runs.started] == ["other"]
    assert box.slot("night").state is State.WAITING
    assert box.slot("night").reason == "the run of other"
    box.runs.end("proven")
    box.at("00:02:00")
    box.runs.end("proven")
    box.at("00:03:00")
    assert [slot.job for slot in box.runs.started] == ["other", "night"]
    assert box.slot("night").state is State.RAN
    assert "waited for the run of other" in box.slot("night").reason


def test_who_waits_too_long_was_kept_busy(box: Box) -> None:
    """`late_by` bounds the wait for another job."""
    box.schedule({"job": "other"}, {"job": "night", "late_by": "10m"})
    box.at("00:12:00")
    assert box.slot("night").state is State.BUSY
    assert box.slot("night").reason == "until 00:10: the run of other"


def refused(found: str) -> dict[str, Any]:
    """The part of a result that says why it was refused."""
    check = {"id": "port.owner", "state": "fail", "subject": "port 8080", "found": found}
    return {"checks": [{**check, "evidence": []}]}


def test_a_refused_slot_is_final_without_try_until(box: Box) -> None:
    """With the check that refused; the run itself has told it."""
    box.schedule({})
    box.at("00:00:00")
    box.runs.end("refused", **refused("anna's pid 4711"))
    box.at("00:01:00")
    assert box.slot().state is State.REFUSED
    assert box.slot().reason == "port.owner: port 8080 — anna's pid 4711"
    assert box.told() == []


def test_try_until_looks_again_each_minute_and_runs_when_it_is_mended(box: Box) -> None:
    """One incident, one row: ran at 00:41, waited for anna's pid 4711."""
    box.schedule({"try_until": "03:00"})
    box.at("00:00:00")
    box.runs.end("refused", **refused("anna's pid 4711"))
    box.at("00:01:00")
    assert box.slot().state is State.WAITING
    assert len(box.journal.incidents()) == 1
    answer = json.loads(json.dumps({"state": "fail", **refused("anna's pid 4711")}))
    for minute in range(2, 41):
        box.looks.answers = {"look-night": Done(3, answer, "")}
        box.at(f"00:{minute:02}:00")
    assert 36 <= len(box.looks.asked) <= 41
    assert len(box.runs.started) == 1
    box.looks.answers = {"look-night": Done(0, {"state": "pass", "checks": []}, "")}
    box.at("00:41:00")
    assert len(box.runs.started) == 2
    assert box.runs.started[-1].trigger == "retry"
    box.runs.end("proven")
    box.at("00:42:00")
    assert box.slot().state is State.RAN
    assert box.slot().reason == (
        "ran at 00:41: proven, waited for port.owner: port 8080 — anna's pid 4711"
    )
    assert box.journal.incidents() == []
    assert box.told() == ["SERVING · night runs after all"]


def test_try_until_gives_up_at_its_end(box: Box) -> None:
    """And tells what it was until then."""
    box.schedule({"try_until": "00:10"})
    box.at("00:00:00")
    box.runs.end("refused", **refused("anna's pid 4711"))
    box.at("00:11:00")
    assert box.slot().state is State.REFUSED
    assert box.slot().reason == "until 00:10: port.owner: port 8080 — anna's pid 4711"
    assert box.told() == ["SERVING · night REFUSED at 00:00"]
    assert box.journal.incidents() == []


def test_a_broken_job_file_refuses_its_slot(box: Box) -> None:
    """No run begins; the file and its line are in the row."""
    (box.room / "jobs" / "night.toml").write_text("question = 5\n")
    box.schedule({})
    box.at("00:00:30")
    assert box.runs.started == []
    assert box.slot().state is State.REFUSED
    assert "night.toml" in box.slot().reason
    assert box.told() == ["SERVING · night REFUSED at 00:00"]


def test_a_schedule_that_is_taken_out_ends_its_waiting_slot(box: Box) -> None:
    """An edit while the slot waits: it is over, and says so."""
    box.schedule({"not_before": "01:00"}, {"job": "other", "cron": "0 12 * * *"})
    box.at("00:10:00")
    assert box.slot().state is State.WAITING
    box.schedule({"job": "other", "cron": "0 12 * * *"})
    assert box.slot().state is State.SKIPPED
    assert box.slot().reason == "its schedule was taken out of runner.toml"


def test_an_edit_while_a_slot_waits_counts(box: Box) -> None:
    """The new `not_before` holds for the slot that waits already."""
    box.schedule({"not_before": "01:00"})
    box.at("00:10:00")
    box.schedule({"not_before": "00:20"})
    box.at("00:20:30")
    assert len(box.runs.started) == 1


def test_an_edit_during_a_run_leaves_the_run_alone(box: Box) -> None:
    """Its schedule is gone, and its slot still learns how it ended."""
    box.schedule({})
    box.at("00:00:00")
    box.schedule({"job": "other", "cron": "0 12 * * *"})
    box.at("00:01:00")
    assert box.slot().state is State.RUNNING
    box.runs.end("refuted")
    box.at("00:02:00")
    assert box.slot().reason == "ran at 00:41: refuted"


def test_a_run_that_recovery_closed_closes_its_slot(box: Box) -> None:
    """Killed at night, written by recovery: the slot has its row all the same."""
    box.schedule({})
    box.at("00:00:00")
    box.runs.end("interrupted")
    box.at("00:01:00")
    assert box.slot().state is State.RAN
    assert box.slot().reason == "ran at 00:41: interrupted"


def test_traffic_is_waited_out_within_the_window(box: Box) -> None:
    """Requests in flight past `idle_within`: the next minute, without any `try_until`."""
    box.schedule({})
    box.at("00:00:00")
    busy = {
        "id": "prod.busy",
        "state": "fail",
        "subject": "llm",
        "found": "still works on requests",
    }
    box.runs.end("refused", checks=[{**busy, "evidence": []}])
    box.at("00:01:00")
    assert box.slot().state is State.WAITING
    box.looks.answers = {"look-night": Done(0, {"state": "pass", "checks": []}, "")}
    box.at("00:02:30")
    assert len(box.runs.started) == 2
    box.runs.end("proven")
    box.at("00:03:00")
    assert box.slot().state is State.RAN
    assert "waited for prod.busy: llm" in box.slot().reason
