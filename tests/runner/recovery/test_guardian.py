"""The guardian: it keeps the candidate, outlives what kills the run, and brings production back."""

import json
import shutil
import signal
import socket
import subprocess

import pytest

from preflight.linux import proc
from preflight.linux.proc import Ident
from runner.journal import Journal
from runner.recovery import cgroups, recipe, recover, state, wire
from runner.recovery.guardian import Guardian
from runner.recovery.recipe import Recipe
from tests.crash.apart import prctl
from tests.runner.recovery.site import Site, gone, kill, line, stop, until_says
from tests.servers import held, soon

PR_SET_CHILD_SUBREAPER = 36
HOSTILE = (
    "trap '' TERM; env -i setsid -f /bin/sleep 120; setsid -f /bin/sleep 120; /bin/sleep 120 & wait"
)
DOWN = ("armed", "noted", "stopped")


def guardian_of(run: subprocess.Popen[str]) -> Ident:
    """Who the guardian of an acting run is."""
    who = proc.ident(int(until_says(run, "guardian")))
    assert who is not None
    return who


def back(site: Site, one: Recipe) -> None:
    """Wait until production serves, the debt is closed and somebody was told."""
    soon(lambda: site.serves(one) or None, within=20)
    soon(lambda: None if site.is_owed else True, within=20)
    soon(lambda: site.told() or None, within=20)


def brood(guardian: Ident) -> set[Ident]:
    """The four processes of a hostile candidate, the guardian's all of them."""

    def born() -> set[Ident] | None:
        found = {proc.ident(pid) for pid in proc.descendants(guardian.pid)}
        sleeping = {
            who
            for who in found
            if who is not None and (proc.cmdline(who.pid) or ("",))[0].endswith("sleep")
        }
        return {who for who in found if who is not None} if len(sleeping) == 3 else None

    return soon(born)


def test_a_run_that_is_killed_while_production_is_down_is_paid_for(site: Site) -> None:
    """P1, P3 and P5 in one: the candidate's whole brood is gone, production is back, told once."""
    one = site.start(site.recipe())
    run = site.act(site.owed(one), candidate=["/bin/sh", "-c", HOSTILE], steps=[*DOWN, "candidate"])
    guardian = guardian_of(run)
    until_says(run, "candidate")
    members = brood(guardian)
    site.record(*(who.pid for who in members))
    kill(run)
    gone(members)
    back(site, one)
    gone([guardian])
    (first,) = site.told()
    assert first.startswith("SERVING since")
    assert "its candidate had the box" in site.alerts.read_text()
    assert len(site.copies()) == 1


def test_a_guardian_that_was_released_starts_nothing(site: Site) -> None:
    """The orderly hand-over: the run closed its debt, and production is what it is."""
    one = site.start(site.recipe())
    run = site.act(site.owed(one), steps=["armed", "closed", "released"])
    guardian = guardian_of(run)
    assert until_says(run, "left") == ""
    gone([guardian])
    assert site.told() == []


def test_a_guardian_stays_while_candidates_live(site: Site) -> None:
    """P3: released too early it says whom it still keeps."""
    one = site.start(site.recipe())
    run = site.act(
        site.owed(one), candidate=["/bin/sleep", "120"], steps=[*DOWN, "candidate", "released"]
    )
    guardian = guardian_of(run)
    pid = until_says(run, "spawned")
    assert until_says(run, "left") == pid
    assert proc.alive(guardian)
    kill(run)
    back(site, one)


def test_signals_to_the_guardian_take_nobody_away(site: Site) -> None:
    """A terminal that closes, a signal to the group: production is still owed."""
    one = site.start(site.recipe())
    run = site.act(site.owed(one), steps=DOWN)
    guardian = guardian_of(run)
    until_says(run, "stopped")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        kill(guardian, number)
    kill(run)
    back(site, one)


def test_a_run_that_dies_before_the_stop_leaves_production_alone(site: Site) -> None:
    """Armed and no more: the same process serves afterwards."""
    one = site.start(site.recipe())
    pid = site.listener()
    run = site.act(site.owed(one), steps=["armed"])
    guardian_of(run)
    until_says(run, "armed")
    kill(run)
    back(site, one)
    assert site.listener() == pid
    assert site.told() == ["SERVING, never touched · night INTERRUPTED before the stop"]


def test_a_run_past_its_lease_is_ended_and_paid_for(site: Site) -> None:
    """Stopped by SIGSTOP it would have kept the box for ever."""
    one = site.start(site.recipe())
    run = site.act(site.owed(one), steps=[*DOWN, "leased"], lease=1.0)
    guardian_of(run)
    until_says(run, "leased")
    stop(run)
    assert run.wait(timeout=10) == -signal.SIGKILL
    back(site, one)


