"""What a person reads: the first line says whether production serves now, and nothing is invented."""

import json
from pathlib import Path
from typing import Any

import pytest

from preflight.verdict import State, Verdict
from runner.report import headline as first
from runner.report.alert import alert_body, alert_text
from runner.report.files import write_result
from runner.report.headline import headline
from runner.report.page import page
from runner.report.plan import plan_lines

TOKEN = "123456789:AAabcdefghijklmnopqrstuvwxyz012345678"
SERVICE = {"name": "llm", "state": "serving", "identity": "same", "why": "", "notes": []}
STOPPED = {
    "state": "serving",
    "identity": "same",
    "stopped_at": "2026-11-03T00:01:00+01:00",
    "serving_at": "2026-11-03T00:38:05+01:00",
    "downtime_s": 2225.0,
    "services": [SERVICE],
}
UNTOUCHED = {
    "state": "serving",
    "identity": "same",
    "stopped_at": None,
    "serving_at": None,
    "downtime_s": None,
    "services": [SERVICE],
}


def speed(temperature: float, verdict: str, ratio: float) -> dict[str, Any]:
    """One temperature of a throughput claim."""
    comparison = {"verdict": verdict, "ratio_of_medians": ratio, "bound": 0.03}
    return {"temperature": temperature, "median": 41.2, "comparison": comparison}


CLAIMS = [
    {
        "kind": "speculation",
        "state": "proven",
        "said": "draft-mtp speculation ran",
        "wanted": "drafts",
        "found": "drafts",
        "numbers": {"acceptance": 0.62},
        "evidence": [{"source": "timings", "said": f"draft_n {n}"} for n in range(5)],
    },
    {
        "kind": "context",
        "state": "proven",
        "said": "context 200,000 tokens",
        "wanted": "200000",
        "found": "200000",
        "numbers": {"filled": 196_000, "filled_share": 0.98},
        "evidence": [],
    },
    {
        "kind": "throughput",
        "state": "proven",
        "said": "faster",
        "wanted": "faster",
        "found": "faster",
        "numbers": {"temperatures": [speed(0.0, "faster", 1.243), speed(0.7, "even", 1.01)]},
        "evidence": [],
    },
]


def run(outcome: str = "proven", code: int = 0, **changed: Any) -> dict[str, Any]:
    """A result object as a run leaves it."""
    whole = {
        "run": "20261103-0000-200k-mtp",
        "job": "200k-mtp",
        "outcome": outcome,
        "exit_code": code,
        "trigger": "schedule",
        "started": "2026-11-03T00:00:00+01:00",
        "ended": "2026-11-03T00:38:06+01:00",
        "production": STOPPED,
        "checks": [],
        "claims": CLAIMS,
        "measurements": {},
        "artifacts": {},
    }
    return {**whole, **changed}


def check(state: State, subject: str, found: str, **more: Any) -> dict[str, Any]:
    """One verdict as JSON."""
    return Verdict("file.exists", state, subject, "a readable file", found, **more).to_json()


DOWN = {
    **STOPPED,
    "state": "down",
    "stopped_at": "2026-11-03T00:36:00+01:00",
    "serving_at": None,
    "downtime_s": None,
    "services": [
        {**SERVICE, "name": "embed"},
        {
            **SERVICE,
            "state": "down",
            "why": "llama.service exit 1: failed to open /models/v3/00033.gguf",
            "tries": 3,
        },
    ],
}


@pytest.mark.parametrize(
    ("result", "line"),
    [
        (
            run(),
            "SERVING since 00:38 · 200k-mtp PROVEN · temp 0: +24 % · temp 0.7: even (±3 %) · down 37m",
        ),
        (run("refused", 3, production=UNTOUCHED), "SERVING, never touched · 200k-mtp REFUSED"),
        (
            run("production down", 10, production=DOWN),
            "DOWN since 00:36 · llm does not start · 200k-mtp",
        ),
        (
            run("broken", 5, claims=[]),
            "SERVING since 00:38 · 200k-mtp BROKEN · down 37m",
        ),
        (
            run("refuted", 6, claims=[{**CLAIMS[0], "state": "refuted"}]),
            "SERVING since 00:38 · 200k-mtp REFUTED · speculation refuted · down 37m",
        ),
        (
            run("interrupted", 137, claims=[]),
            "SERVING since 00:38 · 200k-mtp INTERRUPTED (killed or rebooted) · down 37m",
        ),
        (
            run("interrupted", 130, production=UNTOUCHED, claims=[]),
            "SERVING, never touched · 200k-mtp INTERRUPTED (INT)",
        ),
        (
            run("refused", 3, production={**UNTOUCHED, "state": "down-before"}),
            "DOWN before us, never touched · 200k-mtp REFUSED",
        ),
        (
            run(production={"state": "none", "services": []}, claims=CLAIMS[:1]),
            "NO PRODUCTION on this box · 200k-mtp PROVEN",
        ),
        (
            run("skipped", 4, production={"state": "unknown", "services": []}, claims=[]),
            "NOT LOOKED AT · 200k-mtp SKIPPED",
        ),
        (
            run(
                "production down",
                10,
                production={
                    **STOPPED,
                    "state": "degraded",
                    "services": [{**SERVICE, "state": "degraded"}],
                },
            ),
            "DEGRADED since 00:38 · llm not as before · 200k-mtp · down 37m",
        ),
        (
            run("bug", 70, claims=[], production={}),
            "UNKNOWN whether production serves · 200k-mtp BUG",
        ),
    ],
)
def test_the_first_line_says_whether_production_serves_now(
    result: dict[str, Any], line: str
) -> None:
    """It is all that a phone shows."""
    assert headline(result) == line


