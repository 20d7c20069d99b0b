"""What a server says of itself: nothing it does, or fails to do, holds the one who asks."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from runner.recovery import probe
from tests.runner.recovery.site import Site
from tests.servers import soon


@contextmanager
def answering(*replies: bytes | None) -> Iterator[str]:
    """A server that sends these bytes, one reply a connection; None hangs up without a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(10)

        def serve() -> None:
            for reply in replies:
                connection, _ = listener.accept()
                with connection:
                    connection.recv(65536)
                    if reply is not None:
                        connection.sendall(reply)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join(10)


def ok(said: object) -> bytes:
    """A whole answer."""
    body = json.dumps(said).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


def took(ask: Callable[[], Any]) -> tuple[Any, float]:
    """What came back, and how long that took."""
    began = time.monotonic()
    return ask(), time.monotonic() - began


@pytest.mark.parametrize("way", ["--hang", "--drip"])
def test_a_server_that_never_finishes_its_answer_is_left_at_the_deadline(
    site: Site, way: str
) -> None:
    """It accepts and says nothing, or drips a byte now and then: one deadline for the whole call."""
    child = site.child(site.odd(way, "/health"))
    assert site.listener() == child.pid
    look, seconds = took(lambda: probe.health(site.probe(), within=0.5))
    assert look.state == "silent"
    assert "long" in look.why or "timed out" in look.why
    assert seconds < 2


def test_a_server_that_is_healthy_and_completes_nothing_is_mute(site: Site) -> None:
    """Health alone is no service."""
    child = site.child(site.odd("--hang", "/completion", "--model", str(site.model)))
    assert site.listener() == child.pid
    assert probe.health(site.probe()).serving
    assert probe.serving(site.probe(), within=0.3).state == "mute"


def test_a_proxy_in_the_environment_is_never_asked(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that answers 200 would make a dead production look healthy."""
    with answering(ok({})) as proxy:
        monkeypatch.setenv("http_proxy", proxy)
        monkeypatch.setenv("HTTP_PROXY", proxy)
        assert probe.health(site.probe()).state == "silent"
        probe.fetch(proxy + "/", within=1)


@pytest.mark.parametrize(
    "reply",
    [
        None,
        b"\0\0\0",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 9999999999 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000 + b"\r\n\r\n",
    ],
)
def test_an_answer_that_is_none_is_silence_or_not_json(reply: bytes | None) -> None:
    """Whatever the bytes: a sentence, never a traceback."""
    with answering(reply) as base:
        said = probe.fetch(base + "/health", within=2)
    assert isinstance(said, str) or said.said is None


def test_a_key_that_cannot_be_a_header_is_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key file with bytes that are no text must not end a restore, and is never quoted."""
    path = tmp_path / "key"
    path.write_text("two€")
    asked = {"base": "http://127.0.0.1:1", "api_key": {"file": str(path)}}
    look = probe.health(asked)
    assert look.state == "silent"
    assert "two" not in look.why
    path.write_bytes(b"\xff\xfe")
    assert probe.api_key(asked) is None
    path.write_text("schlüssel")
    assert probe.health(asked).state == "silent"
    monkeypatch.setenv("KEY", "one\ntwo")
    look = probe.health({"base": "http://127.0.0.1:1", "api_key": {"env": "KEY"}})
    assert (look.state, look.why) == ("silent", "/health: the API key cannot be sent")
    asked["base"] = "http://127.0.0.1:port"
    assert probe.health(asked).state == "silent"


def test_a_key_is_read_anew_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a file or the environment, and never kept in the recipe."""
    path = tmp_path / "key"
    path.write_text("first\n")
    asked = {"api_key": {"file": str(path)}}
    assert probe.api_key(asked) == "first"
    path.write_text("second\n")
    assert probe.api_key(asked) == "second"
    path.write_text("# ours\n\nthird\nfourth\n")
    assert probe.api_key(asked) == "third"
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert probe.api_key({"api_key": {"file": "/run/credentials/gone.service/key"}}) == "third"
    monkeypatch.setenv("KEY", "third")
    assert probe.api_key({"api_key": {"env": "KEY"}}) == "third"
    assert probe.api_key({}) is None
    assert probe.api_key({"api_key": {"file": str(tmp_path / "none")}}) is None


@pytest.mark.parametrize(
    ("how", "want", "found", "state"),
    [
        ("equals", 4096, 4096, "serving"),
        ("equals", 4096, 2048, "wrong"),
        ("at_least", 4096, 8192, "serving"),
        ("at_least", 4096, 1024, "wrong"),
        ("at_least", 4096, "many", "wrong"),
        ("record", None, "whatever", "serving"),
        ("equals", 4096, None, "wrong"),
    ],
)
def test_an_identity_is_compared_as_it_was_asked(
    how: str, want: object, found: object, state: str
) -> None:
    """And what was found is recorded either way."""
    question = {"name": "context", "path": "/props", "at": ["n"], "want": want, "how": how}
    with answering(ok({"n": found} if found is not None else {})) as base:
        look = probe.identity({"base": base, "identity": [question]})
    assert look.state == state
    if found is not None:
        assert look.identity == {"context": found}


def test_a_model_that_still_loads_is_loading_whatever_is_asked() -> None:
    """503 is no difference and no silence."""
    busy = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"
    question = {"name": "n", "path": "/props", "at": ["n"], "want": 1, "how": "equals"}
    completion = {"path": "/completion", "body": {}, "counted": ["n"], "text": ["t"]}
    with answering(busy, busy, busy) as base:
        asked = {"base": base, "identity": [question], "completion": completion}
        assert probe.health(asked).state == "loading"
        assert probe.identity(asked).state == "loading"
        assert probe.complete(asked)[0].state == "loading"


@pytest.mark.parametrize(
    ("status", "state"),
    [(401, "locked"), (403, "locked"), (502, "loading"), (504, "loading"), (404, "wrong")],
)
def test_an_answer_that_is_no_identity_is_told_apart(status: int, state: str) -> None:
    """A key we do not have, a proxy whose server is not up yet, a question nobody knows."""
    reply = b"HTTP/1.1 %d No\r\nContent-Length: 0\r\n\r\n" % status
    question = {"name": "n", "path": "/props", "at": ["n"], "want": 1, "how": "equals"}
    with answering(reply) as base:
        assert probe.identity({"base": base, "identity": [question]}).state == state


@pytest.mark.parametrize("said", [{}, {"n": 0, "t": "word"}, {"n": 3, "t": ""}, [], 7, None])
def test_an_answer_with_nothing_in_it_is_no_completion(said: object) -> None:
    """A server may be healthy with no model loaded: only a counted, non-empty answer counts."""
    completion = {"path": "/completion", "body": {}, "counted": ["n"], "text": ["t"]}
    with answering(ok(said)) as base:
        look, text = probe.complete({"base": base, "completion": completion})
    assert (look.state, text) == ("mute", "")


def test_a_server_comes_up_in_its_own_time(site: Site) -> None:
    """Silent, loading, serving."""
    states = [probe.serving(site.probe()).state]
    site.child(site.odd("--load", "0.3", "--model", str(site.model)))

    def serving() -> bool | None:
        states.append(probe.serving(site.probe()).state)
        return True if states[-1] == "serving" else None

    soon(serving)
    assert list(dict.fromkeys(states)) == ["silent", "loading", "serving"]
