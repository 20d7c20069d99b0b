"""The commands of a job's arms: production's own, changed flag by flag, or the job's."""

from dataclasses import replace
from pathlib import Path

import pytest

from jobs.candidate import candidate_command, resolve
from jobs.errors import ConfigError
from jobs.job import Job
from jobs.load import load_job
from jobs.servers import LlamaCpp, OpenAI
from jobs.servers.base import Command
from tests.jobs.test_load import DESIGN, write
from tests.jobs.test_mistakes import OWN, TASK

LIVE = Command(
    (
        "/opt/llama-server", "-m", "v3/model-00001-of-00033.gguf", "--mmproj", "/m/mmproj.gguf",
        "-c", "65536", "-np", "2", "--host", "::", "--port", "8080", "--api-key", "sk-secret",
    ),
    {
        "CUDA_VISIBLE_DEVICES": "0",
        "LLAMA_ARG_THREADS": "3",
        "LLAMA_ARG_SPEC_TYPE": "ngram-mod",
        "LLAMA_API_KEY": "sk-secret",
        "DATABASE_PASSWORD": "secret",
    },
    "/models",
)  # fmt: skip


def job(directory: Path, text: str = DESIGN, **overrides: str) -> Job:
    """A loaded job."""
    write(directory, text)
    changed = {key.replace("__", "."): value for key, value in overrides.items()}
    return load_job(directory, "night", overrides=changed)


def test_like_starts_from_productions_own_command(tmp_path: Path) -> None:
    """Fields, set and drop change it; a log that tells and counters are added."""
    command = candidate_command(job(tmp_path), {"llm": LIVE})
    assert command.argv == (
        "/opt/llama-server", "--model", "/models/mtp/model.gguf", "--ctx-size", "400000",
        "-np", "2", "--host", "127.0.0.1", "--port", "8081", "--spec-type", "draft-mtp",
        "--spec-draft-n-max", "3", "-ngl", "all", "-fit", "off", "-lv", "4", "--metrics",
    )  # fmt: skip
    assert command.cwd == "/models"


def test_the_baseline_is_the_candidate_with_its_differences(tmp_path: Path) -> None:
    """And nothing else differs."""
    loaded = job(tmp_path)
    candidate = candidate_command(loaded, {"llm": LIVE})
    baseline = candidate_command(loaded, {"llm": LIVE}, arm="baseline")
    gone = {"--spec-type", "draft-mtp", "--spec-draft-n-max", "3"}
    assert [word for word in candidate.argv if word not in gone] == list(baseline.argv)


def test_a_candidate_gets_none_of_productions_secrets(tmp_path: Path) -> None:
    """Neither its key, nor what else stands in its environment; only what runs the hardware."""
    command = candidate_command(job(tmp_path), {"llm": LIVE})
    assert command.env == {"CUDA_VISIBLE_DEVICES": "0", "LLAMA_ARG_THREADS": "3"}
    assert "sk-secret" not in " ".join(command.argv)
    assert "secret" not in repr(command)


def test_a_variable_that_says_what_a_flag_says_is_dropped_with_it(tmp_path: Path) -> None:
    """`drop` of a flag means it, wherever production says it."""
    live = replace(LIVE, env={"LLAMA_ARG_MMPROJ": "/m/mm.gguf", "LLAMA_ARG_CTX_SIZE": "1"})
    assert candidate_command(job(tmp_path), {"llm": live}).env == {}


def test_relative_paths_of_a_live_command_become_whole_ones(tmp_path: Path) -> None:
    """They are relative to production's directory, which need not be ours."""
    text = DESIGN.replace('model = "/models/mtp/model.gguf"\n', "")
    resolved = resolve(job(tmp_path, text), {"llm": LIVE})
    assert resolved.command.argv[2] == "/models/v3/model-00001-of-00033.gguf"


