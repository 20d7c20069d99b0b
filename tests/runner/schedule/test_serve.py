"""The daemon as a real process: it fires, sleeps through slots, watches production and tells."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from preflight.linux import proc
from runner.journal import Journal
from runner.schedule.ledger import Ledger
from runner.schedule.slots import State
from tests.e2e.night import JOB, Night
from tests.runner.schedule.served import Served
from tests.servers import soon


def test_a_slot_fires_and_its_run_is_written_down(served: Served) -> None:
    """On time, as a process of its own, with the slot in its result."""
    at = served.fire()
    slot = served.decided()
    assert (slot.at, slot.state) == (at, State.RAN)
    run = served.night.call("show", "--json").json
    assert run["outcome"] == "proven"
    assert run["trigger"] == "schedule"
    assert run["slot"] == slot.due
    assert slot.run == run["run"]
    assert served.night.told() == ""


def test_a_daemon_stopped_across_a_slot_runs_it_late(served: Served) -> None:
    """SIGSTOP: it runs when the daemon comes to, and the row says how late."""
    at = served.fire()
    served.send(signal.SIGSTOP)
    soon(lambda: True if served.now() > at + 3 else None, within=20)
    assert served.slots() == []
    served.send(signal.SIGCONT)
    slot = served.decided()
    assert slot.state is State.LATE
    assert " late: " in slot.reason


def test_a_daemon_killed_across_a_slot_finds_it_again(served: Served) -> None:
    """kill -9, `missed = "run-once"`: the next daemon runs it once, and knows why it is late."""
    at = served.fire(missed="run-once")
    served.end(signal.SIGKILL)
    served.set_clock(at + 600)
    served.serve()
    slot = served.decided()
    assert slot.state is State.LATE
    assert "late: " in slot.reason
    assert len(served.slots()) == 1
    assert served.night.call("show", "--json").json["trigger"] == "catch-up"


def test_a_reboot_across_a_slot_is_missed_and_told(served: Served) -> None:
    """Another boot id, `missed = "skip"`: nothing runs, and a person hears of it."""
    at = served.fire()
    served.end(signal.SIGKILL)
    with Journal.open(served.night.state) as journal, journal._write() as db:
        db.execute("UPDATE facts SET value = replace(value, ?, 'x')", (proc.boot_id(),))
    served.set_clock(at + 3600)
    served.serve()
    slot = served.decided()
    assert slot.state is State.MISSED
    assert "the box was off or restarting" in slot.reason
    served.told("night MISSED at")


def test_a_second_daemon_is_refused(served: Served) -> None:
    """Started by mistake: exit 4, and it names the first."""
    served.due_in(3000.0)
    served.serve()
    ran = served.night.call("serve", "--json")
    assert ran.code == 4, ran
    assert "runner serve runs already" in ran.json["error"]["message"]
    assert served.process is not None
    assert str(served.process.pid) in ran.json["error"]["message"]


def test_a_clock_set_back_does_not_run_the_slot_again(served: Served) -> None:
    """Its hour comes a second time; the row is there."""
    at = served.fire()
    served.decided()
    served.set_clock(at - 2.0)
    served.send(signal.SIGHUP)
    soon(lambda: True if served.now() > at + 2 else None, within=20)
    served.send(signal.SIGHUP)
    runs = served.night.call("history", "--json").json["runs"]
    assert len(runs) == 1
    assert len(served.slots()) == 1


def test_a_clock_set_forward_over_a_slot_is_noticed(served: Served) -> None:
    """The tick after it finds the slot, and what happened to the clock."""
    at = served.due_in(600.0, missed="run-once")
    served.serve()
    served.set_clock(at + 300)
    served.send(signal.SIGHUP)
    slot = served.decided()
    assert slot.state is State.LATE
    assert "the clock was set forward by" in slot.reason


def test_a_broken_edit_keeps_the_old_configuration(served: Served) -> None:
    """An incident opens, the slot still fires, and the mended file resolves it."""
    at = served.due_in(3000.0)
    served.serve()
    good = served.night.config.read_text()
    served.night.config.write_text(good.replace("cron", "corn"))
    served.send(signal.SIGHUP)
    assert "did you mean `cron`?" in served.told("CONFIG BROKEN")
    served.set_clock(at - 1.0)
    served.send(signal.SIGHUP)
    assert served.decided().state is State.RAN
    served.night.config.write_text(good)
    served.told("CONFIG MENDED")


def test_an_edit_is_taken_up_without_a_restart(served: Served) -> None:
    """A file change is enough; nobody has to send a signal."""
    served.due_in(3000.0)
    served.serve()
    at = served.due_in(8.0)
    slot = served.decided()
    assert (slot.at, slot.state) == (at, State.RAN)


def test_a_deleted_input_is_told_at_once(served: Served) -> None:
    """The incident, replayed: the alert comes when the file goes, not at midnight."""
    served.due_in(3000.0)
    served.serve()
    soon(_watched(served), within=40)
    began = time.monotonic()
    served.night.model.unlink()
    said = served.told("candidate.gguf was deleted at", "WOULD BE REFUSED")
    took = time.monotonic() - began
    assert said.index("SERVING · night at") < said.index("candidate.gguf was deleted")
    assert took < 20, "benchmarks/schedule.py holds it to two seconds"


def test_a_broken_or_missing_job_file_is_told_and_resolves(served: Served) -> None:
    """Its directory is renamed, hours before the fire; then it is back."""
    served.due_in(3000.0)
    served.serve()
    soon(_watched(served), within=40)
    jobs = served.night.room / "jobs"
    jobs.rename(jobs.with_name("jobs-of-anna"))
    served.told("night WOULD BE REFUSED", "there is no such job")
    jobs.with_name("jobs-of-anna").rename(jobs)
    served.told("night at", "would run again")


def _watched(served: Served) -> Callable[[], bool | None]:
    """Whether the files are watched, and both looks are over: the one that learns what to watch, and
    the one for what happened meanwhile.
    """
    looks = set[str]()

    def probe() -> bool | None:
        with Journal.open(served.night.state, read_only=True) as journal:
            known = Ledger(journal).fact(f"ahead:{JOB}")
        looks.update([known["at"]] if known else [])
        spool = served.night.state / "spool"
        return True if len(looks) > 1 and not any(spool.iterdir()) else None

    return probe


def test_production_that_dies_without_a_run_is_told(served: Served) -> None:
    """And when it is back; nothing is started for it."""
    served.due_in(3000.0)
    served.serve()
    os.kill(served.night.serving(), signal.SIGKILL)
    said = served.told("DOWN since", "llm: no process of it lives")
    assert "nothing is started for it" in said
    assert served.night.pid() is None
    served.night.start()
    served.send(signal.SIGHUP)
    served.told("llm is back", within=25)


def test_a_run_s_own_stop_and_restore_are_no_news(served: Served) -> None:
    """Production has another pid afterwards, and a run explains it."""
    before = served.night.serving()
    served.fire()
    assert served.decided().state is State.RAN
    assert served.night.serving() != before
    served.send(signal.SIGHUP)
    served.end()
    served.serve()
    assert "restarted" not in served.night.told()
    assert "DOWN" not in served.night.told()


def test_with_a_pin_the_run_is_proven_although_the_file_was_deleted(served: Served) -> None:
    """The incident, replayed, with its bytes kept."""
    assert served.night.call("pin", JOB).code == 0
    served.night.model.unlink()
    served.fire()
    slot = served.decided()
    assert slot.state is State.RAN
    run = served.night.call("show", "--json").json
    assert run["outcome"] == "proven", run
    assert any("the pin of" in note and "its file is gone" in note for note in run["notes"])


@pytest.mark.slow
def test_a_refused_slot_waits_for_its_file_and_then_runs(served: Served) -> None:
    """`try_until`, with real looks: one row, one incident, and the run when it is mended."""
    kept = served.night.model.read_bytes()
    served.night.model.unlink()
    served.fire(try_until="23:59")
    served.told("night REFUSED", "Looking again until 23:59")
    served.night.model.write_bytes(kept)
    slot = served.decided(within=100)
    assert slot.state is State.RAN
    assert "waited for file.exists" in slot.reason
    assert [run["trigger"] for run in _history(served.night)] == ["retry", "schedule"]


def _history(night: Night) -> list[dict[str, object]]:
    runs = night.call("history", "--json").json["runs"]
    assert isinstance(runs, list)
    return runs


def test_the_slot_is_refused_when_production_must_be_back_too_soon(served: Served) -> None:
    """`back_by` leaves no time for the way back: the run itself says so, and stops nothing."""
    before = served.night.serving()
    at = served.due_in(3000.0)
    hour, minute = time.gmtime(at + 60)[3:5]
    served.night.settings["schedule"][0]["back_by"] = f"{hour:02}:{minute:02}"
    served.night.settings["production"][0]["ready_within"] = "10m"
    served.night.write()
    served.serve()
    served.set_clock(at - 1.5)
    served.send(signal.SIGHUP)
    slot = served.decided()
    assert slot.state is State.REFUSED
    assert "self.time" in slot.reason
    assert served.night.serving() == before


def test_what_was_asked_for_at_a_time_runs_then(served: Served) -> None:
    """`runner run JOB --at`: the daemon is told at once, and starts it."""
    served.night.settings["schedule"] = []
    served.night.write()
    served.serve()
    at = (int(time.time()) // 60 + 2) * 60
    said = time.strftime("%Y-%m-%d %H:%M", time.gmtime(at))
    ran = served.night.call("run", JOB, "--at", said, "--json")
    assert ran.code == 0, ran
    assert ran.json["served"] is True
    served.set_clock(at - 2.0)
    served.send(signal.SIGHUP)
    slot = served.decided()
    assert slot.state is State.RAN
    assert slot.story[0].startswith("asked for by ")


def test_why_and_next_answer_in_words_and_in_json(served: Served) -> None:
    """One screen about the last slot, and what is to come."""
    at = served.fire()
    served.decided()
    why = served.night.call("why", JOB, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at + 1)))
    assert why.code == 0, why
    assert f"{JOB} at " in why.out
    assert "RAN" in why.out
    assert len(why.out.splitlines()) < 25
    coming = served.night.call("next", "--json").json["slots"]
    assert len(coming) == 10
    assert coming[0]["would"] == "run"
    assert coming[0]["at"].endswith("+00:00")
    assert served.night.call("next", "--ical").out.startswith("BEGIN:VCALENDAR")
    status = served.night.call("status", "--json").json
    assert status["next"]["job"] == JOB


def test_whoever_starts_it_reads_what_it_does(served: Served) -> None:
    """In a terminal it would otherwise stand there without a word, until something goes wrong."""
    served.due_in(3000.0)
    run = served.night.begin("serve")
    assert run.process.stderr is not None
    begun = run.process.stderr.readline()
    run.process.send_signal(signal.SIGTERM)
    ended = run.end()
    assert begun.startswith(f"serving {served.night.config}: 1 schedule, watching llm; Ctrl-C")
    assert (ended.code, ended.out) == (
        0,
        "ended: interrupted by TERM; runs that go on are not touched\n",
    )


def test_others_may_ask_without_the_daemon(served: Served) -> None:
    """`may-i` reads what was published, with exit 0 or 1 and a sentence."""
    served.due_in(3000.0)
    served.serve()
    soon(_watched(served), within=40)

    served.end()
    ask = served.night.call("may-i", "delete", str(served.night.model))
    assert ask.code == 1, ask
    assert "night needs it at" in ask.out
    port = served.night.settings["production"][0]["port"]
    assert served.night.call("may-i", "use", str(port)).code == 1
    assert served.night.call("may-i", "stop", "nginx").code == 0


def test_production_that_was_restarted_by_somebody_is_told(served: Served) -> None:
    """Also while the daemon was down: another pid, another context, and no run did that."""
    served.due_in(3000.0)
    served.serve()
    soon(lambda: True if _remembers(served) else None)
    served.end()
    os.kill(served.night.serving(), signal.SIGKILL)
    soon(lambda: None if served.night.pid() else True)
    served.night.settings["production"][0]["context"] = 8192
    served.night.write()
    served.night.start()
    served.serve()
    said = served.told("llm was restarted, and no run did that")
    assert "context was 4096, is 8192" in said
    assert "is now pid" in said


def _remembers(served: Served) -> bool:
    with Journal.open(served.night.state, read_only=True) as journal:
        return Ledger(journal).fact("watch:llm") is not None


def test_looking_ahead_wakes_loads_and_touches_nothing(tmp_path: Path) -> None:
    """A production that would die of one completion lives on, and no file is another one."""
    night = Night(tmp_path / "box")
    try:
        night.service("llm", "--die-at-request", "1")
        night.job()
        night.start()
        before, files = night.serving(), _files(night)
        for _ in range(2):
            ran = night.call("check", JOB, "--tell", "--json")
            assert ran.json["told"] == "good", ran
        assert night.call("next", "--json").code == 0
        assert night.call("reservations", "--json").code == 0
        assert night.serving() == before
        assert _files(night) == files
    finally:
        night.close()


def _files(night: Night) -> dict[str, tuple[int, int, int]]:
    """Everything of a box but the runner's own state, and what it is at the moment."""
    facts = {
        str(path): path.stat()
        for path in night.room.rglob("*")
        if not path.is_relative_to(night.state) and path.suffix != ".log"
    }
    return {path: (found.st_ino, found.st_size, found.st_mtime_ns) for path, found in facts.items()}
