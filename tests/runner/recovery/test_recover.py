"""`runner recover`: whatever a dead run left, production comes back, once, and a person is told."""

import dataclasses
import json
import os
import signal
import socket
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from preflight.linux import proc
from preflight.linux.proc import Ident
from runner.audit import audit
from runner.journal import Journal
from runner.recovery import lock, recipe, recover, settle, state, status
from runner.recovery.command import recover_main
from runner.recovery.drivers import driver
from runner.recovery.files import RESERVE
from runner.recovery.recipe import Owed, Recipe
from runner.recovery.recover import Recovered
from tests.fakes_runner import FakeClock
from tests.runner.recovery.site import Site, kill, stop, until_says
from tests.servers import free_port, held, soon


def recovers(site: Site, remembered: Owed | None = None) -> Recovered:
    """One recovery, in this process."""
    return recover.recover(site.state_dir, clock=site.clock, remembered=remembered)


def site_head(one: Recipe) -> Ident:
    """The process that its supervisor calls this service."""
    (who,) = driver(one).standing().heads
    return who


def test_nothing_is_started_where_nothing_is_owed(site: Site) -> None:
    """What an administrator stopped stays stopped."""
    one = site.recipe()
    recipe.remember(site.state_dir, [one])
    assert recovers(site).state == "nothing"
    assert site.copies() == []
    assert site.told() == []


def test_a_dead_run_is_paid_for_and_told_once(site: Site) -> None:
    """P1, P5 and P7: serving again, one alert, and a second recovery does nothing at all."""
    one = site.start(site.recipe())
    (who,) = driver(one).standing().heads
    kill(who)
    site.leave(site.owed(one), services={"llm": {"stop_asked": True, "stopped": 0.0}})
    done = recovers(site)
    assert (done.state, done.production["state"]) == ("closed", "serving")
    assert done.production["identity"] == "same"
    pid = site.listener()
    assert not site.is_owed
    assert recovers(site).state == "nothing"
    assert site.listener() == pid
    (first,) = site.told()
    assert first.startswith("SERVING since")
    with Journal.open(site.state_dir, read_only=True) as journal:
        row = journal.run(site.run)
    assert row is not None
    assert (row["outcome"], row["exit_code"]) == ("interrupted", 137)


def test_a_healthy_production_is_never_restarted(site: Site) -> None:
    """The run died after its restore and before it could say so."""
    one = site.start(site.recipe())
    pid = site.listener()
    site.leave(site.owed(one), "restoring")
    assert recovers(site).state == "closed"
    assert site.listener() == pid


def test_a_recovery_killed_before_it_closed_the_debt_is_told_once(site: Site) -> None:
    """P7: what is written down already is not told again."""
    one = site.start(site.recipe())
    site.leave(site.owed(one), "restoring")
    assert recovers(site).state == "closed"
    site.leave(site.owed(one), "restoring")  # as if the file had never been removed
    assert recovers(site).state == "closed"
    assert len(site.told()) == 1


def test_a_run_that_closed_its_journal_and_died_before_the_debt_is_not_told_again(
    site: Site,
) -> None:
    """The outcome stands; the debt is only forgotten."""
    one = site.start(site.recipe())
    with Journal.open(site.state_dir) as journal:
        journal.begin(site.run, "night", "manual", {}, "2026-03-01T00:00:00+00:00")
        result = {"run": site.run, "production": {"state": "serving"}}
        journal.close(
            site.run, "proven", 0, "proven", result=result, alert=None, ended="2026-03-01T00:00:00Z"
        )
    site.leave(site.owed(one), "restoring")
    assert recovers(site).state == "closed"
    assert site.told() == []
    assert not site.is_owed


def test_a_run_that_died_before_the_stop_starts_nothing(site: Site) -> None:
    """Armed is not stopped: whoever is down now is down for a reason of its own."""
    one = site.recipe()
    site.leave(site.owed(one), "armed")
    assert recovers(site).state == "closed"
    assert site.copies() == []
    (first,) = site.told()
    assert first == "DOWN, and not by us, never touched · night INTERRUPTED before the stop"


