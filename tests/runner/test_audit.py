"""The independent look: each promise, broken on purpose, is named; a box that keeps them is not."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from preflight.linux import proc
from runner.audit import audit
from runner.files import make_state_dir, write_json
from runner.journal import Journal
from tests.fakes_runner import FakeClock
from tests.servers import free_port, soon

AT = "2026-03-01T00:00:00+00:00"
DEAD = {"boot": "another boot", "pid": 4711, "start": 1}
GATE = {"services": ["llm"], "gate_age_s": 0.1, "guardian": {"pid": 2}}
PASSED = {"id": "file.exists", "state": "pass", "evidence": []}
SLEEPS = (os.path.realpath(sys.executable), "-I", "-c", "import signal; signal.pause()")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state directory of its own."""
    make_state_dir(tmp_path)
    return tmp_path


def broken(state: Path, promise: str) -> list[str]:
    """What the look says of one promise; of the others it must say nothing."""
    found, unknown = audit(state, clock=FakeClock())
    assert unknown == []
    assert {one.promise for one in found} <= {promise}
    return [one.said for one in found]


def ran(state: Path, outcome: str = "refuted", code: int = 6, **given: Any) -> None:
    """A run that has ended as a run should, but for what is `given`."""
    claim = {"kind": "context", "state": outcome, "evidence": [{"said": "n_ctx = 4096"}]}
    with Journal.open(state) as journal:
        journal.begin("one", "night", "manual", DEAD, AT)
        journal.verdicts("one", given.get("verdicts", [PASSED]))
        journal.event("one", "stopping", **given.get("stopping", GATE))
        journal.close(
            "one",
            outcome,
            code,
            "SERVING",
            result={"outcome": outcome, "claims": given.get("claims", [claim])},
            alert=given.get("alert", {"first_line": "SERVING", "text": "refuted"}),
            ended=AT,
        )


def recipe(port: int, **more: Any) -> dict[str, Any]:
    """One service, as recovery keeps it."""
    return {
        "name": "llm",
        "kind": "openai",
        "host": "127.0.0.1",
        "port": port,
        "supervisor": {"kind": "process", "argv": list(SLEEPS), "log": "/dev/null"},
        "probe": {"base": f"http://127.0.0.1:{port}", "health": "/health"},
        **more,
    }


@contextmanager
def sleeping(env: Mapping[str, str] | None = None) -> Iterator[int]:
    """A process that only sleeps, for as long as the block lasts; its pid."""
    child = subprocess.Popen(SLEEPS, env={**os.environ, **(env or {})})
    try:
        soon(lambda: True if proc.cmdline(child.pid) == SLEEPS else None)
        yield child.pid
    finally:
        child.kill()
        child.wait()


@pytest.fixture
def candidate() -> Iterator[int]:
    """A process tagged as a candidate of run `one`."""
    with sleeping({proc.TAG: "one"}) as pid:
        yield pid


def test_an_empty_box_keeps_every_promise(state: Path) -> None:
    """There is nothing yet that could be broken."""
    assert broken(state, "") == []


def test_a_run_that_ended_well_keeps_every_promise(state: Path) -> None:
    """The other tests each change one thing of this."""
    ran(state)
    assert broken(state, "") == []


def test_p1_a_production_that_is_down_and_nobody_knows(state: Path) -> None:
    """What was last seen serving does not answer."""
    write_json(state / "last-good.json", {"llm": recipe(free_port())})
    (said,) = broken(state, "P1")
    assert said.startswith("llm does not serve as before")


def test_p1_a_production_that_is_down_and_was_told(state: Path) -> None:
    """Answering or told: one of the two is enough."""
    write_json(state / "last-good.json", {"llm": recipe(free_port())})
    with Journal.open(state) as journal:
        journal.incident("production", "llm is down")
    assert broken(state, "P1") == []


@pytest.mark.parametrize(
    ("lines", "findings"),
    [
        (["DOWN since 00:36 · llm does not start"], 0),
        (["PRODUCTION UNKNOWN · what a dead run owes cannot be read · look at once"], 0),
        (["DOWN since 00:36 · llm does not start", "NOT LOOKED AT · night SKIPPED"], 0),
        (["SERVING since 00:30 · night REFUTED"], 1),
        (["DOWN since 00:36 · llm does not start", "SERVING since 00:40 · llm is back"], 1),
    ],
)
def test_p1_what_was_told_last_counts(state: Path, lines: list[str], findings: int) -> None:
    """An old DOWN that was followed by a SERVING tells nobody of today's."""
    write_json(state / "last-good.json", {"llm": recipe(free_port())})
    with Journal.open(state) as journal:
        for line in lines:
            journal.post(line, {"first_line": line, "text": "", "at": AT})
    assert len(broken(state, "P1")) == findings


