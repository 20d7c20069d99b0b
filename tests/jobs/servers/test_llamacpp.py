"""llama-server: its command line, its readiness, its log and its pages; texts are of real servers."""

import re
import time
from pathlib import Path

import pytest

from jobs.evidence import Evidence, metrics_delta, number, of
from jobs.fields import SecretRef
from jobs.servers import LlamaCpp
from jobs.servers.base import Command
from jobs.servers.llamacpp_log import FATAL
from tests.jobs.pages import Pages

LOGS = Path(__file__).parents[1] / "logs"
LIVE = Command(
    ("/opt/llama-server", "-m", "a.gguf", "-c", "8192", "-np", "2", "--port", "8080", "-md", "/d.gguf"),
    {"LLAMA_ARG_HOST": "::1"},
    "/models",
)  # fmt: skip


def log(name: str, kind: str = "candidate") -> tuple[Evidence, ...]:
    """What the log of a real server says."""
    return LlamaCpp().log_evidence((LOGS / f"{name}.log").read_text(), arm=kind)


def test_fields_are_expectations_until_the_live_command_is_seen() -> None:
    """With systemd the unit owns the command line."""
    server = LlamaCpp(port=8080)
    with pytest.raises(ValueError, match="neither binary nor command"):
        server.command_line()
    seen = server.seen(LIVE)
    assert (seen.model, seen.draft, seen.context, seen.host) == ("a.gguf", "/d.gguf", 4096, "::1")
    assert seen.command_line().argv == LIVE.argv
    assert server.context is None


def test_files_are_named_by_the_whole_path() -> None:
    """The program, the weights, the draft; relative ones from the server's directory."""
    named = {file.role: file.path for file in LlamaCpp(port=1).seen(LIVE).files()}
    assert named == {"binary": "/opt/llama-server", "weights": "/models/a.gguf", "draft": "/d.gguf"}


def test_all_files_of_a_command_line_are_found() -> None:
    """Adapters, templates and keys are opened at start, too."""
    server = LlamaCpp(
        command=("/usr/bin/taskset", "-c", "0", "/opt/s", "--lora", "/a,/b", "--lora", "/c",
                 "--chat-template-file", "/t.jinja", "-mm", "/mm.gguf", "-m", "/m.gguf"),
    )  # fmt: skip
    found = [(file.role, file.path, file.gguf) for file in server.files()]
    assert found == [
        ("binary", "/usr/bin/taskset", False),
        ("binary", "/opt/s", False),
        ("weights", "/m.gguf", True),
        ("mmproj", "/mm.gguf", True),
        ("other", "/a", True),
        ("other", "/b", True),
        ("other", "/c", True),
        ("other", "/t.jinja", False),
    ]


def test_readiness_asks_for_health_identity_and_a_counted_answer() -> None:
    """A router has no slots; a shrunken context is not the one that was asked for."""
    probe = LlamaCpp(port=8080, binary="/s", model="/m.gguf", context=4096).ready()
    assert probe["base"] == "http://127.0.0.1:8080"
    assert probe["health"] == "/health"
    assert [(row["name"], row["how"], row["want"]) for row in probe["identity"]] == [
        ("slots", "at_least", 1),
        ("context", "at_least", 4096),
        ("model_path", "equals", "/m.gguf"),
        ("build", "record", None),
    ]
    assert probe["completion"]["counted"] == ["timings", "predicted_n"]
    assert probe["greedy"]["body"]["temperature"] == 0.0
    assert 16 <= probe["greedy"]["body"]["n_predict"] <= 32
    assert probe["api_key"] is None


def test_a_prefix_moves_every_path() -> None:
    """`--api-prefix`."""
    server = LlamaCpp(port=1, command=("/s", "-m", "/m", "--api-prefix", "/llm"))
    probe = server.ready()
    assert probe["health"] == "/llm/health"
    assert probe["identity"][0]["path"] == "/llm/props"
    assert probe["completion"]["path"] == "/llm/completion"
    assert server.asked("x", temperature=0, max_tokens=1, seed=1, cached=False).path == (
        "/llm/completion"
    )
    assert server.tokenize_path == "/llm/tokenize"


