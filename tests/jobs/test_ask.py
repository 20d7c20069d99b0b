"""Asking: one request, one fresh connection, and a failure is a sample that says why."""

import contextlib
import itertools
import json
from collections.abc import Mapping
from typing import Any

import pytest

from jobs.ask import Asker, send
from jobs.request import Request
from jobs.samples import Sample
from jobs.servers import LlamaCpp, OpenAI
from tests.jobs.pages import Page, Pages, stream

SHORT = Request("candidate/a/t0/1", "candidate", 0.0, "a", text="once", max_tokens=64, seed=7)
LONG = Request(
    "candidate/fill/1", "candidate", 0.0, "fill", fill=0.5, tokens=5000, nonce="n", max_tokens=64
)


def reply(**timings: Any) -> str:
    """A streamed answer of llama-server."""
    last = {
        "content": "", "stop": True, "stop_type": "limit", "truncated": False,
        "timings": {"cache_n": 0, "prompt_n": 1, "prompt_ms": 2.0, "predicted_n": 64,
                    "predicted_ms": 100.0, **timings},
    }  # fmt: skip
    return stream(
        {"content": "", "prompt_progress": {"total": 10, "processed": 5}},
        {"content": "a "},
        {"content": "b"},
        last,
    )


def tokenize(body: Mapping[str, Any]) -> tuple[int, str]:
    """A tokenizer of one token a word, with one more at the beginning."""
    ids = [len(word) for word in body["content"].split()]
    return 200, json.dumps({"tokens": [1, *ids] if body["add_special"] else ids})


def ask(pages: Mapping[str, Page], request: Request = SHORT, **more: Any) -> tuple[Sample, Pages]:
    """Send one request to a server of such pages."""
    with Pages(pages) as server:
        return send(LlamaCpp(), server.url, request, deadline_s=5, **more), server


def test_a_good_reply_is_a_valid_sample() -> None:
    """With the server's raw numbers and our own times."""
    sample, server = ask({"/completion": (200, reply(draft_n=30, draft_n_accepted=20))})
    assert (sample.valid, sample.why) == (True, "")
    assert (sample.predicted_n, sample.predicted_ms, sample.text) == (64, 100.0, "a b")
    assert (sample.drafted, sample.accepted, sample.request) == (30, 20, SHORT.id)
    assert sample.wall_ms is not None
    assert sample.ttft_ms is not None
    assert sample.wall_ms >= sample.ttft_ms > 0
    ((path, body),) = server.asked
    assert path == "/completion"
    assert body["n_predict"] == 64
    assert (body["seed"], body["ignore_eos"], body["cache_prompt"]) == (7, True, False)


def test_each_request_has_a_connection_of_its_own() -> None:
    """A kept one fails now and then, and a silent retry would poison the times."""
    _, server = ask({"/completion": (200, reply())}, api_key="sk-1")
    assert server.headers[0]["connection"] == "close"
    assert server.headers[0]["authorization"] == "Bearer sk-1"


def test_the_environments_proxy_is_never_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A box behind a proxy still has a server on loopback."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    sample, _ = ask({"/completion": (200, reply())})
    assert sample.valid


@pytest.mark.parametrize(
    ("page", "why"),
    [
        ((503, '{"error": {"message": "Loading model"}}'), "Loading model"),
        ((500, "oops"), "status 500: oops"),
        ((200, stream({"error": {"message": "no slot"}})), "no slot"),
        ((200, "error: broken pipe\n"), "broken pipe"),
        ((200, ""), "counted no tokens"),
        ((200, "data: {broken\n\n"), "JSONDecodeError"),
        ((200, reply(predicted_n=0)), "counted no tokens"),
        ((200, stream({"content": "", "timings": {"predicted_n": 4}})), "the answer is empty"),
        ((200, reply().replace('"truncated": false', '"truncated": true')), "truncated the prompt"),
    ],
)
def test_a_failure_is_a_sample_that_says_why(page: Page, why: str) -> None:
    """It is kept, and counts for nothing."""
    sample, _ = ask({"/completion": page})
    assert not sample.valid
    assert why in sample.why


def test_a_server_that_is_gone_is_said() -> None:
    """Refused, not raised."""
    with Pages({}) as server:
        url = server.url
    sample = send(LlamaCpp(), url, SHORT, deadline_s=2)
    assert not sample.valid
    assert "ConnectError" in sample.why


def test_a_silent_server_costs_no_more_than_the_deadline() -> None:
    """A wall-clock limit."""
    import socket

    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        sample = send(LlamaCpp(), url, SHORT, deadline_s=0.2)
    assert not sample.valid
    assert "within 0.2 s" in sample.why
    assert (sample.wall_ms or 0) < 2000


