"""Mistakes that only show when several keys are read together."""

from pathlib import Path

import pytest

from jobs.errors import ConfigError
from jobs.load import load_job
from tests.jobs.test_load import DESIGN, JOB, said, write

OWN = """\
question = "Does it run?"
[candidate]
kind = "llamacpp"
binary = "/opt/llama-server"
model = "/m/model.gguf"
[[claim]]
kind = "speculation"
"""

TASK = """\
question = "How fast?"
[candidate]
kind = "task"
command = ["/opt/llama-bench", "-m", "/m/model.gguf"]
"""


def test_a_task_claims_its_exit_code(tmp_path: Path) -> None:
    """Without a word in the file."""
    write(tmp_path, TASK)
    job = load_job(tmp_path, "night")
    assert [claim.kind for claim in job.claims] == ["exit_code"]
    assert job.candidate.is_task


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("command", "port = 8081\ncommand", "4: candidate.port: means nothing for a task"),
        ('command = ["/opt/llama-bench", "-m", "/m/model.gguf"]', "", "2: candidate: a task without a command"),
        ("question", 'baseline = { drop = ["-x"] }\nquestion', "1: baseline: a task has no baseline"),
        ("[candidate]", '[[claim]]\nkind = "speculation"\n[candidate]', "3: claim.kind: a task is judged by its exit code"),
    ],
)  # fmt: skip
def test_a_task_is_no_server(tmp_path: Path, old: str, new: str, expected: str) -> None:
    """Keys of a server mean nothing for it."""
    assert expected in said(tmp_path, TASK.replace(old, new, 1))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('kind = "llamacpp"\n', "", "2: candidate: has neither kind nor like"),
        ('binary = "/opt/llama-server"\n', "", "2: candidate: has no program"),
        ('binary = "/opt/llama-server"', 'like = "llm"\ncommand = ["/opt/llama-server"]', "5: candidate.command: is given although like names a command → keep one of them; for another build"),
        ("/opt/llama-server", "/usr/bin/docker", "4: candidate.binary: `docker` hands the work to somebody else"),
        ('binary = "/opt/llama-server"', 'like = "llm"\nbinary = "/usr/bin/numactl"', "5: candidate.binary: /usr/bin/numactl is no server, but the way to one"),
        ("[[claim]]", '[baseline]\nbinary = "/usr/bin/python3.11"\n[[claim]]', "7: baseline.binary: /usr/bin/python3.11 is no server"),
        ('[[claim]]\nkind = "speculation"\n', "", "claim: a job without a claim proves nothing"),
        ('model = "/m/model.gguf"\n', "", "2: candidate: names no model"),
        ("[[claim]]", "[baseline]\n[[claim]]", "6: baseline: differs in nothing"),
        ("[[claim]]", 'set = { "-c" = 1, "--ctx-size" = 2 }\n[[claim]]', "candidate.set.--ctx-size: is the same flag as -c"),
        ("[[claim]]", 'set = { "-c" = 1 }\ndrop = ["--ctx-size"]\n[[claim]]', "candidate.set.-c: is also dropped, as --ctx-size"),
        ("[[claim]]", 'context = 1000\nset = { "-c" = 1 }\n[[claim]]', "candidate.set.-c: and context say the same twice"),
        ("[[claim]]", 'drop = ["-m"]\n[[claim]]', "candidate.drop.-m: and model say the same twice"),
        ("[[claim]]", 'port = 8081\nargs = ["--port", "8082"]\n[[claim]]', "candidate.port: is 8081, but the command says `--port 8082`"),
        ("[[claim]]", 'args = ["-c", "1k"]\n[[claim]]', "6: candidate.args: `-c 1k`: the server would misread `1k`"),
        ("[[claim]]", 'args = ["-m", "/a"]\n[[claim]]', "5: candidate.model: is /m/model.gguf, but the command says `--model /a`"),
        ("[[claim]]", 'set = { "-b" = "1k" }\n[[claim]]', "candidate.set.-b: `-b 1k`: the server would misread"),
        ("[[claim]]", 'set = { "--api-key" = "sk" }\n[[claim]]', "candidate.set.--api-key: a key in a command line"),
        ("[[claim]]", 'args = ["--api-key", "sk"]\n[[claim]]', "candidate.args: a key in a command line"),
        ("[[claim]]", 'args = ["-hf", "a/b"]\n[[claim]]', "candidate.args: --hf-repo fetches a model"),
        ("[[claim]]", 'env = { LLAMA_ARG_CTX_SIZE = "1" }\n[[claim]]', "candidate.env.LLAMA_ARG_CTX_SIZE: configures the server where nobody looks"),
        ("[[claim]]", 'env = { LLAMA_API_KEY = "sk" }\n[[claim]]', "candidate.env.LLAMA_API_KEY: a key in"),
        ("[[claim]]", 'api_key = { env = "MY_KEY" }\n[[claim]]', "candidate.api_key.env: llama-server reads its key only from LLAMA_API_KEY"),
        ("llamacpp", "openai", "candidate.port: must be a number"),
    ],
)  # fmt: skip
def test_keys_that_contradict_each_other_are_told(
    tmp_path: Path, old: str, new: str, expected: str
) -> None:
    """Before the night, with the line."""
    assert expected in said(tmp_path, OWN.replace(old, new, 1))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("temperature = 0.0", "temperature = 0.3", "claim.temperature: is not one of workload.temperatures = [0.0, 0.7]"),
        ("temperature = 0.0", "temperature = 0.0\ndepth = 0.5", "claim.depth: is not one of workload.fill = [0.95]"),
        ("fill         = [0.95]", "", "claim: needs a prompt that fills the context"),
        ("fill         = [0.95]", "fill = [0.5, 0.25]", "claim.filled_at_least: wants 180,000 tokens filled, and the workload fills 0.5 of 200,000 → raise workload.fill"),
        ('[baseline]\ndrop = ["--spec-type", "--spec-draft-n-max"]', "", "claim.faster_than: there is no [baseline]"),
        ("temperature = 0.0", 'of = "prompt"', "claim.of: reading a prompt is measured on cold prompts"),
        ('faster_than = "baseline"', "", "claim: claims nothing"),
    ],
)  # fmt: skip
def test_claims_that_the_workload_can_never_prove_are_told(
    tmp_path: Path, old: str, new: str, expected: str
) -> None:
    """Better now than after a night."""
    assert expected in said(tmp_path, DESIGN.replace(old, new, 1))


def test_sound_jobs_have_no_mistakes(tmp_path: Path) -> None:
    """The jobs of these tests themselves."""
    for text in (JOB, OWN, TASK, DESIGN):
        write(tmp_path, text)
        assert load_job(tmp_path, "night").name == "night"


def test_an_openai_server_that_is_to_be_filled_needs_a_context(tmp_path: Path) -> None:
    """It does not say how large it is."""
    text = OWN.replace('"llamacpp"', '"openai"\nport = 8081') + "[workload]\nfill = [0.5]\n"
    assert "workload.fill: is a share of the context, which is not known" in said(tmp_path, text)
    write(tmp_path, text.replace("port", "context = 4096\nport"))
    load_job(tmp_path, "night")


def test_both_arms_are_looked_at(tmp_path: Path) -> None:
    """A value that would be misread in the baseline, too."""
    text = OWN.replace("[[claim]]", '[baseline]\nset = { "-b" = "1k" }\n[[claim]]')
    write(tmp_path, text)
    with pytest.raises(ConfigError, match=r"baseline\.set\.-b"):
        load_job(tmp_path, "night")