def test_what_the_job_gave_itself_is_not_given_again(tmp_path: Path) -> None:
    """A verbosity of the user's own stays."""
    live = replace(LIVE, argv=(*LIVE.argv[:-2], "--log-verbosity", "5", "--metrics"))
    argv = candidate_command(job(tmp_path), {"llm": live}).argv
    assert argv.count("--metrics") == 1
    assert "-lv" not in argv


def test_the_server_knows_what_its_command_says(tmp_path: Path) -> None:
    """So that readiness asks for this model and this context."""
    resolved = resolve(job(tmp_path), {"llm": LIVE}, {"llm": LlamaCpp(port=8080)})
    assert resolved.server is not None
    probe = resolved.server.ready()
    wanted = {item["name"]: item["want"] for item in probe["identity"]}
    assert wanted == {
        "slots": 1, "context": 200000, "model_path": "/models/mtp/model.gguf", "build": None,
    }  # fmt: skip
    assert probe["base"] == "http://127.0.0.1:8081"


def test_what_the_job_does_not_say_of_the_server_comes_from_production(tmp_path: Path) -> None:
    """An embedding server is validated as one."""
    production = LlamaCpp(port=8080, serves="embedding")
    resolved = resolve(job(tmp_path), {"llm": LIVE}, {"llm": production})
    assert resolved.server is not None
    assert resolved.server.serves == "embedding"
    assert "--embeddings" in resolved.command.argv


def test_a_key_file_in_productions_command_is_used(tmp_path: Path) -> None:
    """The candidate asks for the same key, so the runner has to know it."""
    live = replace(LIVE, argv=(*LIVE.argv[:-2], "--api-key-file", "keys"))
    resolved = resolve(job(tmp_path), {"llm": live})
    assert resolved.server is not None
    assert resolved.server.key_spec() == {"file": "/models/keys"}


def test_an_own_program_gets_its_fields_as_flags(tmp_path: Path) -> None:
    """`binary` with fields is a whole command."""
    text = OWN.replace("[[claim]]", 'context = 4096\nparallel = 2\nargs = "-t 2"\n[[claim]]')
    command = candidate_command(job(tmp_path, text), {}, port=9000)
    assert command.argv == (
        "/opt/llama-server", "-t", "2", "-lv", "4", "--metrics", "--model", "/m/model.gguf",
        "--host", "127.0.0.1", "--port", "9000", "--parallel", "2", "--ctx-size", "8192",
    )  # fmt: skip


def test_shared_slots_do_not_divide_the_context(tmp_path: Path) -> None:
    """With `--kv-unified` one request may use all of it."""
    text = OWN.replace("[[claim]]", 'context = 4096\nparallel = 2\nargs = "-kvu"\n[[claim]]')
    argv = candidate_command(job(tmp_path, text), {}, port=9000).argv
    assert argv[-2:] == ("--ctx-size", "4096")


def test_a_key_goes_to_the_candidate_as_a_file(tmp_path: Path) -> None:
    """Never as a word of the command line."""
    text = OWN.replace("[[claim]]", 'api_key = { file = "/etc/key" }\n[[claim]]')
    argv = candidate_command(job(tmp_path, text), {}, port=9000).argv
    assert argv[-2:] == ("--api-key-file", "/etc/key")


def test_a_task_is_executed_as_written(tmp_path: Path) -> None:
    """No flags of ours, no port, no server."""
    resolved = resolve(job(tmp_path, TASK), {})
    assert resolved.server is None
    assert resolved.command.argv == ("/opt/llama-bench", "-m", "/m/model.gguf")


def test_an_openai_server_is_executed_as_written(tmp_path: Path) -> None:
    """What its flags mean is not known, so none is added."""
    text = OWN.replace('"llamacpp"', '"openai"\nport = 8081').replace(
        'binary = "/opt/llama-server"', 'command = "/opt/serve --port 8081"'
    )
    resolved = resolve(job(tmp_path, text), {})
    assert isinstance(resolved.server, OpenAI)
    assert resolved.command.argv == ("/opt/serve", "--port", "8081")


