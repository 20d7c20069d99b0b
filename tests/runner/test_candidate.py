"""What a job brings up: ready only with four proofs, given up early, and ended without a trace."""

import dataclasses
import sys
from collections.abc import Callable, Mapping

import pytest

from jobs.servers.base import Command
from preflight.linux import proc
from runner import candidate as candidates
from runner.candidate import Candidate, CandidateFailed
from runner.recovery.drivers.process import SERVICE
from runner.recovery.keeper import Keeper, KeeperGone
from runner.until import RealClock, Stopped
from tests.fakes_runner import FakeClock
from tests.runner.recovery.site import Site, gone, kill
from tests.servers import soon

Make = Callable[..., Candidate]


@pytest.fixture
def make(site: Site, keeper: Keeper) -> Make:
    """A candidate with this command."""

    def made(argv: list[str], env: Mapping[str, str] | None = None, **more: object) -> Candidate:
        given = dict(env or {}) | {"RUNNER_TEST": site.mark}
        known = Candidate(
            Command(tuple(argv), given, "/"),
            run=site.run,
            keeper=keeper,
            clock=RealClock(),
            log=site.state_dir / "runs" / site.run / "candidate.log",
            fatal=["out of memory"],
        )
        assert not more
        return known

    return made


def never() -> str | None:
    """Nobody asks for an end, and nothing strange is seen."""
    return None


def ready(site: Site, one: Candidate, within: float = 15.0) -> dict[str, object]:
    """Wait until it serves as asked."""
    return one.ready(site.probe(), site.port, within=within, stop=never, watch=never).identity


def test_a_candidate_that_serves_as_asked_is_ready(site: Site, make: Make) -> None:
    """And ended it leaves nothing: no process, no listener, no note."""
    one = make(site.standin("--load-seconds", "0.2"))
    one.start()
    assert ready(site, one) == {"context": 4096, "model_path": str(site.model)}
    assert one.owns(site.port)
    ended = one.end()
    assert (ended.exit, ended.notes, ended.left) == (0, (), ())
    assert proc.claimants("127.0.0.1", site.port) == []


def test_an_answer_of_a_stranger_makes_no_candidate_ready(site: Site, make: Make) -> None:
    """Somebody else listens there and answers well: it is not ours that serves."""
    stranger = site.child(site.standin())
    soon(lambda: site.serves(site.recipe()) or None)
    one = make(["/bin/sleep", "60"])
    one.start()
    with pytest.raises(CandidateFailed, match=r"not ready within 0\.5 s"):
        ready(site, one, within=0.5)
    assert not one.owns(site.port)
    one.end()
    assert stranger.poll() is None


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (("--die-on-load",), r"ended \(exit code 1\)"),
        (("--fatal-line", "CUDA error: out of memory"), "CUDA error: out of memory"),
        (("--shrink-ctx", "1024"), "it answers, but context is 1024, wanted 4096"),
        (("--wrong-model",), "model_path is /models/another.gguf"),
    ],
)
def test_what_can_never_be_ready_is_given_up_early(
    site: Site, make: Make, flags: tuple[str, ...], why: str
) -> None:
    """With the first decisive words, long before the deadline."""
    one = make(site.standin(*flags))
    one.start()
    began = RealClock().now()
    with pytest.raises(CandidateFailed, match=why):
        ready(site, one, within=600)
    assert RealClock().now() - began < 10
    assert one.end().left == ()


def test_a_program_that_is_not_there_is_named(make: Make) -> None:
    """With the system's reason."""
    one = make(["/no/such/server"])
    with pytest.raises(CandidateFailed, match="/no/such/server did not start: No such file"):
        one.start()
    assert one.end().left == ()


def test_production_that_comes_back_ends_the_wait(site: Site, make: Make) -> None:
    """Whoever watches is asked at each look."""
    one = make(site.standin("--never-ready"))
    one.start()
    with pytest.raises(CandidateFailed, match="llm is back while it should be down"):
        one.ready(
            site.probe(),
            site.port,
            within=60,
            stop=never,
            watch=lambda: "llm is back while it should be down",
        )
    with pytest.raises(Stopped, match="interrupted by TERM"):
        one.ready(
            site.probe(),
            site.port,
            within=60,
            stop=lambda: "interrupted by TERM",
            watch=never,
        )
    one.end()


def test_a_task_ends_by_itself_with_its_exit_code(make: Make) -> None:
    """Also one that has ended before anybody could look."""
    for argv, code in ((["/bin/true"], 0), (["/bin/sh", "-c", "exit 9"], 9)) * 10:
        one = make(argv)
        one.start()
        assert one.finished(within=10, stop=never, watch=never) == code
        assert one.end().exit == code


def test_a_task_that_does_not_end_is_given_up(make: Make) -> None:
    """At its deadline."""
    one = make(["/bin/sleep", "60"])
    one.start()
    with pytest.raises(CandidateFailed, match=r"did not end within 0\.2 s"):
        one.finished(within=0.2, stop=never, watch=never)
    assert one.end().exit == -15


