"""The candidate misbehaves: the run is broken or refuted, and production is back all the same."""

import json
import re
import sys
from pathlib import Path

import pytest

from preflight.linux import proc
from tests.e2e.night import Night, Ran


def back(night: Night, ran: Ran, code: int) -> None:
    """This exit code; production serves as before; nothing of the candidate lives."""
    assert ran.code == code, str(ran)
    assert ran.json["production"]["state"] == "serving"
    assert ran.json["production"]["identity"] == "same"
    assert night.pid() is not None
    assert night.candidates() == []
    assert night.told().startswith("SERVING since")


def test_candidate_that_dies_on_load(serving: Night) -> None:
    """It ends with 1 and no word; the wait ends with it, long before its deadline."""
    serving.job("--load-seconds", "0.2", "--die-on-load", candidate={"ready_within": "10m"})
    ran = serving.run()
    back(serving, ran, 5)
    assert "exit code 1" in str(ran.json)
    assert ran.json["production"]["downtime_s"] < 20


def test_candidate_that_is_never_ready(serving: Night) -> None:
    """Its deadline ends it, and the limit is named."""
    serving.job("--never-ready", candidate={"ready_within": "2s"})
    ran = serving.run()
    back(serving, ran, 5)
    assert "not ready within 2 s" in str(ran.json)


def test_candidate_with_a_fatal_line_is_not_waited_for(serving: Night) -> None:
    """The log tells what no status does: it lives, and it will never be ready."""
    fatal = "cudaMalloc failed: out of memory"
    serving.job("--fatal-line", fatal, candidate={"ready_within": "10m"})
    ran = serving.run()
    back(serving, ran, 5)
    assert fatal in str(ran.json)


def test_candidate_that_answers_200_while_loading(serving: Night) -> None:
    """A 200 on one path is not readiness: it is waited for, and then proven."""
    serving.job("--load-seconds", "1", "--models-200-while-loading")
    ran = serving.run()
    back_or_proven = ran.json["outcome"]
    assert (ran.code, back_or_proven) == (0, "proven"), str(ran)


@pytest.mark.slow
def test_candidate_that_is_only_healthy(serving: Night) -> None:
    """Healthy by its own word, but no completion was ever counted: not ready."""
    serving.job("--health-only", candidate={"ready_within": "2s"})
    back(serving, serving.run(), 5)


@pytest.mark.slow
def test_candidate_with_less_context_than_asked(serving: Night) -> None:
    """It serves another context than was asked: that is not the candidate of this job."""
    serving.job("--shrink-ctx", "2048")
    ran = serving.run()
    back(serving, ran, 5)
    assert "2048" in str(ran.json)


@pytest.mark.slow
def test_candidate_with_another_model(serving: Night) -> None:
    """It serves another model than was asked."""
    serving.job("--wrong-model")
    ran = serving.run()
    back(serving, ran, 5)
    assert "/models/another.gguf" in str(ran.json)


@pytest.mark.slow
def test_candidate_that_dies_at_work(serving: Night) -> None:
    """Ready once, dead at its fifth question: broken, and noticed at once."""
    serving.job("--die-at-request", "5")
    ran = serving.run()
    back(serving, ran, 5)
    assert ran.json["production"]["downtime_s"] < 20


def test_flag_alone_is_never_proof(serving: Night) -> None:
    """MTP was asked for, and no draft was ever counted: refuted, whatever the flag says."""
    serving.job("--no-mtp")
    ran = serving.run()
    back(serving, ran, 6)
    assert ran.claim("speculation")["state"] == "refuted"
    assert ran.claim("context")["state"] == "proven"
    assert "speculation" in serving.told()


@pytest.mark.slow
def test_server_without_counters_leaves_speculation_unproven(serving: Night) -> None:
    """A server that counts no drafts proves none: unproven, and the run is not proven."""
    address = ("-m", str(serving.model), "--port", str(serving.candidate_port))
    serving.job(
        "--openai-only",
        *address,
        candidate={"kind": "openai"},
        workload={"fill": [], "max_tokens": 16, "repeats": 1, "warmups": 1},
        claim=[{"kind": "speculation", "type": "draft-mtp"}],
    )
    ran = serving.run()
    back(serving, ran, 6)
    assert ran.claim("speculation")["state"] == "unproven"


@pytest.mark.slow
def test_candidate_that_ignores_term_is_killed(serving: Night) -> None:
    """TERM, TERM, KILL: it ends, and only then does production start."""
    serving.job("--ignore-term")
    ran = serving.run()
    assert ran.code == 0, str(ran)
    assert serving.candidates() == []
    assert "killed" in str(ran.json["notes"])


@pytest.mark.slow
def test_candidate_that_needs_two_terms(serving: Night) -> None:
    """The second TERM ends it; nobody has to wait for the KILL."""
    serving.job("--term-needs-two")
    ran = serving.run()
    assert ran.code == 0, str(ran)
    assert serving.candidates() == []


@pytest.mark.slow
def test_task_is_judged_by_its_exit_code(serving: Night) -> None:
    """A job without a server: it ends by itself, and its exit code is the claim."""
    for program, code in (("/bin/true", 0), ("/bin/false", 6)):
        serving.job()
        (serving.room / "jobs" / "task.toml").write_text(
            f'question = "Does it end well?"\n[candidate]\nkind = "task"\ncommand = ["{program}"]\n'
        )
        ran = serving.run("task")
        assert ran.code == code, str(ran)
        assert ran.json["production"]["state"] == "serving"


@pytest.mark.parametrize(
    "flag",
    ["--spawn-child", pytest.param("--leave-child-on-exit", marks=pytest.mark.slow)],
)
def test_children_of_a_candidate_end_with_it(serving: Night, flag: str) -> None:
    """P3: what the candidate leaves behind is found and ended, also where it escaped its session."""
    serving.job(flag)
    ran = serving.run()
    assert ran.code == 0, str(ran)
    log = Path(ran.json["artifacts"]["candidate_log"]).read_text()
    (child,) = (int(found) for found in re.findall(r"child (\d+)", log))
    assert proc.ident(child) is None


def test_a_task_that_was_ended_from_outside_proves_nothing(serving: Night, tmp_path: Path) -> None:
    """It had no time to do its work, and ends with 0 when it is asked to end."""
    script = tmp_path / "task.py"
    script.write_text(
        "import signal, sys\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n"
        "while True:\n    signal.pause()\n"
    )
    job = serving.room / "jobs" / "night.toml"
    command = json.dumps([sys.executable, str(script)])
    job.write_text(
        'question = "Does it end?"\ndowntime_budget = "60s"\n'
        f'[candidate]\nkind = "task"\ncommand = {command}\n'
        '[workload]\nrequest_within = "1s"\n'
    )
    ran = serving.run()
    back(serving, ran, 5)
    assert "did not end within 1 s" in str(ran.json)
    assert ran.claim("exit_code")["state"] == "unproven"


def test_production_that_somebody_starts_again_ends_the_run(serving: Night) -> None:
    """Two of them would not fit: the candidate goes at once, and the run says who came."""
    serving.job("--load-seconds", "60", candidate={"ready_within": "10m"})
    run = serving.begin_and_stop_production()
    serving.start()
    came = serving.serving()
    ran = run.end()
    back(serving, ran, 5)
    assert ran.json["why"].startswith(f"llm is back while it should be down: pid {came}, ")
    assert serving.serving() == came