def test_an_openai_server_like_production_needs_its_port_set(tmp_path: Path) -> None:
    """Which flag names it only the job knows; without it, it would take production's."""
    live, production = Command(("/opt/serve", "--listen", "8000")), OpenAI(port=8000)
    text = DESIGN.replace('"-fit" = "off" }', '"-fit" = "off", "--listen" = 8081 }')
    resolved = resolve(job(tmp_path, text), {"llm": live}, {"llm": production})
    assert resolved.command.argv[:3] == ("/opt/serve", "--listen", "8081")
    loaded = job(tmp_path)
    with pytest.raises(ConfigError, match="is 8081, but the command of llm does not say so"):
        resolve(loaded, {"llm": live}, {"llm": production})


BUILD = """
question = "Does the new build run?"
[candidate]
like = "llm"
binary = "/opt/b11434/llama-server"
port = 8081
[[claim]]
kind = "speculation"
"""


def test_a_new_build_gets_productions_own_flags(tmp_path: Path) -> None:
    """Only the program is another one; what launches it stays."""
    plain = BUILD.replace('binary = "/opt/b11434/llama-server"\n', "")
    for before in ((), ("/usr/bin/numactl", "-N", "0"), ("/usr/bin/env", "A=1")):
        live = replace(LIVE, argv=(*before, *LIVE.argv))
        old = candidate_command(job(tmp_path, plain), {"llm": live})
        new = candidate_command(job(tmp_path, BUILD), {"llm": live})
        at = len(before)
        assert old.argv[at] == "/opt/llama-server"
        assert new.argv == (*old.argv[:at], "/opt/b11434/llama-server", *old.argv[at + 1 :])
        assert new.env == old.env


def test_an_interpreter_and_its_script_are_one_program(tmp_path: Path) -> None:
    """A live command of a script shows both; the new build takes the place of both."""
    script = ("/opt/venv/bin/python3", "-I", "/opt/venv/bin/serve", "--model", "/m/model.gguf")
    made = candidate_command(job(tmp_path, BUILD), {"llm": Command(script)})
    assert made.argv[:3] == ("/opt/b11434/llama-server", "--model", "/m/model.gguf")


def test_a_program_that_path_finds_can_be_replaced(tmp_path: Path) -> None:
    """Which one PATH would find does not matter to a job that names another."""
    made = candidate_command(job(tmp_path, BUILD), {"llm": Command(("llama-server", "-m", "/m/a"))})
    assert made.argv[:3] == ("/opt/b11434/llama-server", "-m", "/m/a")