def test_the_alert_of_an_armed_run_says_whether_production_serves(site: Site) -> None:
    """The first line is all that a phone shows."""
    one = site.start(site.recipe())
    site.leave(site.owed(one), "armed")
    assert recovers(site).state == "closed"
    assert site.told() == ["SERVING, never touched · night INTERRUPTED before the stop"]


def test_after_a_reboot_no_pid_on_record_means_anything(site: Site) -> None:
    """A number that a stranger has now is left alone, and production is started."""
    one = site.recipe()
    stranger = site.child(["/bin/sleep", "60"])
    start = proc.ident(stranger.pid)
    assert start is not None
    old = {"boot": "another-boot", "pid": stranger.pid, "start": start.start}
    services = {"llm": {"stop_asked": True, "stopped": 0.0, "family": [old], "started": old}}
    site.leave(
        site.owed(one, boot="another-boot"),
        services=services,
        candidate={"who": old, "cgroup": None},
        guardian=old,
    )
    assert recovers(site).state == "closed"
    assert site.serves(one)
    assert proc.alive(start)


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[]", b'{"services": [{}]}', bytes(range(128, 227))]
)
def test_a_damaged_recovery_file_is_read_from_its_copy(site: Site, damage: bytes) -> None:
    """A disk may give back something else than was written."""
    one = site.recipe()
    site.leave(site.owed(one))
    (site.state_dir / recipe.NAME).write_bytes(damage)
    owed = recipe.read(site.state_dir)
    assert owed is not None
    assert owed.run == site.run


def test_with_both_files_damaged_the_last_known_good_is_restored(site: Site) -> None:
    """The debt is certain, only its text is lost; whom to tell stands in the state, too."""
    one = site.recipe()
    recipe.remember(site.state_dir, [one])
    owed = site.owed(one)
    site.leave(owed, job="200k-mtp", tell=owed.tell, timezone="Europe/Berlin")
    for name in (recipe.NAME, recipe.COPY):
        (site.state_dir / name).write_bytes(b"\0" * 10)
    assert recovers(site).state == "closed"
    assert site.serves(one)
    (first,) = site.told()
    assert first.startswith("SERVING since")
    assert "200k-mtp INTERRUPTED" in first
    assert "its recovery file could not be read, nor its copy" in site.alerts.read_text()


def test_a_state_that_cannot_be_read_leaves_nothing_invented(site: Site) -> None:
    """What the run was doing when it died is then not known, and that is said."""
    one = site.recipe()
    site.leave(site.owed(one))
    (site.state_dir / state.NAME).write_bytes(os.urandom(1 << 17))
    assert recovers(site).state == "closed"
    assert site.serves(one)
    assert "the run died while nobody knows what it was doing" in site.alerts.read_text()


def test_a_debt_that_nobody_can_read_is_never_taken_for_paid(site: Site) -> None:
    """With no recipe at all there is nothing to start; a person is told, and the file is kept."""
    site.leave(site.owed(site.recipe()))
    for name in (recipe.NAME, recipe.COPY):
        (site.state_dir / name).write_bytes(b"\0" * 10)
    assert recovers(site).state == "owed"
    assert recovers(site).state == "owed"
    assert site.is_owed
    with Journal.open(site.state_dir, read_only=True) as journal:
        (row,) = journal.outbox()
        assert journal.drained() is not None
    assert row.body["first_line"].startswith("PRODUCTION UNKNOWN")


def test_fields_of_a_newer_version_are_passed_over(site: Site) -> None:
    """An upgrade in the night must not keep production down."""
    one = site.recipe()
    site.leave(site.owed(one))
    said = json.loads((site.state_dir / recipe.NAME).read_text())
    said |= {"schema": 9, "moon": "full"}
    said["services"][0] |= {"tide": "high"}
    (site.state_dir / recipe.NAME).write_text(json.dumps(said))
    assert recovers(site).state == "closed"
    assert site.serves(one)


def test_the_recovery_file_of_an_older_version_has_fewer_fields(site: Site) -> None:
    """Everything that has a default may be missing."""
    one = site.recipe()
    owed = site.owed(one).to_json()
    owed = {name: owed[name] for name in ("run", "lock_name", "services")}
    kept = ("name", "port", "supervisor", "probe")
    owed["services"] = [{name: one.to_json()[name] for name in kept}]
    (site.state_dir / recipe.NAME).write_text(json.dumps(owed))
    assert recovers(site).state == "closed"
    assert site.serves(one)


