"""No token or key in any text that leaves the process (promise P10)."""

import json
import os
import time

import pytest

from runner import secrets

TOKEN = "123456789:AAabcdefghijklmnopqrstuvwxyz012345678"


@pytest.mark.parametrize(
    "text",
    [
        f"POST https://api.telegram.org/bot{TOKEN}/sendMessage 401",
        f"token = {TOKEN}",
        "Authorization: Bearer {canary}",
        "llama-server --api-key {canary} --port 8080",
        "llama-server --api-key={canary}",
        '{"api_key": "{canary}"}',
        "{'password': '{canary}'}",
        "HF_TOKEN={canary} llama-server",
        "http://user:{canary}@127.0.0.1:8080/",
        "GET /models?token={canary}&x=1",
        "GET /token={canary}",
        "env: llm-api-key: {canary}",
        "sk-{canary}{canary}",
        "hf_{canary}{canary}",
    ],
)
def test_the_usual_shapes_of_secrets_are_hidden(text: str) -> None:
    """Each of these was seen in somebody's public log."""
    canary = "c4n4ryc4n4ry"
    safe = secrets.redact(text.replace("{canary}", canary))
    assert canary not in safe
    assert TOKEN.partition(":")[2] not in safe
    assert secrets.HIDDEN in safe


@pytest.mark.parametrize(
    "text",
    [
        "max_tokens = 256, 196,000 tokens filled",
        "drafted tokens: 12",
        "token = { credential = 'telegram-token' }",
        "llama-server --api-key-file /etc/key --port 8080",
        "acceptance 0.62 · /models/mtp/model.gguf",
        "/etc/runner/telegram-token: No such file or directory",
        "/etc/passwd: Not a directory",
    ],
)
def test_what_is_no_secret_stays_readable(text: str) -> None:
    """A report without its numbers would be no report."""
    assert secrets.redact(text) == text


def test_a_secret_known_by_value_is_hidden_wherever_it_turns_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also in the middle of a word that looks like nothing."""
    monkeypatch.setattr(secrets, "_kept", set())
    secrets.keep(["hunter2hunter2", "abc"])
    assert secrets.redact("path/hunter2hunter2/abc") == f"path/{secrets.HIDDEN}/abc"


def test_command_lines_keep_their_shape() -> None:
    """Only the value is hidden; which flag was given is evidence."""
    argv = ["llama-server", "--api-key", "abc", "-m", "/m.gguf", "--api-key=abc"]
    assert secrets.redact_argv(argv) == [
        "llama-server",
        "--api-key",
        secrets.HIDDEN,
        "-m",
        "/m.gguf",
        f"--api-key={secrets.HIDDEN}",
    ]


def test_a_whole_report_can_be_redacted() -> None:
    """Numbers, lists and keys stay; values of secret keys go."""
    report = {"api_key": "abc", "n": [1, None, f"bot{TOKEN}"], "max_tokens": 256}
    assert secrets.redact_tree(report) == {
        "api_key": secrets.HIDDEN,
        "n": [1, None, secrets.HIDDEN],
        "max_tokens": 256,
    }


@pytest.mark.parametrize(
    "part", ["-", "a-", "a.", "--token", "token=", "http://", "a://", "sk-", "bearer ", "1:", " "]
)
def test_a_long_line_is_looked_through_at_once(part: str) -> None:
    """A line of 16,000 dashes once took 37 seconds; a candidate may write what it likes."""
    line = part * (200_000 // len(part))
    began = time.process_time()
    secrets.redact(line)
    assert time.process_time() - began < 3


def test_a_flag_is_one_where_a_word_begins() -> None:
    """With one dash, two, or as many as a rule above a table has."""
    for flag in ("-token", "--token", "----token", "'--token", "(--api-key"):
        assert secrets.redact(f"x {flag} abc") == f"x {flag} {secrets.HIDDEN}"


def test_what_is_redacted_can_be_written_down() -> None:
    """Half a character of a server's JSON, or a byte of a file's name, once ended a run unsaid."""
    name = os.fsdecode(b"/models/\xff.gguf")
    said = secrets.redact_tree({"found": [f"{name} is gone", "half \ud83d"]})
    assert json.dumps(said, ensure_ascii=False).encode()
    assert secrets.redact(name) == "/models/\\udcff.gguf"


def test_a_text_that_holds_a_secret_is_known() -> None:
    """Whatever else would be changed to write it down is none."""
    assert secrets.holds("HF_TOKEN=abcdef")
    assert not secrets.holds(os.fsdecode(b"PATH=/opt/\xff"))
