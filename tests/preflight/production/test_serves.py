"""Production as it answers: up, down before us, or something else than the config says."""

import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from preflight.box import NOKEY, TIMEOUT, Answer
from preflight.linux.box import LinuxBox
from preflight.production.serves import DOWN_BEFORE, ProductionServes
from preflight.rings import look
from preflight.verdict import State, Verdict
from tests.fakes import FakeBox

BASE = "http://127.0.0.1:8080"
PROPS = {
    "default_generation_settings": {"n_ctx": 65536},
    "total_slots": 1,
    "model_path": "/m/v3.gguf",
    "build_info": "b10434",
}
PROBE: dict[str, Any] = {
    "base": BASE,
    "api_key": None,
    "health": "/health",
    "identity": [
        {
            "path": "/props",
            "at": ["default_generation_settings", "n_ctx"],
            "name": "context",
            "want": 65536,
            "how": "at_least",
        },
        {"path": "/props", "at": ["model_path"], "name": "model_path", "want": "/m/v3.gguf", "how": "equals"},
        {"path": "/props", "at": ["build_info"], "name": "build", "want": None, "how": "record"},
        {"path": "/v1/models", "at": ["data", 0, "id"], "name": "model_id", "want": None, "how": "record"},
    ],
}  # fmt: skip


def a_server(props: object = PROPS, health: int = 200) -> FakeBox:
    """A production that answers."""
    box = FakeBox()
    box.answers_with(f"{BASE}/health", {"status": "ok"}, health)
    box.answers_with(f"{BASE}/props", props)
    box.answers_with(f"{BASE}/v1/models", {"data": [{"id": "v3"}]})
    return box


def ask(box: FakeBox | LinuxBox, probe: dict[str, Any] = PROBE, **more: Any) -> Verdict:
    """The answer about production."""
    return look([ProductionServes(name="llm", probe=probe, **more)], box).verdicts[0]


def test_a_production_as_configured_passes_and_shows_what_it_is() -> None:
    """Every value of its identity is recorded, and each address is asked once."""
    box = a_server()
    verdict = ask(box)
    assert verdict.state is State.PASS
    assert "context: 65536" in verdict.evidence
    assert "model_id: v3" in verdict.evidence
    assert box.asked == [f"{BASE}/health", f"{BASE}/props", f"{BASE}/v1/models"]


def test_nothing_is_ever_generated() -> None:
    """It may be busy with somebody's long prompt; a completion would wait behind it."""
    box = a_server()
    ask(box, {**PROBE, "completion": {"path": "/completion", "body": {}}})
    assert not any("completion" in url for url in box.asked)


def test_a_production_that_was_down_is_told_as_such() -> None:
    """It may be down on purpose: nothing is started, and the reason is for machines too."""
    verdict = ask(FakeBox())
    assert verdict.state is State.FAIL
    assert DOWN_BEFORE in verdict.evidence
    assert "is down: nothing listens there" in verdict.found


@pytest.mark.parametrize(
    ("answer", "state", "said", "down"),
    [
        (Answer(503, '{"error":"Loading model"}'), State.FAIL, "Loading model", True),
        (Answer(500, ""), State.FAIL, "says 500", True),
        (Answer(404, ""), State.FAIL, "says 404", False),
        (Answer(401, ""), State.UNKNOWN, "wants an API key", False),
        (Answer(fault=TIMEOUT, said="no answer within 15 s"), State.UNKNOWN, "(timeout)", False),
        (Answer(fault="EPROTO", said="no HTTP answer"), State.UNKNOWN, "no HTTP answer", False),
        (Answer(fault="ECONNRESET", said="reset"), State.UNKNOWN, "ECONNRESET", False),
    ],
)
def test_each_way_of_not_being_well(answer: Answer, state: State, said: str, down: bool) -> None:
    """Loading, broken, guarded, hung and no web server at all."""
    box = a_server()
    box.answers[f"{BASE}/health"] = answer
    verdict = ask(box)
    assert verdict.state is state
    assert said in verdict.found
    assert (DOWN_BEFORE in verdict.evidence) is down


def test_a_mismatch_names_both_values() -> None:
    """What runs is not what the config says: one of the two is wrong."""
    props = {**PROPS, "default_generation_settings": {"n_ctx": 4096}, "model_path": "/m/v2.gguf"}
    verdict = ask(a_server(props))
    assert verdict.state is State.FAIL
    assert "context is 4096, config says at least 65536" in verdict.found
    assert "model_path is /m/v2.gguf, config says /m/v3.gguf" in verdict.found