def test_a_candidate_that_ignores_term_is_killed_and_that_is_told(
    site: Site, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TERM, TERM, KILL."""
    monkeypatch.setattr(candidates, "FIRST_TERM_S", 0.2)
    monkeypatch.setattr(candidates, "SECOND_TERM_S", 0.2)
    one = make(site.standin("--ignore-term"))
    one.start()
    ready(site, one)
    ended = one.end()
    assert ended.exit == -9
    assert ended.left == ()
    assert ended.notes == (
        "candidate: still there 0.2 s after TERM; signalled again",
        "candidate: ignored two TERMs; killed",
    )


def test_what_a_candidate_leaves_behind_is_ended_and_told(site: Site, make: Make) -> None:
    """It went in order, and its children had shed session, parent and environment."""
    shell = "env -i setsid -f /bin/sleep 60; setsid -f /bin/sleep 60; exit 0"
    one = make(["/bin/sh", "-c", shell])
    one.start()
    one.finished(within=10, stop=never, watch=never)
    left = soon(lambda: it if len(it := one._keeper.look().left) == 2 else None)
    site.record(*left)
    members = [who for pid in left if (who := proc.ident(pid)) is not None]
    ended = one.end()
    assert ended.left == ()
    gone(members)
    (note,) = ended.notes
    assert note.startswith("candidate: left pid ")
    assert all(str(pid) in note for pid in left)


def test_a_candidate_that_forks_on_its_way_out_is_ended_all_the_same(
    site: Site, make: Make
) -> None:
    """A death takes a moment; one look after the kill is not enough."""
    text = "import os, signal, time\nsignal.signal(15, lambda *_: [os.fork() for _ in range(4)])\n"
    one = make([sys.executable, "-c", text + "while True: signal.pause()"])
    one.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidates, "FIRST_TERM_S", 0.2)
        patch.setattr(candidates, "SECOND_TERM_S", 0.2)
        ended = one.end()
    assert ended.left == ()
    assert proc.tagged(site.run) == set()


def test_what_made_production_known_is_not_handed_to_a_candidate(site: Site, make: Make) -> None:
    """`like = "llm"` starts from production's own command and environment."""
    one = make(["/bin/sleep", "60"], env={SERVICE: f"llm:{site.port}", "OTHER": "kept"})
    one.start()
    assert one.who is not None
    known = proc.environ(one.who.pid) or {}
    assert SERVICE not in known
    assert (known["OTHER"], known[proc.TAG]) == ("kept", site.run)
    assert site.heads(dataclasses.replace(site.recipe(["/bin/sleep", "60"]))) == set()
    one.end()


def test_a_guardian_that_dies_takes_the_candidate_with_it(
    site: Site, keeper: Keeper, make: Make
) -> None:
    """And the run hears of it, as a reason and not as a traceback."""
    one = make(site.standin("--never-ready"))
    one.start()
    assert one.who is not None
    kill(keeper.who)
    gone([one.who])
    with pytest.raises(CandidateFailed, match="the guardian"):
        ready(site, one, within=60)
    with pytest.raises(KeeperGone):
        one.end()
    assert one.wake == []


def test_a_verbose_log_is_read_once(site: Site, make: Make) -> None:
    """Megabytes of it must not delay the moment in which readiness is seen."""
    noise = site.room / "noise.sh"
    lines = f"yes 'I srv: a line of a very verbose server' | head -c 20000000; exec {' '.join(site.standin())}"
    noise.write_text(f"#!/bin/sh\n{lines}\n")
    noise.chmod(0o755)
    one = make([str(noise)])
    one.start()
    assert ready(site, one)
    assert len(one.log_text()) == 4 << 20
    began = RealClock().now()
    for _ in range(50):
        one._next_look = 0.0
        assert one.hopeless() is None
    assert RealClock().now() - began < 2
    one.end()


def test_a_candidate_in_which_nothing_moves_is_given_up(site: Site, keeper: Keeper) -> None:
    """No line, no read, no time of the CPU for five minutes; one line more, and it is waited for."""
    clock, log = FakeClock(), site.state_dir / "runs" / site.run / "candidate.log"
    command = Command(("/bin/sleep", "600"), {"RUNNER_TEST": site.mark}, "/")
    one = Candidate(command, run=site.run, keeper=keeper, clock=clock, log=log)
    one.start()
    assert one.who is not None
    pid = one.who.pid
    soon(lambda: True if (proc.cmdline(pid) or [""])[0] == "/bin/sleep" else None)
    one.hopeless()
    clock.forward(candidates.NO_PROGRESS_S - 1)
    assert one.hopeless() is None
    with log.open("a") as file:
        file.write("loading\n")
    clock.forward(2)
    assert one.hopeless() is None
    clock.forward(candidates.NO_PROGRESS_S + 1)
    assert one.hopeless() == "nothing moved for 301 s"
    kill(one.who)
    gone([one.who])
    one.end()