def test_p1_a_history_that_starts_anew_tells_nothing_of_production(state: Path) -> None:
    """Its incident stays open, and is about the journal alone."""
    write_json(state / "last-good.json", {"llm": recipe(free_port())})
    with Journal.open(state) as journal:
        journal.starts_anew("it was damaged")
    assert len(broken(state, "P1")) == 1


def test_p2_a_candidate_beside_what_its_run_stops(state: Path, candidate: int) -> None:
    """Two tenants: the candidate lives, and so does the service that it replaces."""
    with sleeping():
        owed = {"run": "one", "stops": ["llm"], "services": [recipe(free_port())]}
        write_json(state / "recovery.json", owed)
        with Journal.open(state) as journal:
            journal.incident("production", "llm is down")
        (said,) = broken(state, "P2")
    assert f"live at once: pids [{candidate}]" in said


def test_p2_production_runs_twice(state: Path) -> None:
    """Two first processes with the same command."""
    with sleeping(), sleeping():
        write_json(state / "last-good.json", {"llm": recipe(free_port())})
        with Journal.open(state) as journal:
            journal.incident("production", "llm is down")
        (said,) = broken(state, "P2")
    assert "llm runs 2 times" in said


def test_p3_a_candidate_outlives_its_run(state: Path, candidate: int) -> None:
    """It carries the tag of a run that has ended."""
    ran(state)
    assert broken(state, "P3") == [
        f"run one has ended, and pids [{candidate}] of its candidate live"
    ]


def test_p4_a_run_without_an_outcome(state: Path) -> None:
    """Its process is dead and it owes nothing, so nobody will ever end it."""
    with Journal.open(state) as journal:
        journal.begin("one", "night", "manual", DEAD, AT)
    assert broken(state, "P4") == ["run one has no outcome, no process and no debt"]


def test_p4_an_exit_code_that_says_something_else(state: Path) -> None:
    """Outcome and exit code come from one table."""
    ran(state, code=0)
    assert broken(state, "P4") == ["run one is refuted with exit code 0"]


def test_p5_a_run_that_nobody_was_told_of(state: Path) -> None:
    """It was refuted, and the outbox does not know."""
    ran(state, alert=None)
    assert broken(state, "P5") == ["run one was refuted, and no alert says so"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"verdicts": []}, "without a preflight"),
        ({"verdicts": [{**PASSED, "state": "fail"}]}, "although file.exists was fail"),
        ({"verdicts": [{**PASSED, "state": "unknown"}]}, "although file.exists was unknown"),
        ({"stopping": {**GATE, "gate_age_s": 11}}, "on a gate of 11 s ago"),
        ({"stopping": {**GATE, "guardian": None}}, "without a guardian"),
    ],
)
def test_p6_production_was_stopped_unsafely(state: Path, given: dict[str, Any], said: str) -> None:
    """Each condition of a stop, left out."""
    ran(state, **given)
    assert broken(state, "P6") == [f"run one stopped production {said}"]


def test_p6_an_unknown_that_the_job_accepts_is_none(state: Path) -> None:
    """It was said, with its reason, in every report."""
    accepted = {**PASSED, "state": "unknown", "evidence": ["accepted: the card cannot tell"]}
    ran(state, verdicts=[accepted])
    assert broken(state, "P6") == []


@pytest.mark.parametrize("claims", [[], [{"kind": "context", "state": "proven", "evidence": []}]])
def test_p9_proven_without_proof(state: Path, claims: list[dict[str, Any]]) -> None:
    """No claim, or a claim that nothing speaks for."""
    ran(state, "proven", 0, claims=claims, alert=None)
    (said,) = broken(state, "P9")
    assert "is proven without evidence" in said


def test_p10_a_token_in_the_journal(state: Path) -> None:
    """Written around the redaction, as a careless change might."""
    ran(state)
    with Journal.open(state) as journal:
        journal._db.execute(
            "INSERT INTO incidents (key, text, opened, resolved) VALUES (?, ?, ?, ?)",
            ("k", "1234567890:AAE-abcdefghijklmnopqrstuvwxyz012345", AT, AT),
        )
    assert broken(state, "P10") == ["the journal's table incidents holds what looks like a token"]


def test_p10_a_recipe_that_others_can_read(state: Path) -> None:
    """It may hold production's own environment."""
    write_json(state / "recovery.json", {"run": "one", "services": [], "stops": []}, mode=0o644)
    assert broken(state, "P10") == [f"{state / 'recovery.json'} can be read by others"]


def test_a_journal_that_cannot_be_read_is_unknown_and_no_finding(state: Path) -> None:
    """What could not be looked at breaks nothing, and is said."""
    ran(state)
    (state / "journal.db").write_bytes(b"nonsense" * 1000)
    found, unknown = audit(state, clock=FakeClock())
    assert found == []
    assert "cannot be read" in unknown[0]


def test_the_audit_is_short_enough_to_be_read_whole() -> None:
    """Whoever doubts the rest can check the checker."""
    source = Path(__file__).parents[2] / "runner" / "audit.py"
    assert len(source.read_text().splitlines()) < 200