def test_no_time_left_asks_nothing() -> None:
    """A deadline that is over."""
    with Pages({}) as server:
        sample = send(LlamaCpp(), server.url, SHORT, deadline_s=0)
    assert sample.why == "no time left to ask"
    assert server.asked == []


def test_a_long_prompt_is_exactly_as_long_as_planned() -> None:
    """Token ids, so that the server counts what was sent; the same again for the same nonce."""
    told: list[tuple[int, int]] = []
    pages = {"/tokenize": tokenize, "/completion": (200, reply(prompt_n=5000))}
    with Pages(pages) as server:
        asker = Asker(LlamaCpp(), server.url, told=lambda done, total: told.append((done, total)))
        first = asker.send(LONG, deadline_s=5)
        asker.send(LONG, deadline_s=5)
    prompts = [body["prompt"] for path, body in server.asked if path == "/completion"]
    assert [len(prompt) for prompt in prompts] == [5000, 5000]
    assert prompts[0] == prompts[1]
    assert prompts[0][0] == 1
    assert (first.depth, first.filled, first.valid) == (5000, 5000, True)
    tokenized = [body for path, body in server.asked if path == "/tokenize"]
    assert [body["add_special"] for body in tokenized] == [True] + [False] * (len(tokenized) - 1)
    assert tokenized[0]["content"].startswith("Run n.")
    assert told == [(5, 10)] * 2


def test_tokens_that_were_lost_on_the_way_are_noticed() -> None:
    """A silent truncation makes the sample invalid."""
    pages = {"/tokenize": tokenize, "/completion": (200, reply(prompt_n=4096))}
    sample, _ = ask(pages, LONG)
    assert sample.why == "the server took 4096 of 5000 prompt tokens"


@pytest.mark.parametrize(
    ("page", "why"),
    [
        ((404, "{}"), "/tokenize: 404"),
        ((200, '{"tokens": []}'), "no tokens"),
        ((200, "[]"), "/tokenize: 200"),
    ],
)
def test_a_prompt_that_cannot_be_made_is_told(page: Page, why: str) -> None:
    """Before anything is measured."""
    sample, server = ask({"/tokenize": page}, LONG)
    assert why in sample.why
    assert {path for path, _ in server.asked} == {"/tokenize"}


def test_a_server_without_a_tokenizer_is_filled_by_estimate() -> None:
    """One short question tells how many characters a token has."""
    lengths = itertools.count()

    def chat(body: Mapping[str, Any]) -> tuple[int, str]:
        next(lengths)
        words = len(body["messages"][0]["content"]) // 5
        return 200, json.dumps(
            {
                "choices": [{"message": {"content": "x"}}],
                "usage": {"prompt_tokens": words, "completion_tokens": 64},
            }
        )

    with Pages({"/v1/chat/completions": chat}) as server:
        sample = send(OpenAI(), server.url, LONG, deadline_s=5)
    assert sample.valid
    assert sample.depth is None
    assert 0.95 * 5000 < (sample.filled or 0) <= 5000


def test_a_server_that_does_not_count_prompts_cannot_be_filled() -> None:
    """And that is said."""
    with Pages(
        {"/v1/chat/completions": (200, '{"choices": [{"message": {"content": "x"}}]}')}
    ) as server:
        sample = send(OpenAI(), server.url, LONG, deadline_s=5)
    assert "does not count prompt tokens" in sample.why


def test_an_embedding_is_a_reply() -> None:
    """Counted by its prompt."""
    page = (200, '{"data": [{"embedding": [0.1]}], "usage": {"prompt_tokens": 3}}')
    with Pages({"/v1/embeddings": page}) as server:
        good = send(LlamaCpp(serves="embedding"), server.url, SHORT, deadline_s=5)
    assert (good.valid, good.prompt_n) == (True, 3)
    with Pages({"/v1/embeddings": (200, '{"data": [], "usage": {}}')}) as server:
        empty = send(LlamaCpp(serves="embedding"), server.url, SHORT, deadline_s=5)
    assert empty.why == "the answer is empty"


@pytest.mark.parametrize(
    "timings",
    [
        {"predicted_n": float("inf")},
        {"predicted_n": float("nan")},
        {"predicted_n": "many"},
        {"predicted_n": -64},
        {"predicted_n": 10**400},
        {"predicted_n": [64]},
    ],
)
def test_a_count_that_is_none_is_no_fault_of_ours(timings: dict[str, Any]) -> None:
    """Python's JSON reads Infinity and NaN, and a candidate may say what it likes."""
    sample, _ = ask({"/completion": (200, reply(**timings))})
    assert (sample.valid, sample.predicted_n) == (False, None)
    assert sample.why == "the server counted no tokens in its answer"


