"""The restore: patient with what loads, quick with what is dead, and never two copies."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from preflight.linux import proc
from preflight.linux.proc import Ident
from runner.recovery import attempt, restore, sameness
from runner.recovery.attempt import Attempt, Past, Served
from runner.recovery.drivers import driver
from runner.recovery.probe import Look, health
from runner.recovery.progress import LogWatch, Progress
from runner.recovery.recipe import Recipe
from runner.until import Stopped
from tests.dead_mount import apart
from tests.fakes_runner import FakeClock
from tests.runner.recovery.site import Site, kill
from tests.servers import free_port, soon


def never() -> str | None:
    """Nobody asks for an end."""
    return None


def restored(
    site: Site,
    *services: Recipe,
    pasts: dict[str, Past] | None = None,
    last_good: dict[str, Recipe] | None = None,
    stop: Callable[[], str | None] = never,
    said: list[str] | None = None,
) -> list[Served]:
    """One round over services."""
    return restore.restore(
        list(services),
        pasts=pasts or {},
        last_good=last_good or {},
        clock=site.clock,
        stop=stop,
        residency=lambda _: None,
        note=lambda *_: None,
        say=lambda event, **_: said.append(event) if said is not None else None,
    )


def tried_once(site: Site, one: Recipe) -> Served:
    """One try at one recipe."""
    trying = Attempt(one, Past(), clock=site.clock, stop=never, residency=lambda _: None)
    return trying.run(lambda _: None)


def test_services_come_back_in_order_and_one_that_does_not_keeps_no_other_down(
    site: Site,
) -> None:
    """Each is told by itself."""
    dead = site.recipe(["/no/such/server"], name="dead", port=free_port())
    one = site.recipe()
    said: list[str] = []
    first, second = restored(site, dead, one, said=said)
    assert (first.state, second.state) == ("down", "serving")
    assert first.tries == 2
    assert said == ["starting", "failed", "starting", "failed", "starting", "serving"]


def test_a_server_that_dies_while_it_loads_is_noticed_and_not_waited_for(site: Site) -> None:
    """The seed of this project: two blind waits of 15 minutes for a server that was dead."""
    began = site.clock.now()
    one = site.recipe(site.standin("--load-seconds", "0.2", "--die-on-load"), ready_within=900.0)
    (served,) = restored(site, one)
    assert served.state == "down"
    assert "it ended while starting" in served.why
    assert site.clock.now() - began < 10
    assert site.copies() == []


def test_a_fatal_line_ends_the_wait_and_the_server_that_lives_on(site: Site) -> None:
    """It will never be ready, and must not stand beside the next one."""
    one = site.recipe(site.standin("--fatal-line", "CUDA error: out of memory"), ready_within=900.0)
    (served,) = restored(site, one)
    assert served.state == "down"
    assert "CUDA error: out of memory" in served.why
    assert site.copies() == []


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (("--never-ready",), "answers 503"),
        (("--health-only",), "/completion answers"),
    ],
)
def test_a_server_that_never_serves_is_given_up_at_its_deadline(
    site: Site, flags: tuple[str, ...], why: str
) -> None:
    """Healthy is not serving; and the copy that did not serve is ended."""
    (served,) = restored(site, site.recipe(site.standin(*flags), ready_within=0.5))
    assert served.state == "down"
    assert "not serving after 0.5s" in served.why
    assert why in served.why
    assert site.copies() == []


def test_a_health_endpoint_that_hangs_is_no_reason_to_hang(site: Site) -> None:
    """It accepts, and never answers."""
    one = site.recipe(site.odd("--hang", "/health"), ready_within=0.5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attempt, "HEALTH_WITHIN_S", 0.2)
        served = tried_once(site, one)
    assert served.state == "down"
    assert site.copies() == []


def test_a_server_that_answers_and_ends_again_and_again_is_down(site: Site) -> None:
    """A script that starts it anew each time: it answers now and then, and serves nobody."""
    server = site.odd("--model", str(site.model), "--flap", "0.05")
    loop = site.room / "loop.sh"
    loop.write_text(f"#!/bin/sh\nwhile :; do {' '.join(server)}; done\n")
    loop.chmod(0o755)
    one = site.recipe([str(loop)], settle=0.6, identity={"argv": server})
    served = tried_once(site, one)
    assert served.state == "down"
    assert "answered and then ended" in served.why or "again and again" in served.why
    assert site.copies() == []


def test_a_server_that_asks_for_a_key_we_do_not_have_is_left_serving(site: Site) -> None:
    """A timer has another environment than the run had; a start would not bring the key."""
    one = site.recipe(site.standin("--api-key", "secret"), ready_within=900.0)
    (served,) = restored(site, one)
    assert served.state == "degraded"
    assert "it asks for another key" in served.why
    assert len(site.copies()) == 1


def test_a_slow_load_is_not_a_dead_one(site: Site) -> None:
    """Patience is the most of what was granted and three times what was learned."""
    assert site.recipe(ready_within=60.0, slowest_load=400.0).patience == 1200.0
    assert site.recipe(ready_within=900.0, slowest_load=1.0).patience == 900.0
    one = site.recipe(site.standin("--load-seconds", "0.8"), ready_within=0.3, slowest_load=1.0)
    (served,) = restored(site, one)
    assert (served.state, served.tries) == ("serving", 1)
    assert served.load is not None
    assert 0.8 <= served.load < 3


def test_a_server_on_its_way_up_is_waited_for(site: Site) -> None:
    """Somebody else has started it already: never a second copy."""
    one = site.recipe(site.standin("--load-seconds", "0.5"))
    assert driver(one).start() is None
    (copy,) = soon(lambda: site.copies() or None)
    (served,) = restored(site, one)
    assert served.state == "serving"
    assert served.load is None
    assert site.copies() == [copy]


@pytest.mark.parametrize("how", ["the command itself", "a script that becomes it"])
def test_what_a_person_has_half_started_is_waited_for(site: Site, how: str) -> None:
    """From a shell, with nothing of ours on it, and deaf until it has loaded: no second copy."""
    server = site.odd("--model", str(site.model), "--late", "--load", "1")
    one = site.recipe(server)
    if how == "a script that becomes it":
        script = site.room / "serve.sh"
        script.write_text(f"#!/bin/sh\nsleep 0.3\nexec {' '.join(server)}\n")
        script.chmod(0o755)
        one = site.recipe([str(script)], identity={"argv": server})
        server = [str(script)]
    person = site.child(server)
    soon(lambda: site.heads(one) or None)
    assert not proc.owners(site.port)
    (served,) = restored(site, one)
    assert (served.state, served.load) == ("serving", None)
    assert site.listener() == person.pid
    assert site.copies() == []


def test_an_engine_left_by_a_failed_start_is_ended_before_the_next(site: Site) -> None:
    """It would hold the memory that the next one needs."""
    flapping = site.recipe(site.odd("--leave", "--flap", "0.01", "--model", str(site.model)))
    assert driver(flapping).start() is None
    soon(lambda: health(flapping.probe).serving or None)
    soon(lambda: True if driver(flapping).orphans() and not site.heads(flapping) else None)
    orphans = driver(flapping).orphans()
    one = site.recipe()
    (served,) = restored(site, one)
    assert served.state == "serving"
    assert not any(proc.alive(who) for who in orphans)


def test_a_copy_that_cannot_be_ended_keeps_every_other_from_starting(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P2: rather down and told than two on one card."""
    monkeypatch.setattr("runner.recovery.drivers.command._COMMAND_WITHIN", 0.5)
    monkeypatch.setattr("runner.recovery.stop.SUPERVISOR_SLACK_S", 0.1)
    stuck = site.child(site.odd("--mute", "--model", str(site.model)))
    assert site.listener() == stuck.pid
    supervisor: dict[str, Any] = {"kind": "command", "start": ["/bin/true"]}
    supervisor |= {"stop": ["/bin/true"], "status": ["/bin/true"]}
    other = site.recipe(port=free_port()).to_json()
    one = site.recipe(supervisor=supervisor, ready_within=0.2, fallbacks=[other])
    (served,) = restored(site, one)
    assert (served.state, served.tries) == ("down", 1)
    assert f"llm does not end: pid {stuck.pid} " in served.why
    assert site.copies() == []