def test_parts_that_another_version_writes_otherwise_count_as_their_defaults(site: Site) -> None:
    """What is not understood is not followed, and keeps nobody down."""
    one = site.recipe()
    site.leave(site.owed(one))
    said = json.loads((site.state_dir / recipe.NAME).read_text())
    said["services"][0] |= {
        "kind": None,
        "identity": None,
        "inputs": [7, {"new": 1}],
        "ready_within": "20m",
        "slowest_load": "long",
        "settle": None,
        "fallbacks": [None],
        "pins": {},
    }
    del said["services"][0]["supervisor"]["log"]
    said |= {"job": None, "boot": 7, "since": None, "stops": "llm", "ends_at": "soon", "tell": {}}
    for name in (recipe.NAME, recipe.COPY):
        (site.state_dir / name).write_text(json.dumps(said))
    assert recover_main(["--state-dir", str(site.state_dir), "--dry-run"]) == 0
    assert status.status(site.state_dir)["production"]["state"] == "down"
    assert recovers(site).state == "closed"
    assert site.serves(one)


@pytest.mark.parametrize("part", ["name", "port", "supervisor", "probe", "services", "run"])
def test_a_recipe_without_what_it_needs_is_a_debt_that_cannot_be_read(
    site: Site, part: str
) -> None:
    """Guessed at by nobody: the service comes back as it was last seen, and that is told."""
    one = site.recipe()
    recipe.remember(site.state_dir, [one])
    site.leave(site.owed(one), tell=site.owed().tell)
    said = json.loads((site.state_dir / recipe.NAME).read_text())
    whose = said if part in said else said["services"][0]
    whose[part] = {}
    if part in {"supervisor", "probe"}:
        whose[part] = None
    for name in (recipe.NAME, recipe.COPY):
        (site.state_dir / name).write_text(json.dumps(said))
    assert recovers(site).state == "closed"
    assert site.serves(one)
    assert "could not be read" in site.alerts.read_text()


