"""The demo box's runner.toml and job file: a user's first examples, so they explain themselves."""

import json
from collections.abc import Sequence
from pathlib import Path

CONTEXT = 200_000
SHARDS = 4
FILL_SLACK = 0.01  # a claim on the very share that is filled would hang on the rounding


def runner_toml(
    *,
    directory: Path,
    lock_name: str,
    command: Sequence[str],
    model: Path,
    port: int,
    threads: int,
) -> str:
    """The configuration of the box."""
    program = f"binary       = {_text(command[0])}"
    if len(command) > 1:
        program = f"command      = [{', '.join(_text(word) for word in command)}]"
    return f"""\
# The demo box: all that runner must know about this machine. `runner demo` writes it anew.

timezone  = "UTC"    # of every time that is shown

# `runner run NAME` opens NAME.toml in here, and nothing runs because it lies there.
jobs_dir  = {_text(directory / "jobs")}

# Journal, logs and results of all runs.
state_dir = {_text(directory / "state")}

# Real runs share one lock per machine; only a demo has a reason for one of its own.
lock_name = {_text(lock_name)}


# What must serve whenever no run holds the box. Here runner starts and stops the process itself.
# With systemd it is supervisor = {{ kind = "systemd", unit = "llama.service" }}, and the unit says
# what is started.
[[production]]
name         = "llm"
kind         = "llamacpp"
{program}
model        = {_text(model)}
host         = "127.0.0.1"
port         = {port}
context      = 4096
parallel     = 1
args         = ["--threads", "{threads}", "--device", "none"]    # CPU only: a GPU here may be busy
ready_within = "2m"    # the longest load; a start that dies is noticed at once
supervisor   = {{ kind = "process", log = {_text(directory / "logs" / "production.log")} }}


# Who is told of every outcome but "proven". A real box has a person here: kind = "telegram".
[alerts]
unproven_delivery = "accept"    # a file wakes nobody; a real box proves its way to a person

[[alerts.channel]]
kind = "file"
path = {_text(directory / "alerts.log")}
"""


def job_toml(*, model: Path, draft: Path, port: int, fill: float) -> str:
    """The job 200k-mtp; `fill` is the share of the context that it fills."""
    return f"""\
# What `runner run 200k-mtp` brings up, and what would prove it.

question        = "Does 200K of context with MTP fit, run, and answer fast enough?"
downtime_budget = "30m"      # from production's stop until it serves again
stops           = ["llm"]    # who makes room (default: all services)


# The candidate: production's own command, with these differences.
[candidate]
like         = "llm"
model        = {_text(model)}
draft        = {_text(draft)}
port         = {port}    # not production's: no user's question reaches a candidate
context      = {CONTEXT}
set          = {{ "--spec-type" = "draft-mtp", "--spec-draft-n-max" = "3" }}
env          = {{ OMP_PROC_BIND = "true", OMP_WAIT_POLICY = "active" }}    # threads spin, not sleep
ready_within = "2m"


# What it is asked: prompts, times temperatures, times repeats; and one prompt that fills a share
# of the context, behind which decoding is measured again.
[workload]
prompts      = "builtin:mixed"    # prose, code and reasoning; or the path of your own
temperatures = [0.0, 0.7]         # each is judged by itself
repeats      = 3
max_tokens   = 128
fill         = [{fill:g}]
repeats_at_depth = 1


# The claims. A flag proves nothing: each is judged by counters and answers of this run.

[[claim]]    # MTP really drafted, and enough of its drafts were accepted
kind = "speculation"
type = "draft-mtp"
acceptance_at_least = 0.45

[[claim]]    # one request may really use 200,000 tokens, and one really filled this share of them
kind = "context"
tokens = {CONTEXT}
filled_at_least = {fill - FILL_SLACK:g}

[[claim]]    # and it does not keep a reader waiting
kind = "throughput"
temperature = 0.0
at_least = 20
"""


def _text(value: object) -> str:
    """A TOML string; TOML's basic strings escape as JSON's do."""
    return json.dumps(str(value), ensure_ascii=False)
