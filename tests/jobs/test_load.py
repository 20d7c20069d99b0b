"""Loading a job: by its exact name, and with each mistake named by file, line, key and what to do."""

import os
from pathlib import Path

import pytest

from jobs.errors import ConfigError, Problem, render
from jobs.load import JobLine, list_jobs, load_job

JOB = """\
question = "Does it run?"

[candidate]
like = "llm"
model = "/m/model.gguf"
port = 8081
context = 200000

[workload]
fill = [0.95]

[[claim]]
kind = "context"
tokens = 200000
"""

DESIGN = """\
question        = "Does 200K context with MTP fit, run, and pay off?"
downtime_budget = "90m"
stops           = ["llm"]

[candidate]
like  = "llm"
model = "/models/mtp/model.gguf"
port  = 8081
context = 200000
set   = { "--spec-type" = "draft-mtp", "--spec-draft-n-max" = "3", "-ngl" = "all", "-fit" = "off" }
drop  = ["--mmproj"]

[needs]
files = ["/data/prompts/long.txt"]
gpu   = [{ free_mib = "estimate" }]
disk_mib = 2000

[workload]
prompts      = "builtin:mixed"
max_tokens   = 256
temperatures = [0.0, 0.7]
repeats      = 9
fill         = [0.95]

[baseline]
drop = ["--spec-type", "--spec-draft-n-max"]

[[claim]]
kind = "speculation"
type = "draft-mtp"
acceptance_at_least = 0.55
[[claim]]
kind = "context"
tokens = 200000
filled_at_least = 0.9
[[claim]]
kind = "throughput"
temperature = 0.0
faster_than = "baseline"
"""


def write(jobs: Path, text: str, name: str = "night") -> Path:
    """A job file."""
    path = jobs / f"{name}.toml"
    path.write_text(text)
    return path


def said(jobs: Path, text: str, **overrides: str) -> str:
    """What loading this job complains about."""
    write(jobs, text)
    with pytest.raises(ConfigError) as caught:
        load_job(
            jobs, "night", overrides={key.replace("__", "."): v for key, v in overrides.items()}
        )
    return str(caught.value)


def test_the_job_of_the_documentation_loads(tmp_path: Path) -> None:
    """With its units, its fields, its arms and its claims."""
    write(tmp_path, DESIGN, "200k-mtp")
    job = load_job(tmp_path, "200k-mtp")
    assert (job.name, job.downtime_budget, job.stops) == ("200k-mtp", 5400, ("llm",))
    assert job.candidate.set["--spec-draft-n-max"] == "3"
    assert job.arms == ("candidate", "baseline")
    assert [claim.kind for claim in job.claims] == ["speculation", "context", "throughput"]
    assert job.limits() == "production down for at most 1h30m"


