"""The stand-in server misbehaves exactly as told, and otherwise answers as llama-server does."""

import json
import os
import re
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from preflight.linux import proc
from runner.demo import models
from tests.servers import PINNED, STANDIN, Child, llama_server, needs_llama_server, soon

Start = Callable[..., Child]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A file that begins like a model; the stand-in looks no further."""
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF" + bytes(1000))
    return path


@pytest.fixture
def standin(tmp_path: Path, model: Path, request: pytest.FixtureRequest) -> Start:
    """Start a stand-in with these flags; it ends with the test."""

    def start(*flags: str) -> Child:
        child = Child((*STANDIN, "-m", str(model), *flags), tmp_path / "server.log")
        request.addfinalizer(lambda: child.__exit__(None, None, None))
        return child

    return start


def counter(child: Child, name: str) -> float:
    """One of llama-server's counters."""
    found = re.search(rf"^llamacpp:{name} (\S+)$", child.get("/metrics").text, re.MULTILINE)
    assert found
    return float(found[1])


def child_of(child: Child) -> int:
    """The pid of the process that it left somewhere."""
    found = soon(lambda: re.search(r"child (\d+)", child.log()))
    return int(found[1])


def test_answers_503_while_loading_and_serves_afterwards(standin: Start) -> None:
    """As llama-server does, it has the port long before it has a model."""
    server = standin("--load-seconds", "0.3")
    server.until_status("/health", 503)
    assert server.status("/v1/models") == 503
    assert server.get("/props").json()["error"]["message"] == "Loading model"
    server.ready()
    assert server.get("/health").json() == {"status": "ok"}
    assert server.complete(n=8)["timings"]["predicted_n"] == 8


def test_drafts_are_counted_alike_in_replies_metrics_and_log(standin: Start) -> None:
    """The sum over the replies is the difference of the counters, as on the real server."""
    server = standin("--spec-type", "draft-mtp", "--metrics").ready()
    timings = [server.complete(prompt, 100)["timings"] for prompt in ("one two", "three")]
    drafted = sum(each["draft_n"] for each in timings)
    accepted = sum(each["draft_n_accepted"] for each in timings)
    assert 0 < accepted < drafted
    assert counter(server, "spec_decode_num_draft_tokens_total") == drafted
    assert counter(server, "spec_decode_num_accepted_tokens_total") == accepted
    assert counter(server, "tokens_predicted_total") == 200
    drafts = counter(server, "spec_decode_num_drafts_total")
    assert drafts <= drafted <= 3 * drafts
    said = re.findall(r"\( +(\d+) accepted / +(\d+) generated\)", server.log())
    assert sum(int(each[1]) for each in said) == drafted
    assert server.get("/slots").json()[0]["speculative"] is True


def test_no_mtp_takes_the_flag_and_counts_nothing(standin: Start) -> None:
    """Configuration is not evidence: the flag is there, and no draft is ever made."""
    server = standin("--spec-type", "draft-mtp", "--metrics", "--no-mtp").ready()
    assert "draft_n" not in server.complete()["timings"]
    assert counter(server, "spec_decode_num_draft_tokens_total") == 0
    assert server.get("/slots").json()[0]["speculative"] is False


def test_greedy_text_depends_on_the_prompt_alone(standin: Start) -> None:
    """The same question has the same answer at temperature 0, and not above."""
    server = standin().ready()
    assert server.complete("a b")["content"] == server.complete("a b")["content"]
    warm = [server.complete("a b", temperature=0.7)["content"] for _ in range(2)]
    assert warm[0] != warm[1]


def test_prompts_can_be_tokens_and_are_cached(standin: Start) -> None:
    """Token ids count exactly; what is cached is not counted as work."""
    server = standin().ready()
    tokens = server.post("/tokenize", content="here are four words").json()["tokens"]
    assert len(tokens) == 4
    first = server.complete(tokens * 50)["timings"]
    again = server.complete(tokens * 50)["timings"]
    cold = server.complete(tokens * 50, cache_prompt=False)["timings"]
    assert (first["cache_n"], first["prompt_n"]) == (0, 200)
    assert (again["cache_n"], again["prompt_n"]) == (199, 1)
    assert (cold["cache_n"], cold["prompt_n"]) == (0, 200)