@pytest.mark.parametrize("ms", [float("nan"), float("inf"), 10**400, "fast"])
def test_a_time_that_is_no_number_is_no_time(ms: Any) -> None:
    """Nothing may be proven by it: every comparison with NaN says no, also "too slow"."""
    sample, _ = ask({"/completion": (200, reply(predicted_ms=ms))})
    assert sample.valid
    assert sample.predicted_ms is None


@pytest.mark.parametrize(
    "body",
    [
        stream({"content": "a", "timings": "none"}),
        stream({"content": "a", "timings": [1]}),
        "data: [1]\n\n",
        'data: {"content": ' + "[" * 100_000 + "\n\n",
    ],
)
def test_an_answer_of_another_shape_is_a_sample_that_says_why(body: str) -> None:
    """Whatever comes, the night goes on with the next request."""
    sample, _ = ask({"/completion": (200, body)})
    assert not sample.valid
    assert sample.why


def test_more_tokens_than_were_asked_for_are_not_believed() -> None:
    """64 were asked for; a last draft may pass that by a few."""
    sample, _ = ask({"/completion": (200, reply(predicted_n=80))})
    assert sample.valid
    sample, _ = ask({"/completion": (200, reply(predicted_n=4096))})
    assert sample.why == "the server counted 4096 tokens where 64 were asked for"


def test_an_error_of_null_is_no_error() -> None:
    """Some servers send the key with every answer."""
    body = reply().replace('"stop": true', '"stop": true, "error": null')
    sample, _ = ask({"/completion": (200, body)})
    assert (sample.valid, sample.why) == (True, "")


@pytest.mark.parametrize("written", ["\u2028", "\u2029", "\x85", "\x1c", "\r"])
def test_a_line_separator_in_an_answer_is_text(written: str) -> None:
    """Servers send them as they are, and only a line feed ends an event."""
    shown = "\\r" if written == "\r" else written
    page = f'data: {{"content": "one{shown}two"}}\n\n{reply()}'.replace("\x1c", "\\u001c")
    sample, _ = ask({"/completion": (200, page)})
    assert (sample.valid, sample.text) == (True, f"one{written}twoa b")


def test_half_a_character_is_no_fault_of_ours() -> None:
    """A token may be half of an emoji: two halves are one, and one alone can be written down."""
    halves = stream({"content": "\ud83d"}, {"content": "\ude00"}, {"content": "\ud83d"})
    sample, _ = ask({"/completion": (200, halves + reply())})
    assert sample.valid
    assert sample.text == "\N{GRINNING FACE}\N{REPLACEMENT CHARACTER}a b"
    assert sample.text.encode()


def test_a_server_that_only_pings_is_as_late_as_a_silent_one() -> None:
    """The comments that keep a connection open are no answer."""
    import socket
    import threading

    def pinging(listening: socket.socket) -> None:
        peer, _ = listening.accept()
        with peer, contextlib.suppress(OSError):
            peer.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            for _ in itertools.count():
                peer.sendall(b": ping\n\n" * 1000)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=pinging, args=[listening], daemon=True).start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        sample = send(LlamaCpp(), url, SHORT, deadline_s=0.2)
    assert sample.why == "no whole answer within 0.2 s"


def test_an_endless_answer_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it fills the memory of the box that production needs back."""
    monkeypatch.setattr("jobs.ask._LARGEST", 1 << 20)
    endless = stream({"content": "x" * 1000}) * 2000
    sample, _ = ask({"/completion": (200, endless)})
    assert "larger than 1 MiB" in sample.why


def test_tokens_that_are_no_numbers_make_no_prompt() -> None:
    """Some servers send the pieces with them."""
    page = (200, '{"tokens": [{"id": 1}]}')
    sample, _ = ask({"/tokenize": page}, LONG)
    assert sample.why == "/tokenize: its tokens are no numbers"


def test_a_server_that_hardly_counts_cannot_be_filled() -> None:
    """One token for a page of text would make a prompt of gigabytes."""
    said = {"choices": [{"message": {"content": "x"}}], "usage": {"prompt_tokens": 1}}
    with Pages({"/v1/chat/completions": (200, json.dumps(said))}) as server:
        sample = send(OpenAI(), server.url, LONG, deadline_s=5)
    assert sample.why == "the server counts 1 tokens in 10000 characters"