@pytest.mark.parametrize(
    ("serves", "path", "text"),
    [
        ("embedding", "/v1/embeddings", ["data", 0, "embedding"]),
        ("rerank", "/v1/rerank", ["results"]),
    ],
)
def test_servers_without_text_are_counted_by_their_prompts(
    serves: str, path: str, text: list[str]
) -> None:
    """An embedding is an answer, too; there is no greedy text to compare."""
    server = LlamaCpp.model_validate({"port": 1, "serves": serves, "binary": "/s"})
    probe = server.ready()
    assert (probe["completion"]["path"], probe["completion"]["text"]) == (path, text)
    assert probe["greedy"] is None
    asked = server.asked("x", temperature=0, max_tokens=1, seed=1, cached=False)
    assert (asked.path, asked.streams) == (path, False)


def test_a_key_is_named_and_never_told() -> None:
    """Neither in the command line nor in a repr."""
    server = LlamaCpp(port=1, binary="/s", model="/m", api_key=SecretRef(file="/etc/key"))
    assert server.command_line().argv[-2:] == ("--api-key-file", "/etc/key")
    assert server.ready()["api_key"] == {"file": "/etc/key"}
    from_env = LlamaCpp(port=1, binary="/s", model="/m", api_key=SecretRef(env="LLAMA_API_KEY"))
    assert "--api-key-file" not in from_env.command_line().argv
    assert from_env.ready()["api_key"] == {"env": "LLAMA_API_KEY"}


def test_unset_fields_add_nothing() -> None:
    """A command comes back as it was written."""
    argv = ("/s", "-m", "/m", "-c", "1", "--port", "8080")
    assert LlamaCpp(port=8080, command=argv).command_line().argv == argv


@pytest.mark.parametrize(
    "line",
    [
        "E srv         start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 18190",
        "E llama_model_load: error loading model: CLIP cannot be used as main model",
        "E srv    load_model: failed to load draft model, '/nope/draft.gguf'",
        "E srv    load_model: failed to create MTP context",
        "E srv    load_model: failed to load multimodal model, '/m'",
        "E llama_init_from_model: quantized V cache requires flash_attn to be enabled",
        "error: invalid argument: --no-such-flag",
        'error while handling argument "--spec-type": unknown speculative type: draft-mpt',
        "ggml_cuda: CUDA error: out of memory",
        "GGML_ASSERT(x) failed",
        "E srv  llama_server: exiting due to model loading error",
        "E cmn  common_init_: failed to load model 'mmproj-tiny.gguf'",
    ],
)
def test_fatal_lines_end_the_wait(line: str) -> None:
    """Each of them was followed by the end of a server."""
    assert LlamaCpp.is_fatal(line)


@pytest.mark.parametrize(
    "line",
    [
        "E common_fit_params: encountered an error while trying to fit params: failed to load model",
        "W srv    load_model: [spec] failed to measure draft model memory: failed to load model",
        "AMX is not ready to be used!",
        "W srv  llama_server: CORS is set to allow all origins ('*') and no API key is set",
        "I srv  llama_server: model loaded",
    ],
)
def test_lines_that_only_look_fatal_do_not(line: str) -> None:
    """The server goes on after them."""
    assert not LlamaCpp.is_fatal(line)


def test_failing_servers_are_noticed_by_their_logs() -> None:
    """Every failed start of the collection has a fatal line; no good one has."""
    assert of(log("fatal"), "log.fatal")
    assert of(log("no_mtp_layers"), "log.fatal")
    for name in ("mtp", "plain_on_mtp_model", "context_over_train"):
        assert not of(log(name), "log.fatal")