def test_context_is_padded_shared_and_enforced(standin: Start) -> None:
    """The slots divide what was asked; a longer prompt is refused by its numbers."""
    server = standin("-c", "2000", "-np", "2").ready()
    assert server.get("/props").json()["default_generation_settings"]["n_ctx"] == 1024
    assert [slot["n_ctx"] for slot in server.get("/slots").json()] == [1024, 1024]
    refused = server.post("/completion", prompt=[1] * 1025, n_predict=1)
    assert refused.status_code == 400
    assert refused.json()["error"]["n_ctx"] == 1024


def test_openai_paths_answer_in_their_own_form(standin: Start) -> None:
    """Chat and completion carry choices and usage."""
    server = standin("-a", "tiny").ready()
    ask = {"messages": [{"role": "user", "content": "say two words"}], "max_tokens": 5}
    chat = server.post("/v1/chat/completions", **ask).json()
    assert chat["model"] == "tiny"
    assert chat["usage"] == {
        "completion_tokens": 5,
        "prompt_tokens": 3,
        "total_tokens": 8,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    assert len(chat["choices"][0]["message"]["content"].split()) == 5
    text = server.post("/v1/completions", prompt="a", max_tokens=5).json()
    assert len(text["choices"][0]["text"].split()) == 5


def test_openai_only_has_no_counters(standin: Start) -> None:
    """A server of another make: no /props, no /metrics, no timings."""
    server = standin("--openai-only", "--metrics").ready()
    assert [server.status(path) for path in ("/props", "/slots", "/metrics")] == [404] * 3
    assert "timings" not in server.post("/v1/completions", prompt="a", max_tokens=5).json()


def events(child: Child, **body: Any) -> list[dict[str, Any]]:
    """The events of a streamed completion."""
    lines = child.post("/completion", stream=True, **body).text.splitlines()
    return [json.loads(line.removeprefix("data: ")) for line in lines if line]


def test_completion_streams_progress_words_and_timings(standin: Start) -> None:
    """A reader of the stream can watch the prompt, and has the counts at the end."""
    server = standin().ready()
    *words, last = events(server, prompt=[7] * 3000, n_predict=4, return_progress=True)
    progress = [each["prompt_progress"]["processed"] for each in words if "prompt_progress" in each]
    assert progress == [0, 3000]
    assert len("".join(each["content"] for each in words).split()) == 4
    assert last["stop"] is True
    assert last["timings"]["prompt_n"] == 3000
    assert last["timings"]["predicted_n"] == 4


def test_refusal_of_a_stream_is_an_error_of_its_own(standin: Start) -> None:
    """A prompt that is too long is refused before the stream begins."""
    refused = standin("-c", "256").ready().post("/completion", prompt=[1] * 300, stream=True)
    assert refused.status_code == 400
    assert refused.json()["error"]["type"] == "exceed_context_size_error"


def test_embeds(standin: Start) -> None:
    """A production may be an embedding service."""
    answer = standin().ready().post("/v1/embeddings", input="two words").json()
    assert answer["usage"]["prompt_tokens"] == 2
    assert answer["data"][0]["embedding"]


def keys(value: object, at: str = "") -> set[str]:
    """Every path of keys in a JSON value; lists by their first item."""
    if isinstance(value, dict):
        return {at} | {key for name, inner in value.items() for key in keys(inner, f"{at}/{name}")}
    if isinstance(value, list) and value:
        return keys(value[0], f"{at}/0")
    return {at}


@pytest.mark.real
@needs_llama_server
def test_answers_in_the_shapes_of_the_real_one(standin: Start, tmp_path: Path) -> None:
    """Whatever the stand-in says, the real llama-server says under the same keys."""
    (path,) = models.write("mtp", tmp_path / "real.gguf")
    speculate = ("--spec-type", "draft-mtp", "--metrics", "-np", "1", "-c", "4096")
    argv = (str(llama_server()), "-m", str(path), "-t", "2", *speculate)
    standing_in = standin(*speculate).ready()
    chat = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 20}
    prompt = {"prompt": "one two three", "n_predict": 20, "temperature": 0.0}
    stream = {**prompt, "return_progress": True}
    with Child(argv, tmp_path / "real.log", PINNED) as real:
        real.ready()
        for ask in (
            lambda server: server.get("/health").json(),
            lambda server: server.get("/props").json(),
            lambda server: server.get("/slots").json(),
            lambda server: server.get("/v1/models").json(),
            lambda server: server.post("/tokenize", content="one two").json(),
            lambda server: server.post("/completion", **prompt).json(),
            lambda server: server.post("/v1/completions", prompt="a", max_tokens=20).json(),
            lambda server: server.post("/v1/chat/completions", **chat).json(),
            lambda server: events(server, **stream)[0],
            lambda server: events(server, **stream)[-2],
            lambda server: events(server, **stream)[-1],
        ):
            assert keys(ask(standing_in)) <= keys(ask(real))
        names = [
            {line.split()[2] for line in server.get("/metrics").text.splitlines() if "TYPE" in line}
            for server in (standing_in, real)
        ]
        assert names[0] <= names[1]