@pytest.mark.parametrize(
    "argv",
    [
        ("/opt/venv/bin/python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "/m/a"),
        ("/opt/venv/bin/python3", "-m", "vllm.entrypoints.openai.api_server"),
        ("/usr/bin/numactl", "llama-server"),
    ],
)
def test_a_command_without_a_place_for_a_program_is_told(
    tmp_path: Path, argv: tuple[str, ...]
) -> None:
    """Nobody guesses which of its words the program is."""
    loaded = job(tmp_path, BUILD)
    with pytest.raises(ConfigError, match=r"candidate\.binary: has no place to go: llm runs `/"):
        candidate_command(loaded, {"llm": Command(argv)})


def test_a_wrapper_stays_refused_whatever_the_binary(tmp_path: Path) -> None:
    """The flags behind it would be the wrapper's."""
    loaded = job(tmp_path, BUILD)
    with pytest.raises(ConfigError, match="is started through docker, which hands the work"):
        candidate_command(loaded, {"llm": Command(("/usr/bin/docker", "run", "-p", "80", "x"))})


def test_a_new_build_does_not_load_the_old_ones_libraries(tmp_path: Path) -> None:
    """Else the old build would be measured under the new one's name; CUDA's place stays."""
    env = {"LD_LIBRARY_PATH": "/opt/old/lib:/usr/local/cuda/lib64:/opt/old/bin/"}
    live = Command(("/opt/old/bin/llama-server", "-m", "/m/a"), env)
    made = candidate_command(job(tmp_path, BUILD), {"llm": live})
    assert made.env == {"LD_LIBRARY_PATH": "/usr/local/cuda/lib64"}
    same = BUILD.replace("/opt/b11434/", "/opt/old/bin/")
    assert candidate_command(job(tmp_path, same), {"llm": live}).env == env
    mine = BUILD.replace("port", 'env = { LD_LIBRARY_PATH = "/opt/old/lib" }\nport')
    assert candidate_command(job(tmp_path, mine), {"llm": live}).env == {
        "LD_LIBRARY_PATH": "/opt/old/lib"
    }


def test_the_baseline_may_be_the_old_build(tmp_path: Path) -> None:
    """Both builds in one night, with the same flags: of production, or of the job itself."""
    old = '[baseline]\nbinary = "/opt/llama-server"\n[[claim]]'
    for text in (BUILD, OWN.replace("/opt/llama-server", "/opt/new")):
        loaded = job(tmp_path, text.replace("[[claim]]", old))
        port = None if text is BUILD else 8081
        new = candidate_command(loaded, {"llm": LIVE}, port=port)
        before = candidate_command(loaded, {"llm": LIVE}, port=port, arm="baseline")
        assert before.argv == ("/opt/llama-server", *new.argv[1:])
        assert new.argv[0] != before.argv[0]


@pytest.mark.parametrize(
    ("live", "expected"),
    [
        (Command(()), "does not run now"),
        (Command(("llama-server", "-m", "/m")), "which is no whole path"),
        (Command(("/usr/bin/docker", "run", "x")), "hands the work to somebody else"),
        (Command((*LIVE.argv, "-ub", "1k")), "would misread `1k`"),
        (Command((*LIVE.argv, "--batch-size", "1", "-b", "2")), "are the same flag"),
    ],
)
def test_a_live_command_that_cannot_be_taken_is_told(
    tmp_path: Path, live: Command, expected: str
) -> None:
    """With what to write instead."""
    loaded = job(tmp_path)
    with pytest.raises(ConfigError, match=r"candidate\.like") as caught:
        resolve(loaded, {"llm": live})
    assert expected in str(caught.value)


def test_a_service_that_is_not_there_is_told(tmp_path: Path) -> None:
    """With those that are."""
    loaded = job(tmp_path)
    with pytest.raises(ConfigError, match="there is no service `llm` → services there are: chat"):
        resolve(loaded, {"chat": LIVE})


def test_no_client_of_production_meets_a_candidate(tmp_path: Path) -> None:
    """Production's port stays production's."""
    loaded = job(tmp_path, candidate__port="8080")
    with pytest.raises(
        ConfigError, match="8080 is the port of production's llm; while that is down its"
    ):
        resolve(loaded, {"llm": LIVE}, {"llm": LlamaCpp(port=8080)})


def test_a_free_port_has_to_be_chosen_by_somebody(tmp_path: Path) -> None:
    """This page asks no kernel."""
    loaded = job(tmp_path, candidate__port="free")
    with pytest.raises(ValueError, match="none was chosen"):
        resolve(loaded, {"llm": LIVE})
    argv = resolve(loaded, {"llm": LIVE}, port=4711).command.argv
    assert argv[argv.index("--port") + 1] == "4711"


def test_a_kind_that_is_not_there_yet_is_told(tmp_path: Path) -> None:
    """Also when it comes from production."""
    later = LlamaCpp.model_construct(kind="vllm", port=8080)
    loaded = job(tmp_path)
    with pytest.raises(ConfigError, match="`vllm` is not in this version"):
        resolve(loaded, {"llm": LIVE}, {"llm": later})