def test_a_context_that_was_hardly_filled_is_said_in_the_first_line() -> None:
    """Allocated is not filled; whoever reads PROVEN must not believe more than was shown."""
    claim = {**CLAIMS[1], "numbers": {"filled": 10_000, "filled_share": 0.05}}
    assert " · 5 % of the context filled · " in headline(run(claims=[claim]))


def test_a_first_line_is_never_longer_than_a_message_preview() -> None:
    """What matters less is left out, not what matters more."""
    line = headline(run(job="j" * 60, claims=[CLAIMS[2]] * 9))
    assert len(line) <= first.LIMIT
    assert line.startswith("SERVING since 00:38 · jjj")


def test_an_unlike_production_is_never_called_serving_alone() -> None:
    """It answers, but it is another one."""
    line = headline(run(production={**STOPPED, "identity": "different"}))
    assert line.startswith("SERVING since 00:38, but NOT THE SAME")


def test_a_refusal_names_everything_that_is_wrong_and_what_to_do() -> None:
    """The incident's own alert: one message, every finding, the way to mend it."""
    checks = [
        check(State.PASS, "weights /models/mtp/model.gguf", "is there"),
        check(
            State.FAIL,
            "draft /models/mtp/draft.gguf",
            "is gone since 19:42",
            who="directory changed by anna",
            remedy="restore /models/mtp/draft.gguf or edit jobs/200k-mtp.toml",
        ),
        check(State.FAIL, "port 8080", "is anna's pid 4711, not llama.service"),
        check(State.UNKNOWN, "GPU", "nvidia-smi did not answer within 5 s"),
        check(State.SKIPPED, "the disk", "not looked at: the files ring before it refused"),
        check(
            State.SKIPPED,
            "127.0.0.1:8081",
            "not looked at: the files ring before it refused; seen in passing: held by pid 9",
            who="anna, since 20:41",
        ),
    ]
    text = alert_text(run("refused", 3, production=UNTOUCHED, checks=checks, claims=[]))
    assert text.splitlines() == [
        "SERVING, never touched · 200k-mtp REFUSED",
        "draft /models/mtp/draft.gguf: is gone since 19:42 [directory changed by anna]",
        "port 8080: is anna's pid 4711, not llama.service",
        "GPU: not known: nvidia-smi did not answer within 5 s",
        "127.0.0.1:8081: held by pid 9 [anna, since 20:41]",
        "To fix: restore /models/mtp/draft.gguf or edit jobs/200k-mtp.toml",
        "runner show 20261103-0000-200k-mtp",
    ]


def test_an_accepted_unknown_is_told_every_time() -> None:
    """Whoever accepted it must keep reading that it was never looked at."""
    accepted = check(State.UNKNOWN, "GPU", "no driver", evidence=("accepted: no GPU here",))
    text = alert_text(run("broken", 5, checks=[accepted]))
    assert "not known, and accepted: GPU (no GPU here)" in text
    refused = alert_text(run("refused", 3, checks=[accepted], production=UNTOUCHED))
    assert "not known: no driver" not in refused


def test_production_down_says_why_what_else_serves_and_what_to_run() -> None:
    """The most important text there is."""
    lines = alert_text(run("production down", 10, production=DOWN)).splitlines()
    assert lines[:5] == [
        "DOWN since 00:36 · llm does not start · 200k-mtp",
        "llm: llama.service exit 1: failed to open /models/v3/00033.gguf · 3 tries",
        "embed serves",
        "no job fires until you act; on the box: runner recover",
        "runner show 20261103-0000-200k-mtp",
    ]