def test_a_recovery_that_fails_by_a_fault_of_its_own_tells_so_once(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    """Production is down, and nobody comes: the one thing left is to say it. It stays owed."""
    one = site.recipe()
    site.leave(site.owed(one), services={"llm": {"stop_asked": True, "family": 7}})
    for _ in range(2):
        assert recover_main(["--state-dir", str(site.state_dir), "--json"]) == 10
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert said["state"] == "owed"
    assert "TypeError" in said["said"]
    assert site.told() == [
        f"DOWN? · what run {site.run} owes cannot be brought back · look at once"
    ]
    assert site.is_owed


def test_what_cannot_be_said_well_is_said_all_the_same(site: Site) -> None:
    """No zone data, a channel that nobody can read: the restore and the other channels go on."""
    one = site.start(site.recipe())
    owed = site.owed(one, timezone="No/Such")
    owed.tell[:0] = [7, {"kind": "telegram"}, {"kind": "moon"}]
    site.leave(owed, "restoring")
    with closing(sqlite3.connect(site.state_dir / "journal.db")) as db:
        db.execute("PRAGMA user_version=999")
    assert recovers(site).state == "closed"
    assert len(site.told()) == 1


def test_how_long_production_took_to_load_is_learned(site: Site) -> None:
    """Cold, after a candidate: what patience is made of."""
    one = site.recipe(site.standin("--load-seconds", "0.3"))
    site.leave(site.owed(one))
    assert recovers(site).state == "closed"
    with Journal.open(site.state_dir, read_only=True) as journal:
        assert (journal.slowest_load_seconds("llm") or 0) >= 0.3


def test_a_service_with_a_supervisor_nobody_knows_keeps_no_other_down(site: Site) -> None:
    """Its recipe cannot be followed; the other is restored, and the debt stays open."""
    strange = site.recipe(name="strange", supervisor={"kind": "moon"}, port=free_port())
    one = site.recipe()
    site.leave(site.owed(strange, one))
    done = recovers(site)
    assert done.state == "owed"
    assert "moon" in done.said
    assert site.serves(one)
    assert site.is_owed


def test_two_recoveries_at_once_start_one_copy(site: Site) -> None:
    """P2: the lock decides, and the loser says so."""
    one = site.recipe(site.standin("--load-seconds", "0.5"))
    site.leave(site.owed(one))
    both = [site.recovery("recover", "--json") for _ in range(2)]
    said = [json.loads(child.communicate(timeout=30)[0].splitlines()[-1]) for child in both]
    assert {one["state"] for one in said} <= {"closed", "held", "nothing"}
    assert [one["state"] for one in said].count("closed") == 1
    assert site.serves(one)
    assert len(site.copies()) == 1


def test_production_inherits_nothing_of_the_recovery(site: Site) -> None:
    """An inherited lock would outlive the recovery; an inherited terminal would hang it up."""
    one = site.recipe()
    site.leave(site.owed(one))
    assert recovers(site).state == "closed"
    pid = site.listener()
    assert not any(str(site.state_dir) in name for name in held(pid))
    assert {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in (1, 2)} == {str(site.log)}
    assert os.readlink(f"/proc/{pid}/fd/0") == "/dev/null"
    found = proc.stat(pid)
    assert found is not None
    assert found.session == pid
    assert (proc.environ(pid) or {}).get(proc.TAG) is None
    assert lock.holder(site.state_dir) is None


def test_a_journal_that_another_process_locks_delays_the_telling_only(site: Site) -> None:
    """The restore needs no journal; the alert goes out without one, once."""
    one = site.recipe()
    site.leave(site.owed(one))
    Journal.open(site.state_dir).__exit__(None, None, None)
    with closing(sqlite3.connect(site.state_dir / "journal.db", isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode=EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("runner.journal_file.BUSY_S", 0.2)
            assert recovers(site).state == "closed"
    assert site.serves(one)
    assert len(site.told()) == 1
    assert "the journal cannot be used" in site.alerts.read_text()
    assert (site.state_dir / RESERVE).exists()  # the disk is not full: space helps nobody here


def test_a_corrupt_journal_is_laid_aside(site: Site) -> None:
    """History is lost, production is not; a person hears of both, once."""
    one = site.recipe()
    site.leave(site.owed(one))
    (site.state_dir / "journal.db").write_bytes(os.urandom(8192))
    assert recovers(site).state == "closed"
    assert site.serves(one)
    assert recovers(site).state == "nothing"
    history, production = site.told()
    assert history.startswith("runner's journal starts anew")
    assert "was damaged" in site.alerts.read_text()
    assert production.startswith("SERVING since")


def test_the_journal_of_a_newer_runner_is_left_alone(site: Site) -> None:
    """A downgrade in the night: told without it."""
    one = site.recipe()
    site.leave(site.owed(one))
    with closing(sqlite3.connect(site.state_dir / "journal.db")) as db:
        db.execute("PRAGMA user_version=999")
    assert recovers(site).state == "closed"
    assert len(site.told()) == 1
    assert "newer" in site.alerts.read_text()
    assert (site.state_dir / RESERVE).exists()


def test_what_was_paid_past_the_journal_stands_in_it_later_as_it_was(site: Site) -> None:
    """The run gets the outcome that was told, and not that of one that owed nothing."""
    one = site.recipe()
    with Journal.open(site.state_dir) as journal:
        gone = {"boot": "another boot", "pid": 4711, "start": 1}
        journal.begin(site.run, "night", "schedule", gone, "2026-03-01T00:00:00+00:00")
    site.leave(site.owed(one), "candidate", services={"llm": {"stop_asked": True, "stopped": 0.0}})
    with closing(sqlite3.connect(site.state_dir / "journal.db")) as db:
        (version,) = db.execute("PRAGMA user_version").fetchone()
        db.execute("PRAGMA user_version=999")
    assert recovers(site).state == "closed"
    (told,) = site.told()
    assert told.startswith("SERVING since")
    with closing(sqlite3.connect(site.state_dir / "journal.db")) as db:
        db.execute(f"PRAGMA user_version={version}")
    assert recovers(site).state == "nothing"
    with Journal.open(site.state_dir, read_only=True) as journal:
        run = journal.run(site.run)
        (row,) = journal.outbox()
    assert run is not None
    assert (run["outcome"], run["exit_code"], run["headline"]) == ("interrupted", 137, told)
    assert (run["trigger"], run["production"]["state"]) == ("schedule", "serving")
    assert row.body["first_line"] == told
    assert "owed nothing" not in row.body["text"]


def test_production_serves_but_nobody_can_be_told_the_debt_stays_open(site: Site) -> None:
    """P5: never is not allowed. And then an administrator who stops production has the last word."""
    one = site.recipe()
    site.leave(site.owed(one, tell=[{"kind": "file", "path": str(site.room / "no" / "such")}]))
    with closing(sqlite3.connect(site.state_dir / "journal.db")) as db:
        db.execute("PRAGMA user_version=999")
    assert recovers(site).state == "untold"
    assert site.serves(one)
    (who,) = driver(one).standing().heads
    kill(who)
    assert recovers(site).state == "untold"
    assert site.heads(one) == set()
    (site.room / "no").mkdir()
    assert recovers(site).state == "closed"
    assert "SERVING since" in (site.room / "no" / "such").read_text()


def test_a_production_that_stays_down_is_not_told_at_each_recovery(site: Site) -> None:
    """A timer looks every half minute; a person is told when there is news."""
    one = site.recipe(["/no/such/server"])
    site.leave(site.owed(one), services={"llm": {"stop_asked": True, "stopped": 0.0}})
    for _ in range(3):
        assert recovers(site).state == "owed"
    (first,) = site.told()
    assert first.startswith("DOWN since")
    with Journal.open(site.state_dir, read_only=True) as journal:
        assert journal.drained() is not None


def test_a_port_that_was_stolen_is_named_and_its_owner_left_alone(site: Site) -> None:
    """A stranger is never signalled; production comes when he leaves."""
    one = site.recipe()
    site.leave(site.owed(one))
    stranger = site.child(site.odd("--context", "1"))
    assert site.listener() == stranger.pid
    done = recovers(site)
    assert done.state == "owed"
    assert f"port {site.port} is held by pid {stranger.pid}" in done.said
    assert site.copies() == []
    assert stranger.poll() is None
    kill(stranger)
    assert recovers(site).state == "closed"
    assert site.serves(one)


def test_a_back_off_ends_when_what_stood_in_the_way_has_gone(site: Site) -> None:
    """Half a minute of downtime less, when the stranger leaves or the file comes back."""
    clock = FakeClock()
    one = site.recipe()
    with socket.create_server(("127.0.0.1", site.port)) as stranger:
        waiting = settle._Settling(
            site.state_dir,
            site.owed(one),
            clock=clock,
            say=recover.quietly,
            residency=lambda _: None,
        )
        clock.at(3.0, stranger.close)
        waiting._back_off(5)
    assert 1003.0 <= clock.now() < 1004.0
    clock.at(2.0, site.model.unlink)
    waiting._back_off(5)
    assert clock.now() < 1007.0
    waiting._back_off(3)
    assert clock.now() >= 1013.0
    assert waiting._memory is not None
    waiting._memory.close()


def test_another_that_serves_in_its_place_is_left_and_called_degraded(site: Site) -> None:
    """Somebody brought production up by other means: a second copy could only fail."""
    one = site.recipe(site.standin())
    site.leave(site.owed(one))
    other = site.child(site.plain())
    assert site.listener() == other.pid
    done = recovers(site)
    assert (done.state, done.production["state"]) == ("closed", "degraded")
    assert f"it is served by pid {other.pid}" in done.production["services"][0]["why"]
    assert other.poll() is None
    assert site.copies() == []


def test_a_production_that_came_back_on_the_cpu_is_degraded_and_told(site: Site) -> None:
    """It answers, by the same model, and holds hardly any GPU memory: a person must know."""
    one = site.start(site.recipe())
    kill(site_head(one))
    known = dataclasses.replace(one, identity=one.identity | {"gpu_mib": 1000.0})
    site.leave(site.owed(known), services={"llm": {"stop_asked": True, "stopped": 0.0}})
    done = recover.recover(site.state_dir, clock=site.clock, residency=lambda _: 12.0)
    assert done.production["state"] == "degraded"
    (first,) = site.told()
    assert first.startswith("DEGRADED since")
    assert "it holds 12 MiB on the GPU, held 1000" in site.alerts.read_text()
    with Journal.open(site.state_dir, read_only=True) as journal:
        row = journal.run(site.run)
    assert row is not None
    assert row["exit_code"] == 10


def test_a_production_that_came_back_different_is_left_serving(site: Site) -> None:
    """A context that shrank is worse than before and better than nothing: degraded, not killed."""
    one = site.recipe(site.odd("--model", str(site.model), "--context", "1024"))
    site.leave(site.owed(one))
    done = recovers(site)
    assert (done.state, done.production["state"]) == ("closed", "degraded")
    assert "context is 1024, wanted 4096" in done.production["services"][0]["why"]
    assert done.production["services"][0]["tries"] == 2
    assert len(site.copies()) == 1


def test_a_model_that_was_deleted_falls_back_to_the_last_known_good(site: Site) -> None:
    """The seed of this project: a clean-up while production was down. Told as degraded."""
    other = site.room / "other.gguf"
    other.write_bytes(b"GGUF" + bytes(100))
    asked = site.probe()
    asked["identity"] = [asked["identity"][0]]
    good = site.recipe(site.standin(model=other), probe=asked)
    recipe.remember(site.state_dir, [good])
    one = site.recipe(site.standin())
    site.leave(site.owed(one))
    site.model.unlink()
    done = recovers(site)
    assert (done.state, done.production["state"]) == ("closed", "degraded")
    (service,) = done.production["services"]
    assert str(site.model) in service["why"]
    assert service["tries"] == 3
    assert site.told()[0].startswith("DEGRADED since")


def test_a_model_that_was_deleted_falls_back_to_what_the_config_names(site: Site) -> None:
    """With no last-known-good, the configured fallback comes next."""
    other = site.room / "other.gguf"
    other.write_bytes(b"GGUF" + bytes(100))
    asked = site.probe()
    asked["identity"] = [asked["identity"][0]]
    fallback = site.recipe(site.standin(model=other), probe=asked).to_json()
    one = site.recipe(site.standin(), fallbacks=[{"name": "of another version"}, fallback])
    site.leave(site.owed(one))
    site.model.unlink()
    done = recovers(site)
    assert (done.state, done.production["state"]) == ("closed", "degraded")
    assert len(site.copies()) == 1


def test_what_is_tried_instead_is_tried_in_order_and_told(site: Site) -> None:
    """The recipe, once more, the last-known-good, then each fallback as it stands in the config."""

    def other(name: str, *, there: bool = False) -> Recipe:
        path = site.room / name
        if there:
            path.write_bytes(b"GGUF" + bytes(100))
        asked = site.probe()
        asked["identity"] = [asked["identity"][0], asked["identity"][1] | {"want": str(path)}]
        inputs = [{"path": str(path), "role": "weights"}]
        return site.recipe(site.standin(model=path), probe=asked, inputs=inputs)

    recipe.remember(site.state_dir, [other("good.gguf")])
    fallbacks = [other("first.gguf"), other("second.gguf", there=True)]
    fallbacks.append(other("third.gguf", there=True))
    one = site.recipe(site.standin(), fallbacks=[each.to_json() for each in fallbacks])
    site.leave(site.owed(one))
    site.model.unlink()
    said: list[str] = []

    def say(event: str, **detail: object) -> None:
        if event == "failed":
            said.append(str(detail["why"]).split(" is gone")[0])

    done = recover.recover(site.state_dir, clock=site.clock, say=say)
    assert (done.state, done.production["state"]) == ("closed", "degraded")
    tried = [site.model, site.model, site.room / "good.gguf", site.room / "first.gguf"]
    assert said == [str(path) for path in tried]
    assert done.production["services"][0]["tries"] == 5
    assert len(site.copies()) == 1
    text = site.alerts.read_text()
    assert f"started with another recipe ({site.room / 'second.gguf'})" in text
    assert all(f"{path} is gone" in text for path in tried)


def test_a_log_that_cannot_be_written_costs_the_log_and_not_production(site: Site) -> None:
    """Its directory was cleaned up, or the disk is full."""
    missing = site.process(site.plain(), log=str(site.room / "gone" / "production.log"))
    one = site.recipe(supervisor=missing)
    site.leave(site.owed(one))
    assert recovers(site).state == "closed"


def test_a_state_directory_that_was_removed_costs_the_memory_and_not_production(
    site: Site, tmp_path: Path
) -> None:
    """What a guardian remembers is enough."""
    one = site.recipe()
    owed = site.owed(one)
    state_dir = tmp_path / "removed"
    done = recover.recover(state_dir, clock=site.clock, remembered=owed)
    assert done.state == "closed"
    assert site.serves(one)
    assert len(site.told()) == 1


def test_a_recovery_file_that_somebody_cleaned_up_is_still_owed(site: Site) -> None:
    """Only a run that closed it, or a person who released it, may forget the debt."""
    one = site.recipe()
    owed = site.owed(one)
    site.leave(owed)
    (site.state_dir / recipe.NAME).unlink()
    assert recovers(site).state == "nothing"
    assert recovers(site, remembered=owed).state == "closed"
    assert site.serves(one)


def test_a_released_debt_is_not_paid_any_more(site: Site) -> None:
    """A person took it over; not even a guardian that remembers it starts anything."""
    one = site.recipe()
    owed = site.owed(one)
    site.leave(owed)
    assert recover.release(site.state_dir, "I look after it myself")
    assert recovers(site, remembered=owed).state == "nothing"
    assert not recover.release(site.state_dir, "again")
    assert site.copies() == []


@pytest.mark.parametrize("serves", [True, False])
def test_a_run_whose_debt_was_taken_over_says_so(site: Site, *, serves: bool) -> None:
    """Its outcome comes with the release, is told, and does not say that it owed nothing."""
    one = site.start(site.recipe()) if serves else site.recipe()
    with Journal.open(site.state_dir) as journal:
        gone = {"boot": "another boot", "pid": 4711, "start": 1}
        journal.begin(site.run, "night", "manual", gone, "2026-03-01T00:00:00+00:00")
    site.leave(site.owed(one))
    assert recover.release(site.state_dir, "new disk")
    word = "SERVING" if serves else "DOWN"
    assert site.told() == [f"{word} · night INTERRUPTED, a person has taken production over"]
    assert "a person has taken production over: new disk" in site.alerts.read_text()
    with Journal.open(site.state_dir, read_only=True) as journal:
        run = journal.run(site.run)
        assert journal.incidents() == []
    assert run is not None
    assert (run["outcome"], run["exit_code"]) == ("interrupted", 137)
    now = status.status(site.state_dir)
    assert (now["production"]["state"], now["obligation"]) == (word.lower(), None)
    assert audit(site.state_dir, clock=site.clock) == ([], [])


def test_a_restore_under_way_ends_when_a_person_takes_over(site: Site) -> None:
    """Its next look sees it; the half-started copy is that person's then."""
    one = site.recipe(site.standin("--never-ready"))
    site.leave(site.owed(one))
    child = site.recovery("recover", "--json")
    soon(lambda: site.copies() or None)
    assert recover.release(site.state_dir, "mine")
    said = json.loads(child.communicate(timeout=20)[0].splitlines()[-1])
    assert said["said"] == "a person has taken production over"


def test_a_recovery_at_work_cannot_write_over_what_a_person_took_over(site: Site) -> None:
    """It notes its progress at any moment, also just after the person spoke."""
    owed = site.owed(site.recipe())
    site.leave(owed)
    assert recover.release(site.state_dir, "mine")
    memory = state.StateFile(site.state_dir)
    assert memory.note(run=owed.run, phase="restoring")
    memory.close()
    done = recover.recover(site.state_dir, clock=site.clock, remembered=owed)
    assert done.state == "nothing"
    assert not proc.owners(site.port)


def test_a_start_without_a_note_of_it_is_not_doubled(site: Site) -> None:
    """Killed between the start and the note: a script that became another program is known again."""
    script = site.room / "serve.sh"
    command = " ".join(site.odd("--model", str(site.model), "--late", "--load", "1"))
    script.write_text(f"#!/bin/sh\nexec {command}\n")
    script.chmod(0o755)
    one = site.recipe([str(script)])
    assert driver(one).start() is None
    (started,) = soon(lambda: site.heads(one) or None)
    soon(lambda: True if "serve.sh" not in (proc.cmdline(started) or [""])[0] else None)
    site.leave(site.owed(one), "restoring")
    assert recovers(site).state == "closed"
    assert site.heads(one) == {started}
    assert site.copies() == [started]


def test_a_stop_that_was_refused_leaves_a_serving_production_as_it_is(site: Site) -> None:
    """It was never asked to end; calling it down would be wrong, and killing it worse."""
    one = site.start(site.recipe())
    pid = site.listener()
    (who,) = driver(one).standing().heads
    commands = {
        "kind": "command",
        "start": ["/bin/true"],
        "stop": ["/bin/false"],
        "status": ["/bin/true"],
    }
    refusing = dataclasses.replace(one, supervisor=commands)
    site.leave(
        site.owed(refusing), services={"llm": {"stop_asked": True, "family": [who.to_json()]}}
    )
    done = recovers(site)
    assert (done.state, done.production["state"]) == ("closed", "serving")
    assert site.listener() == pid


def test_state_that_another_run_left_is_not_this_ones(site: Site) -> None:
    """Its candidate is not ours to end."""
    one = site.recipe()
    bystander = site.child(["/bin/sleep", "60"])
    who = proc.ident(bystander.pid)
    assert who is not None
    memory = state.StateFile(site.state_dir)
    memory.begin({"run": "r0", "phase": "armed", "candidate": {"who": who.to_json()}})
    memory.close()
    recipe.write(site.state_dir, site.owed(one))
    assert recovers(site).state == "closed"
    assert site.serves(one)
    assert proc.alive(who)
    assert "candidate" not in state.read(site.state_dir)


def test_a_run_that_hangs_past_its_lease_is_ended_first(site: Site) -> None:
    """Kill the holder, then take its lock: stopped by SIGSTOP it would hold it for ever."""
    one = site.start(site.recipe())
    owed = site.owed(one, ends_at=site.clock.now() + 0.2)
    run = site.act(owed, guardian=False, steps=["armed", "noted", "stopped"])
    until_says(run, "stopped")
    stop(run)
    soon(lambda: True if site.clock.now() > (owed.ends_at or 0) else None)
    done = recovers(site)
    assert done.state == "closed"
    assert run.wait(timeout=10) == -signal.SIGKILL
    assert site.serves(one)


def test_a_run_within_its_lease_is_left_alone(site: Site) -> None:
    """It has the box and restores by itself."""
    one = site.start(site.recipe())
    run = site.act(site.owed(one, ends_at=site.clock.now() + 600), guardian=False, steps=["armed"])
    until_says(run, "armed")
    done = recovers(site)
    assert done.state == "held"
    assert f"run {site.run}, pid {run.pid}" in done.said
    assert run.poll() is None


@pytest.mark.parametrize(
    ("phase", "holder", "told"),
    [
        ("stopping", "another", ["DOWN? · run {run} died, and production waits for the box"]),
        ("armed", "another", []),
        ("stopping", "recovery of {run}", []),
    ],
)
def test_a_box_that_a_run_of_another_state_directory_holds_is_told_once(
    site: Site, tmp_path: Path, phase: str, holder: str, told: list[str]
) -> None:
    """Two users, one box: the run of the one keeps the production of the other down for hours."""
    other = tmp_path / "other"
    other.mkdir()
    one = site.recipe()
    site.leave(site.owed(one), phase)
    name = holder.format(run=site.run)
    with lock.hold(other, run=name, since="now", name=site.lock_name):
        for _ in range(2):
            done = recovers(site)
            assert (done.state, done.run) == ("held", site.run)
            assert f"run {name}" in done.said
    assert site.told() == [line.format(run=site.run) for line in told]
    assert site.is_owed
    assert site.copies() == []
    assert recovers(site).state == "closed"


def test_a_recovery_that_somebody_stopped_is_ended_and_replaced(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGSTOP in the middle of a restore: it holds the lock, and restores nothing."""
    monkeypatch.setattr("runner.recovery.leftovers.STOPPED_S", 0.5)
    one = site.recipe(site.standin("--load-seconds", "1"))
    site.leave(site.owed(one))
    first = site.recovery()
    soon(lambda: site.copies() or None)
    stop(first)
    done = recovers(site)
    assert done.state == "closed"
    assert first.wait(timeout=10) == -signal.SIGKILL
    assert site.serves(one)
    assert len(site.copies()) == 1