def test_a_production_that_is_still_stopping_is_no_serving_one(site: Site) -> None:
    """The run died after it had asked; the old process still answers, and is about to end."""
    one = site.start(site.recipe(site.odd("--model", str(site.model), "--linger", "1.5")))
    old = site.listener()
    run = site.act(site.owed(one), steps=["armed", "noted", "asked"])
    guardian_of(run)
    until_says(run, "asked")
    kill(run)
    soon(lambda: None if site.is_owed else True, within=20)
    assert site.listener() != old
    assert site.serves(one)


def test_a_production_that_ignores_term_is_restarted_all_the_same(site: Site) -> None:
    """Two TERMs and a KILL lie between the old process and the new one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("runner.recovery.stop.FIRST_TERM_S", 0.3)
        patch.setattr("runner.recovery.stop.SECOND_TERM_S", 0.3)
        one = site.start(site.recipe(site.standin("--ignore-term")))
        old = site.listener()
        (who,) = [proc.ident(old)]
        assert who is not None
        services = {"llm": {"stop_asked": True, "stopped": 0.0, "family": [who.to_json()]}}
        site.leave(site.owed(one), services=services)
        began = site.clock.now()
        done = recover.recover(site.state_dir, clock=site.clock)
    assert site.clock.now() - began < one.ready_within  # not waited for: ended
    assert done.state == "closed"
    assert not proc.alive(who)
    assert site.serves(one)
    assert len(site.copies()) == 1


def test_guardian_and_run_killed_together_the_timer_pays(site: Site) -> None:
    """What a timer, a boot or a person starts does the same, and says what it cannot know."""
    one = site.start(site.recipe())
    run = site.act(site.owed(one), candidate=["/bin/sh", "-c", HOSTILE], steps=[*DOWN, "candidate"])
    guardian = guardian_of(run)
    until_says(run, "candidate")
    members = brood(guardian)
    site.record(*(who.pid for who in members))
    home = state.read(site.state_dir)["candidate"]["cgroup"]
    kill(guardian)
    kill(run)
    out, _ = site.recovery("recover", "--json").communicate(timeout=30)
    assert json.loads(out.splitlines()[-1])["state"] == "closed"
    assert site.serves(one)
    if home is not None:
        gone(members)
    else:
        assert "cannot be known" in site.alerts.read_text()


def test_a_stopped_guardian_and_a_killed_run_the_timer_pays(site: Site) -> None:
    """The candidate's escapees are still the guardian's children, and end with the rest."""
    one = site.start(site.recipe())
    run = site.act(site.owed(one), candidate=["/bin/sh", "-c", HOSTILE], steps=[*DOWN, "candidate"])
    guardian = guardian_of(run)
    until_says(run, "candidate")
    members = brood(guardian)
    site.record(*(who.pid for who in members))
    known = state.read(site.state_dir)
    memory = state.StateFile(site.state_dir)
    memory.write(candidate=known["candidate"] | {"cgroup": None})  # as where there are none
    memory.close()
    stop(guardian)
    kill(run)
    assert recover.recover(site.state_dir, clock=site.clock).state == "closed"
    gone(members)
    assert site.serves(one)
    pid = site.listener()
    kill(guardian, signal.SIGCONT)
    gone([guardian])
    assert site.listener() == pid
    assert len(site.told()) == 1


def test_the_state_directory_is_removed_while_production_is_down(site: Site) -> None:
    """Somebody's clean-up took the recovery file, the lock and the journal: it is owed still."""
    one = site.start(site.recipe())
    run = site.act(site.owed(one), steps=DOWN)
    guardian = guardian_of(run)
    until_says(run, "stopped")
    shutil.rmtree(site.state_dir)
    kill(run)
    soon(lambda: site.serves(one) or None, within=20)
    gone([guardian])
    assert len(site.told()) == 1


def test_what_cannot_be_tidied_up_does_not_hold_up_the_restore(site: Site) -> None:
    """A disk that became read-only, a socket that somebody replaced: production comes first."""
    one = site.start(site.recipe())
    run = site.act(site.owed(one), steps=DOWN)
    guardian_of(run)
    until_says(run, "stopped")
    made = site.state_dir / "runs" / site.run / wire.NAME
    made.unlink()
    made.mkdir()
    kill(run)
    back(site, one)


def test_a_guardian_that_hangs_in_its_telling_has_restored_before(site: Site) -> None:
    """A channel that never answers holds up nothing but itself."""
    one = site.start(site.recipe())
    token = site.room / "token"
    token.write_text("1:x")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        channel = {
            "kind": "telegram",
            "api_base": f"http://127.0.0.1:{silent.getsockname()[1]}",
            "token": {"file": str(token)},
            "chat_id": 1,
        }
        run = site.act(site.owed(one, tell=[channel]), steps=DOWN)
        guardian = guardian_of(run)
        until_says(run, "stopped")
        kill(run)
        soon(lambda: site.serves(one) or None, within=20)
        soon(lambda: None if site.is_owed else True, within=10)
        assert proc.alive(guardian)
        silent.settimeout(10)
        silent.accept()[0].close()
    with Journal.open(site.state_dir, read_only=True) as journal:
        (row,) = journal.outbox()
    assert row.body["first_line"].startswith("SERVING since")