def test_what_was_asked_to_stop_is_gone_before_it_is_started_again(site: Site) -> None:
    """Its old process answers still: that is no reason to call it serving."""
    one = site.start(site.recipe(site.odd("--model", str(site.model), "--linger", "0.5")))
    (old,) = driver(one).standing().heads
    past = Past(stop_asked=True, family=frozenset({old}))
    (served,) = restored(site, one, pasts={"llm": past})
    assert served.state == "serving"
    assert not proc.alive(old)
    assert served.load is not None


def test_a_service_whose_status_is_unknown_may_serve_all_the_same(site: Site) -> None:
    """Unknown blocks a stop, and never a restore."""
    other = site.child(site.plain())
    assert site.listener() == other.pid
    supervisor: dict[str, Any] = {"kind": "command", "start": ["/bin/false"]}
    supervisor |= {"stop": ["/bin/false"], "status": ["/bin/sh", "-c", "exit 7"]}
    (served,) = restored(site, site.recipe(supervisor=supervisor))
    assert (served.state, served.tries) == ("serving", 1)


def test_a_command_that_starts_in_the_background_is_given_a_moment(site: Site) -> None:
    """Its status says "stopped" for an instant; a fallback beside it would be a second copy."""
    start = site.room / "start.sh"
    up = site.room / "up"
    command = " ".join(site.plain())
    start.write_text(f"#!/bin/sh\n(/bin/sleep 0.4; touch {up}; exec {command}) >/dev/null 2>&1 &\n")
    start.chmod(0o755)
    supervisor: dict[str, Any] = {"kind": "command", "start": [str(start)], "stop": ["/bin/true"]}
    supervisor["status"] = ["/bin/sh", "-c", f"test -e {up} || exit 3"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RUNNER_TEST", site.mark)  # for what the command starts
        (served,) = restored(site, site.recipe(supervisor=supervisor))
    assert (served.state, served.tries) == ("serving", 1)


def test_a_restore_ends_only_when_the_machine_does(site: Site) -> None:
    """It is looked for at each poll, and nothing is held up."""
    asked: list[str] = []

    def going_down() -> str | None:
        asked.append("")
        return "the machine is going down" if len(asked) > 5 else None

    with pytest.raises(Stopped, match="going down"):
        restored(site, site.recipe(site.standin("--never-ready")), stop=going_down)


def test_the_same_answers_are_the_same_production(site: Site) -> None:
    """And what differs is named, each with both values."""
    known = {"model_path": "/m", "context": 4096, "slots": 1, "build": "b1"}
    one = site.recipe(identity={"said": known, "gpu_mib": 1000.0})
    same = sameness.compare(one, Look("serving", identity=dict(known)), 990.0)
    assert (same.identity, same.why, same.notes) == ("same", "", ())
    other = sameness.compare(
        one, Look("serving", identity=known | {"context": 1024, "build": "b2"}), 990.0
    )
    assert (other.identity, other.why) == ("different", "context was 4096, is 1024")
    assert other.notes == ("build was b1, is b2",)
    on_cpu = sameness.compare(one, Look("serving", identity=dict(known)), 12.0)
    assert on_cpu.why == "it holds 12 MiB on the GPU, held 1000: back on the CPU?"
    unread = sameness.compare(one, Look("serving", identity=dict(known)), None)
    assert unread.why == ""
    assert sameness.compare(site.recipe(), Look("serving"), None).identity == "unknown"


def test_another_greedy_answer_is_worth_a_note_and_no_more(site: Site) -> None:
    """Near ties are real."""
    one = site.start(site.recipe())
    greedy = {**one.probe, "greedy": one.probe["completion"]}
    known = {**one.identity, "greedy": "something else"}
    (served,) = restored(site, dataclasses.replace(one, probe=greedy, identity=known))
    assert served.state == "serving"
    assert served.notes == ("llm: the greedy answer differs from the one before",)


def test_a_log_is_read_on_from_where_it_was(tmp_path: Path) -> None:
    """Each line once; the first fatal one is kept, what comes after it often tells nothing."""
    log = tmp_path / "log"
    log.write_bytes(b"error: old\n")
    watch = LogWatch(log, ["error"], log.stat().st_size)
    assert watch.look() is None
    with log.open("ab") as file:
        file.write(b"loading\nerr")
        file.flush()
        assert watch.look() is None
        file.write(b"or: no memory\nerror: and more\nexiting\n")
        file.flush()
        assert watch.look() == "error: no memory"
        assert watch.last_line == "exiting"
        file.write(b"the end")
    assert watch.end() == "error: no memory"
    assert watch.last_line == "the end"


def test_a_log_that_was_cut_is_read_from_its_beginning(tmp_path: Path) -> None:
    """A rotation in the middle of a load must not hide why it failed."""
    log = tmp_path / "log"
    log.write_bytes(b"x" * 100 + b"\n")
    watch = LogWatch(log, ["error"])
    assert watch.look() is None
    log.write_bytes(b"error: new\n")
    assert watch.look() == "error: new"
    assert LogWatch("", ["error"]).look() is None


def test_nothing_that_moves_is_no_progress() -> None:
    """Neither log nor processor nor reads nor memory: for so many seconds."""
    clock = FakeClock()
    progress = Progress(clock)
    assert progress.stalled(set(), 10) == 0
    clock.forward(100)
    assert progress.stalled(set(), 10) == 100
    assert progress.stalled(set(), 11) == 0
    assert attempt.NO_PROGRESS_S == 300


def test_a_past_that_cannot_be_read_is_none() -> None:
    """`recovery.state` is best effort."""
    assert Past.from_json({"family": [None, 7, {"pid": "x"}], "started": "x"}) == Past()
    who = Ident("b", 7, 9)
    said = {"stop_asked": True, "family": [who.to_json()], "token": "t", "started": who.to_json()}
    assert Past.from_json(said) == Past(True, frozenset({who}), "t", who)


def test_production_that_dies_right_after_it_served_is_seen(site: Site) -> None:
    """The settle time is there for that."""
    one = site.recipe(site.odd("--model", str(site.model), "--flap", "0.15"), settle=0.6)
    served = tried_once(site, one)
    assert served.state == "down"
    assert "ended" in served.why


def test_a_process_that_was_killed_while_it_settled_is_started_anew(site: Site) -> None:
    """Two tries lie between a first death and the word down."""
    one = site.recipe(settle=0.3)
    said: list[str] = []

    def say(event: str, **_: object) -> None:
        said.append(event)

    killed: list[Ident] = []

    def stop() -> str | None:
        if not killed and site.serves(one):
            (who,) = driver(one).standing().heads
            killed.append(who)
            kill(who)
        return None

    served = restored(site, one, stop=stop)
    assert [each.state for each in served] == ["serving"]
    assert served[0].tries == 2


DEAD = """
import json
from runner.recovery import recover
from tests.fakes_runner import HastyClock
done = recover.recover(Path(sys.argv[2]), clock=HastyClock())
print(json.dumps({"state": done.state, "said": done.said}))
"""


def test_a_model_on_a_dead_mount_holds_nobody_up(site: Site) -> None:
    """Whether it is there cannot be known; that production is down is told all the same."""
    dead = site.room / "dead"
    dead.mkdir()
    one = site.recipe(
        ["/bin/false"],
        inputs=[{"path": str(dead / "model.gguf"), "role": "weights"}],
        pins=[{"path": str(dead / "model.gguf"), "pin": str(site.model), "size": 1}],
    )
    site.leave(site.owed(one))
    child = site.child(
        apart(DEAD, str(dead), str(site.state_dir)),
        env={"PYTHONPATH": str(Path(__file__).parents[3])},
    )
    out, _ = child.communicate(timeout=60)
    done = json.loads(out.splitlines()[-1])
    assert done["state"] == "owed", out
    assert "is gone" not in done["said"]
    (first,) = site.told()
    assert first.startswith("DOWN")
