"""Any server with the OpenAI API: asked by its own words, counted by its own usage."""

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from jobs.evidence import number, of
from jobs.servers import KINDS, AnyServer, OpenAI, no_kind
from jobs.servers.base import Command
from tests.jobs.pages import Pages


def test_readiness_is_a_counted_answer_of_the_named_model() -> None:
    """A list of models alone is no readiness: some list them while they still load."""
    server = OpenAI(port=8000, served_model_name="qwen", health="/ping")
    probe = server.ready()
    assert (probe["base"], probe["health"]) == ("http://127.0.0.1:8000", "/ping")
    assert probe["identity"] == [
        {"name": "model_id", "path": "/v1/models", "at": ["data", 0, "id"], "want": "qwen", "how": "equals"}
    ]  # fmt: skip
    assert probe["completion"]["path"] == "/v1/chat/completions"
    assert probe["completion"]["counted"] == ["usage", "completion_tokens"]
    assert probe["completion"]["body"]["model"] == "qwen"
    assert probe["greedy"]["body"]["temperature"] == 0.0


def test_without_a_name_the_model_is_only_recorded() -> None:
    """And no request names one."""
    probe = OpenAI(port=8000).ready()
    assert probe["health"] == "/health"
    assert probe["identity"][0]["how"] == "record"
    assert "model" not in probe["completion"]["body"]


@pytest.mark.parametrize(
    ("fields", "path", "at"),
    [
        ({"endpoint": "completions"}, "/v1/completions", ["choices", 0, "text"]),
        ({"serves": "embedding"}, "/v1/embeddings", ["data", 0, "embedding"]),
        ({"serves": "rerank"}, "/v1/rerank", ["results"]),
    ],
)
def test_other_endpoints(fields: dict[str, str], path: str, at: list[Any]) -> None:
    """Plain completions for reasoning models; embeddings and rerankers for what they are."""
    server = OpenAI.model_validate({"port": 1, **fields})
    probe = server.ready()
    assert (probe["completion"]["path"], probe["completion"]["text"]) == (path, at)
    assert server.asked("x", temperature=0, max_tokens=1, seed=1, cached=False).path == path


def test_a_reply_is_counted_by_usage_and_timed_by_timings() -> None:
    """llama-server behind this API sends both; most send only usage."""
    said = {
        "choices": [{"message": {"content": "hi"}, "finish_reason": "length"}],
        "usage": {"prompt_tokens": 19, "completion_tokens": 8, "prompt_tokens_details": {"cached_tokens": 4}},
        "timings": {"prompt_ms": 3.0, "predicted_ms": 2.9, "draft_n": 7, "draft_n_accepted": 4},
    }  # fmt: skip
    answer = OpenAI().answer([said])
    assert (answer.text, answer.prompt_n, answer.cache_n, answer.predicted_n) == ("hi", 15, 4, 8)
    assert (answer.predicted_ms, answer.drafted, answer.accepted) == (2.9, 7, 4)
    del said["timings"]
    assert OpenAI().answer([said]).predicted_ms is None


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ({"choices": [{"message": {"content": None, "reasoning_content": "hm"}}]}, "hm"),
        ({"choices": [{"text": "plain"}]}, "plain"),
        ({"data": [{"embedding": [1.0]}]}, "vector"),
        ({}, ""),
        ("nonsense", ""),
    ],
)
def test_the_text_of_a_reply(said: Any, text: str) -> None:
    """Also of models that think aloud, and of what is no reply at all."""
    assert OpenAI().answer([said]).text == text


def test_what_it_says_of_itself() -> None:
    """Its models, and the context that it allows them (vLLM)."""
    pages = {"/v1/models": (200, '{"data": [{"id": "qwen", "max_model_len": 4096}]}')}
    with Pages(pages) as server:
        found = OpenAI().observe(server.url)
    assert of(found, "model_id")[0].value == "qwen"
    assert number(found, "n_ctx") == 4096
    with Pages({"/v1/models": (200, "[]")}) as server:
        assert OpenAI().observe(server.url) == ()


def test_its_command_is_its_own() -> None:
    """No field becomes a flag, and its log is not understood."""
    server = OpenAI(port=1, command=("/opt/serve", "--port", "1"), args=("-x",), model="/m/a.gguf")
    assert server.command_line().argv == ("/opt/serve", "--port", "1", "-x")
    assert [(file.role, file.path, file.gguf) for file in server.files()] == [
        ("binary", "/opt/serve", False),
        ("weights", "/m/a.gguf", True),
    ]
    assert server.seen(Command(("/opt/serve",))).command == ("/opt/serve",)
    assert server.log_evidence("GGML_ASSERT") == ()
    with pytest.raises(ValueError, match="neither binary nor command"):
        OpenAI(port=1).command_line()
    with pytest.raises(ValueError, match="has no port"):
        OpenAI().url()


def test_kinds_that_are_not_there_are_told_with_those_that_are() -> None:
    """By a later one's name, and by no name at all."""
    assert set(KINDS) == {"llamacpp", "openai"}
    assert "not in this version" in no_kind("vllm")
    assert no_kind("x") == "there is no kind `x`; kinds there are: llamacpp, openai"
    with pytest.raises(ValidationError, match="llamacpp"):
        TypeAdapter(AnyServer).validate_python({"kind": "vllm"})


def test_a_server_has_one_program_and_different_files() -> None:
    """Binary or command; and the projector is not the model."""
    with pytest.raises(ValidationError, match="both binary and command"):
        OpenAI(port=1, binary="/a", command=("/a",))
    for other in ("mmproj", "draft"):
        with pytest.raises(ValidationError, match=f"same file as model and {other}"):
            OpenAI.model_validate({"model": "/a", other: "/a"})


@pytest.mark.parametrize(
    "said",
    [
        [],
        {"choices": {}},
        {"choices": [None]},
        {"choices": [{"message": "hi"}]},
        {"usage": [1]},
        {"usage": {"prompt_tokens_details": 3}},
        {"timings": "none"},
        {"usage": {"prompt_tokens": float("inf"), "completion_tokens": float("nan")}},
    ],
)
def test_an_answer_of_another_shape_counts_nothing(said: Any) -> None:
    """A server may answer what it likes; that is never a fault of ours."""
    answer = OpenAI().answer([said])
    assert (answer.text, answer.prompt_n, answer.predicted_n) == ("", None, None)