def test_a_job_knows_nothing_it_was_not_told(tmp_path: Path) -> None:
    """The defaults of a short job."""
    write(tmp_path, JOB)
    job = load_job(tmp_path, "night")
    assert (job.stops, job.timeout, job.baseline) == (None, None, None)
    assert job.workload.temperatures == (0.0,)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("context = 200000", "contxt = 200000", "night.toml:7: candidate.contxt: unknown key; did you mean `context`?"),
        ("question", "temperature = 0.5\nquestion", "1: temperature: unknown key; `temperature` belongs to [[claim]] (kind speculation or throughput) → move it"),
        ("port = 8081", "repeats = 3", "6: candidate.repeats: unknown key; `repeats` belongs to [workload] → move it to [workload]"),
        ("port = 8081", 'timeout = "2h"', "`timeout` belongs to the top of the file, before any [table]"),
        ('like = "llm"', 'kind = "vllm"', "4: candidate.kind: `vllm` is not in this version"),
        ('like = "llm"', 'kind = "llamacp"', "candidate.kind: there is no kind `llamacp`"),
        ('kind = "context"', 'kind = "contxt"', "13: claim.kind: there is no kind `contxt`; did you mean `context`?"),
        ('kind = "context"', "", "12: claim: has no kind → add kind ="),
        ("tokens = 200000\n", "", "12: claim.tokens: is missing → write tokens of context"),
        ("/m/model.gguf", "/m/*.gguf", "5: candidate.model: `*` is a glob"),
        ("/m/model.gguf", "~/model.gguf", "candidate.model: `~` is for shells"),
        ("/m/model.gguf", "m/model.gguf", "candidate.model: is a relative path"),
        ("/m/model.gguf", "/m/", "candidate.model: names a directory"),
        ("port = 8081", 'port = 8081\nhost = "localhost"', "7: candidate.host: `localhost` is 127.0.0.1 or ::1"),
        ("port = 8081", "port = 99999", 'candidate.port: is a port: write a number from 1 to 65535, or "free"'),
        ("context = 200000", 'context = "200k"', "7: candidate.context: should be a whole number, not text"),
        ("[workload]", '[baseline]\nfrom = "production"\n[workload]', "10: baseline.from: measuring production itself is not in this version"),
        ("port = 8081", 'container = { image = "x" }', "6: candidate.container: containers are not in this version"),
        ("question", 'cron = "0 0 * * *"\nquestion', "1: cron: belongs to runner.toml → write it there under [[schedule]]"),
        ("question", "version = 2\nquestion", "1: version: is 2, written for a newer runner"),
        ("question", "downtime_budget = 90\nquestion", '"90s"'),
        ("question", 'accept = { "prod.restore" = "trust me" }\nquestion', "1: accept: accepts prod.restore → what production needs"),
        ("question", 'accept = { "gpu.bugdet" = "it is fine" }\nquestion', "1: accept.gpu.bugdet: is the id of no check → did you mean gpu.budget?"),
        ("[0.95]", "[1.5]", "10: workload.fill: should be at most 1"),
        ("[0.95]", "[0.5, 0.5]", "workload.fill: names a value twice"),
        ("port = 8081", 'port = 8081\napi_key = "sk-1"', "7: candidate.api_key: is a secret: never write it here"),
        ("port = 8081", 'port = 8081\nset = { "--x" = false }', "7: candidate.set.--x: is false → to remove a flag, name it in drop"),
        ("port = 8081", 'port = 8081\nset = { "x" = 1 }', "candidate.set.x: `x` is no flag"),
        ("port = 8081", 'port = 8081\nset = ["-x"]', "7: candidate.set: should be a table, not a list → write flags to set"),
        ("port = 8081", 'port = 8081\ndrop = "--mmproj"', "7: candidate.drop: should be a list, not text → write flags to remove"),
        ("port = 8081", 'port = 8081\nenv = { "1A" = "x" }', "7: candidate.env.1A: `1A` is no name of a variable → write letters"),
        ("port = 8081", 'port = 8081\nhealth = "health"', "7: candidate.health: has the wrong form → write URL path"),
        ("fill = [0.95]", "temperatures = []", "10: workload.temperatures: is empty → write sampling temperatures"),
        ("fill = [0.95]", "repeats = 1e3", "10: workload.repeats: should be a whole number, not a decimal number"),
        ("fill = [0.95]", "repeats = 1000000000", "10: workload.repeats: should be at most 10000"),
        ("fill = [0.95]", "max_tokens = 99999999999999999999", "10: workload.max_tokens: should be at most 2147483647"),
        ("fill = [0.95]", 'request_within = "99999999999999d"', "10: workload.request_within: is more than a year"),
        ("fill = [0.95]", "temperatures = [9]", "10: workload.temperatures: should be at most 5"),
        ("fill = [0.95]", "request_within = true", '10: workload.request_within: is a duration: write it as text with its unit, such as "15m"'),
        ('kind = "context"', 'kind = "throughput"\nfaster_than = "x"', "14: claim.faster_than: should be 'baseline' → write"),
        ("question", 'question = ""\n#', "1: question: is empty → write the question that this job answers"),
        ("[[claim]]", "[claim]", "12: claim: should be a list of tables, not one table → write [[claim]]"),
        ("[candidate]", "[[candidate]]", "3: candidate: should be one table, not a list of tables → write [candidate]"),
    ],
)  # fmt: skip
def test_each_mistake_is_named(tmp_path: Path, old: str, new: str, expected: str) -> None:
    """File, line, key, what is wrong, and what to do."""
    assert expected in said(tmp_path, JOB.replace(old, new, 1))


def test_all_mistakes_are_told_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    """Nobody wants to start five times to find five."""
    text = JOB.replace("port = 8081", "prt = 8081").replace("fill =", "fil =")
    lines = said(tmp_path, text).splitlines()
    assert [":6:" in lines[0], ":10:" in lines[1]] == [True, True]


def test_values_are_never_repeated_in_an_error(tmp_path: Path) -> None:
    """A secret in the wrong place must not end up in a log."""
    text = JOB.replace("port = 8081", 'port = 8081\napi_key = { fle = "sk-secret" }')
    assert "sk-secret" not in said(tmp_path, text)


@pytest.mark.parametrize("name", ["a/b", "../night", "night.toml", "", "a b"])
def test_a_name_that_is_no_name_gets_a_sentence(tmp_path: Path, name: str) -> None:
    """A job name with a slash opens nothing."""
    write(tmp_path, JOB)
    with pytest.raises(ConfigError, match="the name of a job is"):
        load_job(tmp_path, name)


def test_a_job_that_is_not_there_is_guessed(tmp_path: Path) -> None:
    """And the jobs that are there are named."""
    write(tmp_path, JOB)
    with pytest.raises(ConfigError, match=r"there is no such job; did you mean `night`\?"):
        load_job(tmp_path, "nigth")
    with pytest.raises(ConfigError, match="no job lies in"):
        load_job(tmp_path / "none", "night")