def test_the_log_of_a_drafting_server() -> None:
    """Its implementation, its limit, and how many tokens it drafted since its start."""
    found = log("mtp")
    assert number(found, "log.statistics.draft-mtp") == 532
    assert number(found, "log.speculation.n_max") == 3
    assert [item.value for item in of(found, "log.acceptance")] == [248, 237, 47]
    assert of(found, "log.speculation.rollback")
    assert not of(found, "log.speculation.off")
    assert of(found, "log.statistics.draft-mtp")[0].said.startswith("0.00.592.390 I spec")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("no_mtp_layers", "log.speculation.no_mtp"),
        ("plain_on_mtp_model", "log.speculation.mtp_unused"),
        ("context_over_train", "log.context.capped"),
    ],
)
def test_suspicious_lines_are_kept_word_for_word(name: str, kind: str) -> None:
    """They speak against a claim, on a server that is up."""
    (first, *_) = of(log(name), kind)
    assert first.said in (LOGS / f"{name}.log").read_text()
    assert first.source == "log:candidate.log"


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("W speculative decoding not supported by this context", "log.speculation.off"),
        ("E failed to initialize speculative decoding context: x", "log.speculation.off"),
        ("I spec common_specu: no implementations specified for speculative decoding", "log.speculation.off"),
        ("W synthetic speculative acceptance is enabled for benchmarking", "log.speculation.synthetic"),
        ("I srv load_model: speculative decoding will use checkpoints", "log.speculation.checkpoints"),
        ("W failed to fit params to free device memory", "log.placement.unfitted"),
        ("I srv  llama_server: starting server in router mode", "log.identity.router"),
        ("W swa_full is not supported by this model", "log.context.no_full_swa"),
    ],
)  # fmt: skip
def test_each_suspicious_line_is_tagged(line: str, kind: str) -> None:
    """By what it is about."""
    assert [item.kind for item in LlamaCpp().log_evidence(line)] == [kind]


def test_lines_that_repeat_themselves_are_kept_five_times() -> None:
    """A line a tensor would fill a report."""
    line = "W model has unused tensor blk.4.nextn.enorm.weight (size = 512 bytes) -- ignoring\n"
    assert len(LlamaCpp().log_evidence(line * 100)) == 5


@pytest.mark.parametrize(
    "text",
    [
        "exceeds the training context of the model ",
        "draft acceptance = 0.0 (",
        "adding speculative implementation '",
        "failed to load model ",
        "statistics x: ",
        "x",
    ],
)
def test_a_log_that_is_one_line_is_looked_through_at_once(text: str) -> None:
    """A server that writes megabytes without a line feed; before, ten of them took for ever."""
    began = time.process_time()
    LlamaCpp().log_evidence(text * ((8 << 20) // len(text)))
    assert time.process_time() - began < 5


def test_older_acceptance_lines_are_read() -> None:
    """Until May 2026 they were worded otherwise."""
    found = LlamaCpp().log_evidence(
        "draft acceptance rate = 0.69953 ( 149 accepted / 213 generated)"
    )
    assert [item.value for item in found] == [213]


def test_patterns_are_valid_for_any_reader() -> None:
    """The recovery compiles them by itself."""
    for pattern in FATAL:
        re.compile(pattern)


PROPS = '{"default_generation_settings": {"n_ctx": 2048}, "total_slots": 1, "model_path": "/m", "build_info": "b1"}'
SLOTS = '[{"id": 0, "n_ctx": 2048, "speculative": true}]'


def test_a_server_is_observed_on_its_own_pages() -> None:
    """Context, slots, speculation and counters, each with its source."""
    metrics = (LOGS / "metrics.txt").read_text()
    pages = {"/props": (200, PROPS), "/slots": (200, SLOTS), "/metrics": (200, metrics)}
    with Pages(pages) as server:
        found = LlamaCpp().observe(server.url, "sk-1", arm="baseline")
    assert number(found, "n_ctx", "baseline") == 2048
    assert number(found, "slot.n_ctx", "baseline") == 2048
    assert of(found, "slot.speculative", "baseline")[0].value is True
    assert number(found, "metric.spec_decode_num_draft_tokens_total", "baseline") == 505
    position = 'metric.spec_decode_num_accepted_tokens_per_pos_total{position="1"}'
    assert number(found, position, "baseline") == 76
    assert of(found, "n_ctx", "baseline")[0].said == "default_generation_settings.n_ctx = 2048"
    assert {headers["authorization"] for headers in server.headers} == {"Bearer sk-1"}


def test_a_page_that_is_not_there_is_said() -> None:
    """Nothing is invented for it."""
    with Pages(
        {"/props": (200, PROPS), "/slots": (501, "off"), "/metrics": (501, "Start it")}
    ) as server:
        found = LlamaCpp().observe(server.url)
    assert of(found, "slots.absent")[0].said == "501 off"
    assert of(found, "metrics.absent")[0].said == "501 Start it"
    assert number(found, "n_ctx") == 2048


def test_a_server_that_is_gone_says_nothing() -> None:
    """Three absent pages, and no exception."""
    with Pages({}) as server:
        url = server.url
    found = LlamaCpp().observe(url, deadline_s=2)
    assert [item.kind for item in found] == ["props.absent", "slots.absent", "metrics.absent"]


def test_counters_are_compared_between_two_looks() -> None:
    """What was absent in a first look that had others began at nought."""
    text = (LOGS / "metrics.txt").read_text()
    earlier = "llamacpp:spec_decode_num_draft_tokens_total 5\n"
    with Pages({"/metrics": (200, earlier)}) as server:
        before = LlamaCpp().observe(server.url)
    with Pages({"/metrics": (200, text)}) as server:
        after = LlamaCpp().observe(server.url)
    moved = metrics_delta(before, after)
    assert number(moved, "delta.spec_decode_num_draft_tokens_total") == 500
    assert number(moved, "delta.spec_decode_num_accepted_tokens_total") == 246
    assert of(moved, "delta.spec_decode_num_draft_tokens_total")[0].said.endswith("505 (was 5)")
    assert metrics_delta((), after) == ()


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "1-2", "1e", "1e999", "many"])
def test_a_counter_that_is_no_number_counts_nothing(value: str) -> None:
    """It neither ends the run nor stands in a result, whose JSON knows no NaN."""
    page = f"llamacpp:n_decode_total {value}\nllamacpp:prompt_tokens_total 7\n"
    with Pages({"/metrics": (200, page)}) as server:
        found = LlamaCpp().observe(server.url)
    assert [item.kind for item in found if item.kind.startswith("metric")] == [
        "metric.prompt_tokens_total"
    ]


