"""The answer: its one line, its JSON, and what it permits."""

import json

import pytest

from preflight.verdict import BlastRadius, State, Verdict, accept

ANSWER = Verdict(
    "port.owner",
    State.FAIL,
    "127.0.0.1:8080",
    "llm",
    "held by pid 4711 python3 proxy.py",
    remedy="ask anna",
    radius=BlastRadius.PORTS,
    who="anna, pid 4711, since 20:41",
    evidence=("a line",),
    seen="never shown",
)


def test_the_message_has_the_pattern_of_every_report() -> None:
    """State, id, subject, found, wanted, who and what to do, in this order."""
    assert ANSWER.message() == (
        "FAIL port.owner: 127.0.0.1:8080 — held by pid 4711 python3 proxy.py, wanted llm "
        "[anna, pid 4711, since 20:41] → ask anna"
    )


def test_a_long_path_leaves_room_for_what_was_found() -> None:
    """A phone shows 100 characters: the file's name and its fault have to be among them."""
    path = "/srv/models/huggingface/hub/models--org--name/snapshots/ab12cd34/weights/mtp-draft.gguf"
    message = Verdict(
        "file.exists", State.FAIL, f"draft model {path}", "a file", "is gone"
    ).message()
    assert "mtp-draft.gguf — is gone" in message[:100]


def test_json_has_exactly_the_public_keys() -> None:
    """The gate's fingerprint stays inside; everything else is there for machines."""
    said = ANSWER.to_json()
    assert list(said) == [
        "id", "state", "subject", "wanted", "found", "remedy", "radius", "took_ms", "evidence",
        "who", "message",
    ]  # fmt: skip
    assert said["radius"] == "ports"
    assert "never shown" not in json.dumps(said)


def test_names_with_escape_codes_are_shown_and_not_obeyed() -> None:
    """A file may be called anything; a terminal and an alert must not obey it."""
    evil = "/m/\x1b[2J\nFAIL forged\udcff.gguf"
    verdict = Verdict("file.exists", State.FAIL, evil, "a file", "is gone", evidence=(evil,))
    for text in (verdict.message(), json.dumps(verdict.to_json(), ensure_ascii=False)):
        assert "\x1b" not in text
        assert "\n" not in text
        assert "\\x1b[2J\\nFAIL" in text.replace("\\\\", "\\")
        text.encode()


@pytest.mark.parametrize(
    ("state", "refuses"),
    [
        (State.PASS, False),
        (State.WARN, False),
        (State.SKIPPED, False),
        (State.FAIL, True),
        (State.UNKNOWN, True),
    ],
)
def test_only_fail_and_unknown_refuse(state: State, refuses: bool) -> None:
    """P8: unknown is not pass."""
    assert Verdict("x", state, "s", "w", "f").refuses is refuses


def test_an_accepted_unknown_carries_its_reason_everywhere() -> None:
    """It blocks no more, and every report says why."""
    verdict = accept(
        Verdict("gpu.budget", State.UNKNOWN, "GPU", "2 GiB", "?"), "WSL, looked myself"
    )
    assert not verdict.refuses
    assert verdict.accepted == "WSL, looked myself"
    assert "accepted: WSL, looked myself" in verdict.message()
    assert "accepted: WSL, looked myself" in verdict.to_json()["evidence"]


def test_a_fail_cannot_be_accepted() -> None:
    """Only what could not be looked at may be accepted, never what was seen."""
    assert accept(Verdict("x", State.FAIL, "s", "w", "f"), "because").refuses


@pytest.mark.parametrize(
    "path",
    [
        "/models/mtp/" + "x" * 240 + ".gguf",
        "/" + "deep/" * 60 + "Qwen3.8-UD-Q4_K_XL-00001-of-00033.gguf",
        "/models/a.gguf",
    ],
)
def test_however_long_a_path_is_the_first_hundred_characters_say_what_is_wrong(path: str) -> None:
    """A phone shows no more; the name that a person knows is at its end."""
    said = Verdict("file.exists", State.FAIL, f"draft model {path}", "a file", "does not exist")
    assert "does not exist" in said.message()[:100]
    assert path[-12:] in said.message()[:100]
