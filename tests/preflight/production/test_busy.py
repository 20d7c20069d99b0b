"""Whether somebody is being served, asked so that nothing wakes up and nothing is loaded."""

import json
from typing import Any

import pytest

from preflight.box import TIMEOUT, Answer
from preflight.production.busy import Busy, asleep
from preflight.rings import look
from preflight.verdict import State, Verdict
from tests.fakes import FakeBox

BASE = "http://127.0.0.1:8080"
LLAMACPP = {"base": BASE, "identity": [{"path": "/v1x/props", "at": ["total_slots"]}]}
OPENAI = {"base": BASE, "identity": [{"path": "/v1/models", "at": ["data", 0, "id"]}]}


def recipe(probe: dict[str, Any]) -> dict[str, Any]:
    """A service with these questions."""
    return {"name": "llm", "port": 8080, "supervisor": {"kind": "process"}, "probe": probe}


def ask(box: FakeBox, probe: dict[str, Any] | None = None, **more: Any) -> Verdict:
    """The answer about one service."""
    return look([Busy(recipe=recipe(probe or LLAMACPP), **more)], box).verdicts[0]


def serving(slots: object = None, metrics: str | None = None, **props: Any) -> FakeBox:
    """A llama-server behind a prefix that says this of itself."""
    box = FakeBox()
    box.answers_with(f"{BASE}/v1x/props", {"total_slots": 2, **props})
    if slots is not None:
        box.answers_with(f"{BASE}/v1x/slots", slots)
    if metrics is not None:
        box.answers[f"{BASE}/v1x/metrics"] = Answer(200, metrics)
    return box


def test_idle_slots_pass() -> None:
    """Nobody waits."""
    verdict = ask(serving([{"is_processing": False}, {"is_processing": False}]))
    assert verdict.state is State.PASS
    assert verdict.found == "no request is at work"


def test_requests_at_work_are_waited_for_and_then_refuse() -> None:
    """A look says that a run would wait; after the wait it is a refusal."""
    box = serving([{"is_processing": True}, {"is_processing": False}])
    verdict = ask(box, within_s=300)
    assert verdict.state is State.WARN
    assert verdict.found == "1 request is at work; a run waits up to 300 s for that"
    late = ask(box, within_s=300, waited=True)
    assert late.state is State.FAIL
    assert late.found == "1 request is at work, after 300 s"


def test_a_sleeping_server_is_idle_and_stays_asleep() -> None:
    """GET /slots and /metrics would load its model again: neither is asked."""
    box = serving([{"is_processing": True}], "llamacpp:requests_processing 3\n", is_sleeping=True)
    assert ask(box).found == "it sleeps"
    assert box.asked == [f"{BASE}/v1x/props"]
    assert asleep(recipe(LLAMACPP), box)
    assert not asleep(recipe(OPENAI), box)


def test_a_router_is_asked_nothing_that_would_load_a_model() -> None:
    """Only who is connected tells."""
    box = serving([{"is_processing": True}], role="router")
    assert ask(box).found == "nobody is connected"
    assert box.asked == [f"{BASE}/v1x/props"]


@pytest.mark.parametrize(
    ("metrics", "said"),
    [
        ("llamacpp:requests_processing 1\nllamacpp:requests_deferred 2\n", "3 requests are at work"),
        ('vllm:num_requests_running{model_name="m"} 2.0\nvllm:num_requests_waiting{engine="0"} 0.0\n', "2 requests"),
        ('sglang:num_running_reqs{tp_rank="0"} 0.0\nsglang:num_queue_reqs{x="y"} 1.0\n', "1 request is"),
        ("llamacpp:requests_processing 0\n", "no request is at work"),
    ],
)  # fmt: skip
def test_counters_tell_where_slots_do_not(metrics: str, said: str) -> None:
    """Each server has its own names for them."""
    box = serving(metrics=metrics)
    box.answers[f"{BASE}/v1x/slots"] = Answer(501, "no slots")
    assert said in ask(box).found
    other = FakeBox()
    other.answers[f"{BASE}/metrics"] = Answer(200, metrics)
    assert said in ask(other, OPENAI).found


def test_a_server_that_is_too_busy_to_answer_is_busy() -> None:
    """Slots are told through the same queue as answers."""
    box = serving()
    box.answers[f"{BASE}/v1x/slots"] = Answer(fault=TIMEOUT, said="no answer within 3 s")
    assert ask(box).state is State.WARN
    assert ask(box, waited=True).state is State.FAIL


@pytest.mark.parametrize(
    ("count", "at_once", "later", "said"),
    [
        (0, State.PASS, State.PASS, "nobody is connected"),
        (2, State.WARN, State.UNKNOWN, "2 connections are open, and it does not tell"),
        (None, State.WARN, State.UNKNOWN, "nor does the kernel"),
    ],
)
def test_open_connections_tell_where_nobody_else_does(
    count: int | None, at_once: State, later: State, said: str
) -> None:
    """P8: a connection may be idle, and nobody knows; a person may accept that with a reason."""
    box = FakeBox(connected={8080: count})
    assert ask(box, OPENAI).state is at_once
    verdict = ask(box, OPENAI, waited=True)
    assert verdict.state is later
    assert said in verdict.found
    check = Busy(recipe=recipe(OPENAI), waited=True)
    accepted = look([check], box, accept={"prod.busy": "a dashboard keeps them open"})
    assert accepted.passed is not None


def test_answers_that_make_no_sense_are_no_answers() -> None:
    """Then connections decide."""
    box = serving({"not": "a list"}, "llamacpp:requests_processing 1e999\n")
    assert ask(box).found == "nobody is connected"
    box.answers[f"{BASE}/v1x/props"] = Answer(200, "[" * 100_000)
    assert ask(box).found == "nobody is connected"
    box.answers[f"{BASE}/v1x/props"] = Answer(200, json.dumps([1]))
    assert ask(box).found == "nobody is connected"
