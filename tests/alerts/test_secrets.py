"""The token must not be seen: not in logs, not in errors, not in a traceback with its locals."""

import logging
import traceback
from pathlib import Path

import pytest

from alerts import plain
from alerts.message import HIDDEN, Alert, DeliveryError, clean
from alerts.telegram import Telegram
from tests.alerts.bot_api import BotApi
from tests.alerts.conftest import CANARY

ODD = "canary-of-a-gateway-without-the-usual-shape"
REPLIES = ["ok", "chat-not-found", "unauthorized", "not-found", "blocked", "flood", "migrate"]
REPLIES += ["bad-gateway", "portal", "empty-object", "hang", "drop", "drip", "refused"]


def attempt(channel: Telegram, by: str) -> str:
    """Everything that a failing delivery could show to anybody, locals of all frames included."""
    try:
        if by == "plain":
            plain.deliver(channel.spec(), "SERVING", 0.4)
        else:
            channel.deliver(Alert(key="k", first_line="SERVING"), within=0.4)
    except DeliveryError as error:
        shown = traceback.TracebackException.from_exception(error, capture_locals=True)
        return "".join([*shown.format(), repr(error), repr(error.__context__), repr(vars(error))])
    return ""


@pytest.mark.parametrize("reply", REPLIES)
@pytest.mark.parametrize("by", ["library", "plain"])
@pytest.mark.parametrize("canary", [CANARY, ODD])
def test_the_token_is_seen_nowhere(
    canary: str,
    by: str,
    reply: str,
    telegram: Telegram,
    token_file: Path,
    bot_api: BotApi,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Whatever the far side does, with all logging on, no output holds the token."""
    token_file.write_text(canary)
    for name in ("", "httpx", "httpcore", "telegram"):  # as somebody might, before the alert
        logging.getLogger(name).setLevel(logging.DEBUG)
    bot_api.reply = reply
    if reply == "refused":
        telegram = Telegram.model_validate(telegram.spec() | {"api_base": "http://127.0.0.1:9"})
    shown = attempt(telegram, by) + repr(telegram) + telegram.model_dump_json()
    streams = capfd.readouterr()
    for text in (shown, caplog.text, streams.out, streams.err):
        assert canary not in text
        assert canary[:20] not in text
    assert reply == "refused" or bot_api.requests[0].token == canary


def test_a_token_in_the_text_of_an_alert_is_hidden() -> None:
    """A log tail that quotes the bot's address would post the token into the chat."""
    text = clean(f"POST https://api.telegram.org/bot{CANARY}/sendMessage")
    assert text == f"POST https://api.telegram.org/{HIDDEN}/sendMessage"


@pytest.mark.parametrize("content", ["", "none", "two words", "binary \x00"])
def test_a_secret_file_without_a_token_is_told_by_its_name(content: str, tmp_path: Path) -> None:
    """Empty, the placeholder of the unit files, or no token: the error names the file only."""
    path = tmp_path / "token"
    path.write_text(content)
    with pytest.raises(DeliveryError) as caught:
        plain.read_secret({"file": str(path)})
    assert caught.value.permanent
    assert str(caught.value) == f"{path}: empty or not a token"


def test_a_missing_secret_says_where_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """File, credential and environment variable each say what is missing."""
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    for ref, said in (
        ({"file": str(tmp_path / "no")}, "No such file"),
        ({"credential": "telegram-token"}, "CREDENTIALS_DIRECTORY"),
        ({"env": "RUNNER_NO_SUCH_VARIABLE"}, "RUNNER_NO_SUCH_VARIABLE: not set"),
    ):
        with pytest.raises(DeliveryError, match=said):
            plain.read_secret(ref)


def test_a_credential_of_systemd_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory that systemd hands over holds the secret under its name."""
    (tmp_path / "telegram-token").write_text(f"{CANARY}\n")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    monkeypatch.setenv("RUNNER_TEST_TOKEN", CANARY)
    assert plain.read_secret({"credential": "telegram-token"}) == CANARY
    assert plain.read_secret({"env": "RUNNER_TEST_TOKEN"}) == CANARY