def test_key_is_wanted_where_llama_server_wants_it(standin: Start) -> None:
    """Health and models are public; the rest is not."""
    server = standin("--api-key", "secret").ready()
    assert [server.status(path) for path in ("/v1/models", "/props")] == [200, 401]
    key = {"Authorization": "Bearer secret"}
    assert httpx.get(f"http://127.0.0.1:{server.port}/props", headers=key).status_code == 200


def test_metrics_need_their_flag(standin: Start) -> None:
    """501 tells that the server has no metrics, not that it is ill."""
    assert standin().ready().status("/metrics") == 501


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "failed to open GGUF file"),
        (b"", "failed to open GGUF file"),
        (b"<html>", "invalid magic characters: '<htm', expected 'GGUF'"),
    ],
)
def test_bad_model_ends_it_with_llama_servers_words(
    standin: Start, model: Path, content: bytes | None, said: str
) -> None:
    """The reason is in the log, and the exit code is 1 as for everything."""
    model.unlink() if content is None else model.write_bytes(content)
    server = standin()
    assert server.exit_code() == 1
    assert said in server.log()
    assert "exiting due to model loading error" in server.log()


def test_missing_shard_and_missing_draft_end_it(tmp_path: Path, standin: Start) -> None:
    """All files of the command are opened, and the missing one is named."""
    for number in (1, 2):
        (tmp_path / f"m-0000{number}-of-00003.gguf").write_bytes(b"GGUF")
    server = standin("-m", str(tmp_path / "m-00001-of-00003.gguf"))
    assert server.exit_code() == 1
    assert f"'{tmp_path}/m-00003-of-00003.gguf' (No such file" in server.log()
    server = standin("-md", str(tmp_path / "draft.gguf"))
    assert server.exit_code() == 1
    assert "failed to load draft model" in server.log()


def test_maps_its_model_like_the_real_one(standin: Start, model: Path) -> None:
    """Weights deleted under a running server show as deleted, and it goes on serving."""
    server = standin().ready()
    model.unlink()
    maps = Path(f"/proc/{server.pid}/maps").read_text()
    assert f"{model} (deleted)" in maps
    assert server.complete()["content"]


def test_taken_port_ends_it(standin: Start, tmp_path: Path, model: Path) -> None:
    """The second server on a port says so and goes."""
    first = standin().ready()
    with Child((*STANDIN, "-m", str(model)), tmp_path / "second.log", port=first.port) as second:
        assert second.exit_code() == 1
        assert f"couldn't bind HTTP server socket, hostname: 127.0.0.1, port: {first.port}" in (
            second.log()
        )
    assert first.status("/health") == 200


def test_idle_server_ends_with_zero_on_term(standin: Start) -> None:
    """TERM is an orderly end."""
    server = standin().ready()
    server.term()
    assert server.exit_code() == 0


def test_term_while_loading_kills(standin: Start) -> None:
    """Handlers come with readiness: until then the signal ends the process at once."""
    server = standin("--never-ready")
    server.until_status("/health", 503)
    server.term()
    assert server.exit_code() == -signal.SIGTERM


def test_ignore_term_lives_until_killed(standin: Start) -> None:
    """Neither TERM nor INT ends it."""
    server = standin("--ignore-term").ready()
    server.term()
    server.process.send_signal(signal.SIGINT)
    soon(lambda: "ignoring 2" in server.log() or None)
    assert server.complete()["content"]


def test_term_needs_two_ends_with_one_on_the_second(standin: Start) -> None:
    """The first TERM changes nothing, the second ends it with the exit code 1."""
    server = standin("--term-needs-two").ready()
    server.term()
    assert server.complete()["content"]
    server.term()
    assert server.exit_code() == 1