@pytest.mark.parametrize("props", [{}, [], "text", None, {"default_generation_settings": 5}])
def test_an_expectation_that_is_not_told_is_unknown(props: object) -> None:
    """P8: a server that does not say its context has not proven it."""
    verdict = ask(a_server(props))
    assert verdict.state is State.UNKNOWN
    assert "context is not told by GET /props" in verdict.found


def test_what_is_only_recorded_may_be_missing() -> None:
    """An OpenAI-compatible server without /props is still a server."""
    box = a_server()
    box.answers[f"{BASE}/v1/models"] = Answer(404)
    verdict = ask(box)
    assert verdict.state is State.PASS
    assert not any(said.startswith("model_id") for said in verdict.evidence)


def test_the_gate_sees_another_identity() -> None:
    """The fingerprint is what it answered."""
    one, other = ask(a_server()), ask(a_server({**PROPS, "build_info": "b10435"}))
    assert one.state is other.state is State.PASS
    assert one.seen != other.seen


# over a real socket


class _Handler(http.server.BaseHTTPRequestHandler):
    """A server with a key, a slow corner and an endless one."""

    release = threading.Event()

    def do_GET(self) -> None:
        """Answer one question."""
        if self.path == "/slow":
            self.release.wait(30)
            return
        if self.headers.get("Authorization") != "Bearer s3cret":
            self.send_error(401)
            return
        body = json.dumps({"ok": self.path}).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Be quiet."""


@pytest.fixture
def url() -> Iterator[str]:
    """The address of a real server, up for one test."""
    _Handler.release.clear()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            _Handler.release.set()
            server.shutdown()
            thread.join()


def test_a_key_is_read_where_it_lies(
    url: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a file or the environment, without ever crossing a pipe or an argument list."""
    key = tmp_path / "key"
    key.write_text("s3cret\n")
    monkeypatch.setenv("LLM_KEY", "s3cret")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with LinuxBox() as box:
        assert box.ask(f"{url}/health", within=5).status == 401
        assert box.ask(f"{url}/health", within=5, key={"file": str(key)}).status == 200
        answer = box.ask(f"{url}/a?b=1", within=5, key={"env": "LLM_KEY"})
        assert json.loads(answer.body) == {"ok": "/a?b=1"}
        assert box.ask(f"{url}/x", within=5, key={"env": "NO_SUCH_KEY"}).fault == NOKEY
        verdict = ask(box, {"base": url, "api_key": {"file": str(tmp_path / "no")}})
        assert verdict.state is State.UNKNOWN
        assert "the API key cannot be read: No such file" in verdict.found


def test_a_server_that_does_not_answer_costs_its_deadline_and_no_more(url: str) -> None:
    """Unknown, naming the limit."""
    probe = {"base": url, "health": "/slow"}
    with LinuxBox() as box:
        check = ProductionServes(name="llm", probe=probe, deadline_s=0.3)
        verdict = look([check], box).verdicts[0]
        assert box.ask("http://127.0.0.1:1/", within=5).fault == "ECONNREFUSED"
        assert box.ask("nonsense", within=5).fault
    assert verdict.state is State.UNKNOWN
    assert "timeout" in verdict.found
    assert verdict.took_ms < 3000


def test_a_sleeping_server_is_not_woken() -> None:
    """It serves; what it holds of the GPU now is not what it needs. Only what wakes nobody is asked."""
    box = a_server({**PROPS, "is_sleeping": True})
    verdict = ask(box)
    assert verdict.state is State.WARN
    assert "serves, and sleeps" in verdict.found
    assert verdict.seen
    assert {url.removeprefix(BASE) for url in box.asked} == {"/health", "/props", "/v1/models"}


def test_a_router_is_no_production() -> None:
    """It answers for whatever model somebody asks for, and loads it then."""
    verdict = ask(a_server({"role": "router", "model_path": "none"}))
    assert verdict.state is State.FAIL
    assert "is a router that loads models for whoever asks" in verdict.found
    assert "behind it" in verdict.remedy


def test_an_identity_behind_an_api_key_is_unknown() -> None:
    """/health is public and says yes; everything else wants a key."""
    box = a_server()
    box.answers[f"{BASE}/props"] = Answer(401, '{"error":{"message":"Invalid API Key"}}')
    verdict = ask(box)
    assert verdict.state is State.UNKNOWN
    assert "401: it wants an API key" in verdict.found


def test_an_unknown_identity_is_never_accepted() -> None:
    """Nobody could tell afterwards whether it came back."""
    box = a_server()
    box.answers[f"{BASE}/props"] = Answer(401)
    check = ProductionServes(name="llm", probe=PROBE)
    assert look([check], box, accept={"prod.identity": "trust me"}).passed is None