def test_one_broken_file_leaves_the_others_usable(tmp_path: Path) -> None:
    """The broken one is listed with its mistake."""
    write(tmp_path, JOB)
    write(tmp_path, "question = 'x\n", "broken")
    write(tmp_path, "[candidate]\n", "dumb")
    write(tmp_path, JOB, "a b")
    (tmp_path / "notes.txt").write_text("no job")
    listed = {line.name: line for line in list_jobs(tmp_path)}
    assert list(listed) == ["a b", "broken", "dumb", "night"]
    assert listed["night"] == JobLine("night", "Does it run?")
    assert listed["broken"].problem is not None
    assert listed["broken"].problem.line == 1
    assert "a space" in render(listed["a b"].problem or Problem("", None, "", ""))
    assert load_job(tmp_path, "night").question == "Does it run?"


def test_no_directory_has_no_jobs(tmp_path: Path) -> None:
    """Listing is no error."""
    assert list_jobs(tmp_path / "none") == ()


def test_overrides_change_the_job(tmp_path: Path) -> None:
    """`--set` with TOML values, plain words, and claims by place or kind."""
    write(tmp_path, DESIGN)
    job = load_job(
        tmp_path,
        "night",
        overrides={
            "workload.fill": "[0.05]",
            "candidate.port": "free",
            "claim.context.filled_at_least": "0.05",
            "claim.0.acceptance_at_least": "0.5",
            "candidate.set.--spec-draft-n-max": "6",
        },
    )
    assert job.workload.fill == (0.05,)
    assert job.candidate.port == "free"
    assert [
        getattr(job.claim[1], "filled_at_least", 0),
        getattr(job.claim[0], "acceptance_at_least", 0),
    ] == [0.05, 0.5]
    assert job.candidate.set["--spec-draft-n-max"] == "6"


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("workload.fil", "[0.1]", "--set workload.fil: workload.fil: unknown key; did you mean `fill`?"),
        ("candidate.port", "0", "--set candidate.port: candidate.port: is a port"),
        ("claim.speed.at_least", "5", "there is no claim `speed`"),
        ("question.x", "5", "is below a key that is no table"),
    ],
)  # fmt: skip
def test_a_mistake_of_an_override_is_not_blamed_on_the_file(
    tmp_path: Path, key: str, value: str, expected: str
) -> None:
    """It has no line there."""
    write(tmp_path, JOB)
    with pytest.raises(ConfigError) as caught:
        load_job(tmp_path, "night", overrides={key: value})
    assert expected in str(caught.value)


def test_a_problem_is_rendered_with_what_is_known() -> None:
    """Without line, key or remedy the rest still reads well."""
    assert (
        render(Problem("f.toml", 3, "a.b", "is wrong", "fix it"))
        == "f.toml:3: a.b: is wrong → fix it"
    )
    assert render(Problem("", None, "", "is wrong")) == "is wrong"
    assert render(Problem("", 3, "", "is wrong")) == "line 3: is wrong"
    assert Problem("f", 1, "k", "m", "r").to_json() == {
        "file": "f", "line": 1, "key": "k", "message": "m", "remedy": "r",
    }  # fmt: skip


def test_what_is_no_file_is_named_and_waits_for_nobody(tmp_path: Path) -> None:
    """A pipe, a directory, a link to nowhere: each is one broken job, and the others are listed."""
    write(tmp_path, JOB)
    os.mkfifo(tmp_path / "pipe.toml")
    (tmp_path / "room.toml").mkdir()
    (tmp_path / "link.toml").symlink_to("/nowhere")
    told = {line.name: line.problem and line.problem.message for line in list_jobs(tmp_path)}
    assert told == {
        "night": None,
        "pipe": "is no regular file",
        "room": "is a directory",
        "link": "no such file or directory",
    }
    for name in ("pipe", "room", "link"):
        with pytest.raises(ConfigError, match=str(told[name])):
            load_job(tmp_path, name)


@pytest.mark.parametrize("name", ["night.toml", "jobs/night.toml", "/etc/runner/jobs/night.toml"])
def test_a_file_name_is_answered_with_the_job_s(tmp_path: Path, name: str) -> None:
    """Whoever types a path meant the job that lies there."""
    write(tmp_path, JOB)
    with pytest.raises(ConfigError, match=r"letters, digits, .* → write night"):
        load_job(tmp_path, name)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"a = " + b"[" * 5000 + b"]" * 5000, "is nested too deeply"),
        (b"\xef\xbb\xbf" + JOB.encode(), "begins with a byte order mark"),
    ],
)
def test_a_file_that_breaks_the_reader_stops_no_other(
    tmp_path: Path, raw: bytes, message: str
) -> None:
    """Neither the list of the others nor the daemon that reads it."""
    write(tmp_path, JOB)
    (tmp_path / "odd.toml").write_bytes(raw)
    listed = {line.name: line for line in list_jobs(tmp_path)}
    assert listed["night"].problem is None
    assert message in render(listed["odd"].problem or Problem("", None, "", ""))
    with pytest.raises(ConfigError, match=message):
        load_job(tmp_path, "odd")