def test_held_request_keeps_the_process_after_the_port_is_free(standin: Start) -> None:
    """TERM with a request in flight: nobody listens any more, and the process is still there."""
    server = standin("--hold-request", "wait").ready()
    gone = threading.Event()

    def ask() -> None:
        with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=1.0) as client:
            try:
                client.post("/completion", json={"prompt": "please wait", "n_predict": 5})
            except httpx.TimeoutException:
                gone.set()

    asking = threading.Thread(target=ask)
    asking.start()
    soon(lambda: server.get("/slots").json()[0]["is_processing"] or None)
    server.term()
    soon(lambda: True if server.status("/health") is None else None)
    assert not gone.is_set()
    assert server.process.poll() is None
    assert server.exit_code() == 0
    asking.join()
    assert gone.is_set()


@pytest.mark.parametrize(
    "flags",
    [("--die-on-load",), ("--load-seconds", "0.1", "--die-on-load"), ("--die-after", "0.1")],
)
def test_dies_when_told(standin: Start, flags: tuple[str, ...]) -> None:
    """It ends with 1 and without a word of why."""
    server = standin(*flags)
    assert server.exit_code() == 1
    assert " E " not in server.log()


def test_dies_at_the_ordered_request(standin: Start) -> None:
    """A candidate may pass its readiness and die in its work."""
    server = standin("--die-at-request", "2").ready()
    server.complete()
    with pytest.raises(httpx.TransportError):
        server.complete()
    assert server.exit_code() == 1


def test_never_ready_stays_at_503(standin: Start) -> None:
    """Nothing but a deadline ends the wait for it."""
    server = standin("--never-ready")
    server.until_status("/health", 503)
    assert server.status("/completion") == 503


def test_fatal_line_is_logged_and_the_process_lives(standin: Start) -> None:
    """The log tells what no status does."""
    server = standin("--fatal-line", "cudaMalloc failed: out of memory")
    soon(lambda: "cudaMalloc failed" in server.log() or None)
    assert " E srv    load_model: cudaMalloc failed: out of memory" in server.log()
    assert server.status("/health") == 503


def test_models_answer_while_loading(standin: Start) -> None:
    """A 200 on one path is no sign of a model."""
    server = standin("--never-ready", "--models-200-while-loading")
    server.until_status("/v1/models", 200)
    assert server.status("/health") == 503


def test_health_only_fails_completions(standin: Start) -> None:
    """Healthy by its own word, and of no use."""
    server = standin("--health-only")
    server.until_status("/health", 200)
    assert server.post("/completion", prompt="a").status_code == 500


def test_slow_takes_its_time(standin: Start) -> None:
    """The speed that it reports is the time that it took."""
    timings = standin("--slow", "100").ready().complete(n=20)["timings"]
    assert timings["predicted_ms"] == pytest.approx(200)


def test_wrong_model_and_shrunk_context_show_in_props(standin: Start) -> None:
    """What runs is not what was asked, and only the answers tell."""
    props = standin("-c", "8192", "--wrong-model", "--shrink-ctx", "4096").ready().get("/props")
    assert props.json()["model_path"] == "/models/another.gguf"
    assert props.json()["default_generation_settings"]["n_ctx"] == 4096


def test_spawned_child_escapes_the_family(standin: Start) -> None:
    """It has another session, another parent and no environment, and it lives on."""
    server = standin("--spawn-child").ready()
    pid = child_of(server)
    try:
        stat = proc.stat(pid)
        assert stat is not None
        assert stat.session != server.pid
        assert stat.ppid != server.pid
        assert Path(f"/proc/{pid}/environ").read_bytes() == b""
        server.term()
        assert server.exit_code() == 0
        assert proc.ident(pid) is not None
    finally:
        os.kill(pid, signal.SIGKILL)


def test_left_child_stays_in_the_family_and_outlives_it(standin: Start) -> None:
    """The orphaned engine: the port is free, and something still lives."""
    server = standin("--leave-child-on-exit").ready()
    pid = child_of(server)
    try:
        server.term()
        assert server.exit_code() == 0
        stat = proc.stat(pid)
        assert stat is not None
        assert stat.session == server.pid
    finally:
        os.kill(pid, signal.SIGKILL)


def test_version_and_unknown_flags_are_no_problem(standin: Start) -> None:
    """A real command line, with flags that mean nothing here, is served all the same."""
    server = standin("-ngl", "all", "-fit", "off", "-ctk", "f16", "-t", "2", "-lv", "4").ready()
    assert server.get("/props").json()["build_info"] == "stand-in"