def test_a_guardian_refuses_to_guard_nothing(site: Site) -> None:
    """Without a debt on disk its acknowledgement would be worth nothing."""
    out, _ = site.recovery("guardian", site.run).communicate(timeout=20)
    assert "a guardian has nothing to guard" in out


def test_whatever_is_asked_the_guardian_lives(site: Site) -> None:
    """A question that it does not understand must not cost the one who restores."""
    one = site.start(site.recipe())
    run = site.act(site.owed(one), steps=["armed"])
    guardian = guardian_of(run)
    until_says(run, "armed")
    directory = site.state_dir / "runs" / site.run
    for asked in (
        {"do": "dance"},
        {"do": "spawn"},
        {"do": "lease", "ends_at": "soon"},
        {"do": "spawn", "argv": [], "env": {}, "log": "/x"},
    ):
        lines = wire.Lines(wire.connect(directory, 10))
        lines.send(asked)
        said = lines.receive()
        assert said is not None
        assert said["ok"] is False
        lines.close()
    with wire.connect(directory, 10) as broken:
        broken.sendall(b"no json\n")
        assert broken.recv(1) == b""
    assert proc.alive(guardian)
    kill(run)
    back(site, one)


def test_a_candidate_is_marked_and_offers_itself_to_the_oom_killer(site: Site) -> None:
    """Tagged, without our lock, in a home of its own, and first to go when memory runs out."""
    one = site.start(site.recipe())
    run = site.act(site.owed(one), candidate=["/bin/sleep", "120"], steps=[*DOWN, "candidate"])
    guardian = guardian_of(run)
    pid = int(until_says(run, "spawned"))
    until_says(run, "candidate")
    assert (proc.environ(pid) or {})[proc.TAG] == site.run
    with open(f"/proc/{pid}/oom_score_adj") as file:
        assert int(file.read()) >= 300
    its = {"/dev/null", str(site.state_dir / "runs" / site.run / "candidate.log")}
    soon(lambda: True if held(pid) == its else None)
    home = state.read(site.state_dir)["candidate"]["cgroup"]
    if home is not None:
        assert home.endswith(cgroups.name_of(site.run))
    candidate = proc.ident(pid)
    assert candidate is not None
    kill(guardian)
    gone([candidate])
    kill(run)
    assert recover.recover(site.state_dir, clock=site.clock).state == "closed"


def test_a_candidate_that_does_not_start_says_why(site: Site) -> None:
    """And the run's other steps go on."""
    one = site.start(site.recipe())
    run = site.act(site.owed(one), candidate=["/no/such/server"], steps=["armed", "candidate"])
    guardian_of(run)
    seen = []
    while said := line(run):
        seen.append(said)
    assert "No such file or directory: /no/such/server" in seen[-1]
    back(site, one)


def test_the_port_is_stolen_and_given_back(site: Site) -> None:
    """The guardian keeps trying, and starts as soon as what stood in its way has gone."""
    one = site.start(site.recipe())
    run = site.act(site.owed(one), steps=DOWN)
    guardian = guardian_of(run)
    until_says(run, "stopped")
    stranger = site.child(site.odd("--context", "1"))
    assert site.listener() == stranger.pid
    kill(run)
    soon(lambda: site.told() or None, within=20)
    assert site.told()[0].startswith("DOWN since")
    assert stranger.poll() is None
    kill(stranger)
    soon(lambda: site.serves(one) or None, within=20)
    gone([guardian])
    assert site.told()[-1].startswith("SERVING since")
    assert not (site.state_dir / recipe.NAME).exists()


def test_a_run_that_somebody_stopped_for_long_is_told(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGSTOP, or a debugger: within its lease it may go on, but nobody sleeps through it."""
    monkeypatch.setattr("runner.recovery.guardian.STOPPED_TOLD_S", 0.2)
    one = site.start(site.recipe())
    run = site.act(site.owed(one, ends_at=site.clock.now() + 600), guardian=False, steps=[*DOWN])
    until_says(run, "stopped")
    guardian = Guardian(site.state_dir, site.run, clock=site.clock)
    try:
        assert not guardian._run_hangs()
        stop(run)
        soon(lambda: guardian._run_hangs() or site.told() or None)
        assert not guardian._run_hangs()
    finally:
        guardian._tidy()
        guardian._apart.finish()
        prctl(PR_SET_CHILD_SUBREAPER, 0)  # this process is a guardian no more
    assert run.poll() is None
    (first,) = site.told()
    assert first == f"DOWN? · run {site.run} was stopped by somebody, and keeps the box"
    assert f"pid {run.pid} (" in site.alerts.read_text()
    assert "it is ended by itself in 10m" in site.alerts.read_text()