@pytest.mark.parametrize("said", ["NaN", "Infinity", "true", '"all"', "[1]", "-1", "[" * 100_000])
def test_a_context_that_is_no_number_is_not_told(said: str) -> None:
    """Nothing is judged by it, and nothing breaks by it."""
    props = PROPS.replace("2048", said)
    slots = SLOTS.replace("2048", said).replace("true", '"yes"')
    with Pages({"/props": (200, props), "/slots": (200, slots)}) as server:
        found = LlamaCpp().observe(server.url)
    assert number(found, "n_ctx") is None
    assert of(found, "slot.n_ctx") == of(found, "slot.speculative") == ()


def test_half_a_character_of_a_path_can_be_written_down() -> None:
    """A JSON text may hold what no UTF-8 can."""
    with Pages({"/props": (200, PROPS.replace("/m", "/\\ud800"))}) as server:
        found = LlamaCpp().observe(server.url)
    assert of(found, "model_path")[0].value == "/\N{REPLACEMENT CHARACTER}"


def test_a_reply_is_read_from_its_events() -> None:
    """Text of all of them, timings of the last; `draft_n` is absent where nothing was drafted."""
    events = [
        {"content": "a ", "stop": False},
        {"content": "b", "stop": False},
        {
            "content": "", "stop": True, "stop_type": "limit", "truncated": False,
            "timings": {"cache_n": 1, "prompt_n": 14, "prompt_ms": 3.1, "predicted_n": 200,
                        "predicted_ms": 258.4, "draft_n": 248, "draft_n_accepted": 116},
        },
    ]  # fmt: skip
    answer = LlamaCpp().answer(events)
    assert (answer.text, answer.prompt_n, answer.cache_n, answer.predicted_n) == ("a b", 14, 1, 200)
    assert (answer.drafted, answer.accepted, answer.finish) == (248, 116, "length")
    plain = LlamaCpp().answer([{"content": "x", "timings": {"predicted_n": 1}}])
    assert (plain.drafted, plain.accepted) == (None, None)
    assert LlamaCpp().answer([]).text == ""


def test_progress_of_a_long_prompt() -> None:
    """For a person who waits for 200,000 tokens."""
    event = {"prompt_progress": {"total": 6, "cache": 0, "processed": 2, "time_ms": 1}}
    assert LlamaCpp().progress(event) == (2, 6)
    assert LlamaCpp().progress({"content": "x"}) is None