def test_a_refuted_run_names_the_claims_that_failed() -> None:
    """With both values side by side."""
    claim = {**CLAIMS[1], "state": "refuted", "wanted": "200000 tokens", "found": "32768 tokens"}
    text = alert_text(run("refuted", 6, claims=[CLAIMS[0], claim], why="n_ctx was shrunk"))
    assert "context refuted: wanted 200000 tokens, found 32768 tokens" in text
    assert "speculation" not in text
    assert "n_ctx was shrunk" in text


def test_production_that_was_down_before_us_is_not_started_and_that_is_said() -> None:
    """It may be down on purpose."""
    text = alert_text(run("refused", 3, production={**UNTOUCHED, "state": "down-before"}))
    assert "it was down before us; nothing was started" in text


def test_an_alert_holds_no_secret_and_no_escape_sequence() -> None:
    """File names and log lines are other people's words (P10)."""
    why = f"bot{TOKEN} \x1b[2J --api-key c4n4ry"
    body = alert_body(run("broken", 5, why=why, headline="SERVING\x1b[31m"))
    assert TOKEN not in json.dumps(body)
    assert "c4n4ry" not in body["text"]
    assert "\x1b" not in body["text"]
    assert body["first_line"] == r"SERVING\x1b[31m"
    assert body["kind"] == "broken"
    assert body["text"].startswith(body["first_line"])


def test_the_page_shows_claims_with_their_first_evidence_and_hides_what_passed() -> None:
    """`show` is for reading, `show --all` for auditing."""
    checks = [check(State.PASS, "a", "ok"), check(State.WARN, "clock", "is 3 s off")]
    result = run(checks=checks, headline="SERVING", notes=["a note"])
    group = {"temperature": 0.0, "fill": 0.95, "filled_tokens": 190_000, "n": 9}
    group |= {"decoding_tps": 41.23, "prompt_tps": None, "acceptance": 0.618}
    bare = {"temperature": 0.7, "fill": None, "n": 3}
    result["measurements"] = {
        "candidate": {"ready_s": 1.5, "build": "b1-7e4", "replies": [group, bare]}
    }
    result["artifacts"] = {"candidate_log": "/state/runs/r/candidate.log"}
    lines = page(result, lambda _, text: text)
    text = "\n".join(lines)
    assert "time      2026-11-03 00:00 to 00:38 (38m)" in text
    assert "production: serving, identity same, stopped 00:01, serving 00:38, down 37m" in text
    assert "checks: 1 pass, 1 warn" in text
    assert "is 3 s off" in text
    assert "PASS" not in text
    assert "timings: draft_n 2" in text
    assert "and 2 more: runner show --all" in text
    assert "  candidate: build b1-7e4, ready after 1.5s" in text
    assert (
        "    temperature 0, 95 % filled (190,000 tokens): decoding 41.2 tok/s, acceptance 0.62 (of 9)"
        in text
    )
    assert "    temperature 0.7: nothing counted (of 3)" in text
    assert "candidate_log: /state/runs/r/candidate.log" in text
    assert "note      a note" in text
    whole = "\n".join(page(result, lambda _, text: text, whole=True))
    assert "timings: draft_n 4" in whole
    assert "PASS file.exists" in whole


def test_a_run_that_goes_on_has_a_page_too() -> None:
    """What is known of it so far; nothing is made up for the rest."""
    known = dict.fromkeys(("outcome", "exit_code", "headline", "ended"))
    lines = page(
        {"run": "r", "job": "j", "trigger": "manual", "started": None, **known}, lambda _, t: t
    )
    assert "time      still running" in lines


def test_result_json_is_written_whole_and_without_secrets(tmp_path: Path) -> None:
    """0600, and readable by any program."""
    path = write_result(tmp_path, run(why=f"bot{TOKEN}"))
    assert json.loads(path.read_text())["job"] == "200k-mtp"
    assert TOKEN not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["result.json"]


def test_a_plan_shows_exact_commands_without_their_secrets() -> None:
    """What is printed can be pasted into a shell, but for the key."""
    plan = {
        "job": "200k-mtp",
        "checks": [{"id": "file.exists", "subject": "weights /m.gguf"}],
        "stop": [{"service": "llm", "command": ["systemctl", "stop", "llama.service"]}],
        "start": ["/opt/llama server", "--api-key", "c4n4ry", "-c", "200000"],
        "budgets": {"downtime_s": 5400.0, "asked": None},
    }
    text = "\n".join(plan_lines(plan))
    assert "nothing was touched" in text
    assert "  file.exists: weights /m.gguf" in text
    assert "    command: systemctl stop llama.service" in text
    assert "'/opt/llama server' --api-key '[hidden]' -c 200000" in text
    assert "  downtime: 1h30m" in text
