"""Telegram as it really answers, through the library and through the standard library alone."""

import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from alerts import plain
from alerts.message import Alert, DeliveryError, stamped
from alerts.telegram import Telegram
from tests.alerts.bot_api import NEW_CHAT, BotApi
from tests.alerts.conftest import CANARY

Send = Callable[..., str]


def by_library(channel: Telegram, text: str, within: float = 5.0) -> str:
    """Send as a run does."""
    return channel.deliver(Alert(key="k", first_line=text), within=within)


def by_plain(channel: Telegram, text: str, within: float = 5.0) -> str:
    """Send as recovery does."""
    return plain.deliver(channel.spec(), text, within)


both = pytest.mark.parametrize("send", [by_library, by_plain])


def other(channel: Telegram, **changes: Any) -> Telegram:
    """The same channel with these keys changed, validated again."""
    return Telegram.model_validate(channel.spec() | changes)


@both
def test_a_message_arrives_as_plain_text(send: Send, telegram: Telegram, bot_api: BotApi) -> None:
    """One request, no getMe in front of it, no parse mode, and the message's number comes back."""
    assert send(telegram, "SERVING since 00:38") == "message 1"
    (request,) = bot_api.requests
    assert (request.method, request.token) == ("sendMessage", CANARY)
    assert request.data["text"] == "SERVING since 00:38"
    assert int(request.data["chat_id"]) == -1001
    assert "parse_mode" not in request.data


@both
def test_a_topic_is_addressed(send: Send, telegram: Telegram, bot_api: BotApi) -> None:
    """A group with topics gets the message in the topic that the config names."""
    send(other(telegram, message_thread_id=7), "SERVING")
    assert int(bot_api.requests[0].data["message_thread_id"]) == 7


@both
@pytest.mark.parametrize(
    "text",
    [
        "200k_mtp*[v2]: models/a_b<c>&d_e_f.gguf is gone",
        "_*[]()~>#+-=|{}.!<& `code",
        "emoji \N{LLAMA}\N{LLAMA} and a byte that is no UTF-8: \udcff.gguf",
        "tab\there",
    ],
)
def test_20_telegram_underscore(send: Send, text: str, telegram: Telegram, bot_api: BotApi) -> None:
    """Case telegram-underscore: names full of markup arrive readable, at the first try."""
    send(telegram, text)
    assert bot_api.texts == [text.replace("\udcff", "\\udcff")]


@settings(
    max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(text=st.text(st.characters(codec=None), max_size=200), times=st.integers(1, 60))
def test_no_text_is_refused(text: str, times: int, telegram: Telegram, bot_api: BotApi) -> None:
    """Whatever a log tail holds, surrogates and 10,000 characters included, Telegram takes it."""
    alert = stamped(Alert(key="k", first_line=text * times), tries=1)
    for send in (by_library, by_plain):
        assert send(telegram, alert.text).startswith("message ")
    assert bot_api.texts[-1].endswith(f"[{alert.ident} · try 2]")


ANSWERS = [
    # reply, permanent, retry_after, uncertain, a part of the text
    ("chat-not-found", True, None, False, "chat not found"),
    ("unauthorized", False, None, False, "token refused"),
    ("not-found", False, None, False, "token refused"),
    ("blocked", True, None, False, "bot was blocked by the user"),
    ("flood", False, 37.0, False, "wait 37 s"),
    ("bad-gateway", False, None, False, "a fault|not from the Bot API"),
    ("portal", False, None, False, "not from the Bot API"),
    ("ok-but-500", False, None, False, "a fault|not from the Bot API"),
    ("drop", False, None, True, "disconnected|closed connection"),
]


@both
@pytest.mark.parametrize(("reply", "permanent", "retry_after", "uncertain", "said"), ANSWERS)
def test_what_each_answer_means(
    send: Send,
    reply: str,
    permanent: bool,
    retry_after: float | None,
    uncertain: bool,
    said: str,
    telegram: Telegram,
    bot_api: BotApi,
) -> None:
    """Each answer of the table is permanent, to be tried later, or perhaps delivered."""
    bot_api.reply = reply
    with pytest.raises(DeliveryError, match=f"(?i){said}") as caught:
        send(telegram, "SERVING")
    error = caught.value
    assert (error.permanent, error.retry_after, error.uncertain) == (
        permanent,
        retry_after,
        uncertain,
    )
    assert len(bot_api.requests) == 1


@both
def test_an_answer_without_a_message_number_is_no_delivery(
    send: Send, telegram: Telegram, bot_api: BotApi
) -> None:
    """A proxy that answers 200 to everything has delivered nothing."""
    bot_api.reply = "empty-object"
    with pytest.raises(DeliveryError):
        send(telegram, "SERVING")


@both
def test_a_group_that_moved_is_followed_and_told(
    send: Send, telegram: Telegram, bot_api: BotApi
) -> None:
    """When a group becomes a supergroup the alert goes to its new id and says how to mend the config."""
    bot_api.reply = "migrate"
    send(telegram, "SERVING")
    assert [int(request.data["chat_id"]) for request in bot_api.requests] == [-1001, NEW_CHAT]
    assert bot_api.texts[0].startswith("SERVING\n")
    assert str(NEW_CHAT) in bot_api.texts[0]


@both
@pytest.mark.parametrize("reply", ["hang", "drip"])
def test_an_answer_that_never_comes_ends_in_time(
    send: Send, reply: str, telegram: Telegram, bot_api: BotApi
) -> None:
    """A server that takes the message and then hangs, or answers byte by byte, costs the time limit."""
    bot_api.reply = reply
    began = time.monotonic()
    with pytest.raises(DeliveryError, match="no answer") as caught:
        send(telegram, "SERVING", within=0.6)
    assert time.monotonic() - began < 2
    assert caught.value.uncertain
    assert not caught.value.permanent


@both
def test_no_server_is_no_delivery(send: Send, telegram: Telegram) -> None:
    """Where nothing listens nothing can have arrived, so it is tried again without a limit."""
    with pytest.raises(DeliveryError) as caught:
        send(other(telegram, api_base="http://127.0.0.1:9"), "SERVING")
    assert not caught.value.uncertain
    assert not caught.value.permanent


@both
def test_a_proxy_of_the_environment_is_not_used(
    send: Send, telegram: Telegram, bot_api: BotApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy variable of somebody's shell neither breaks nor diverts an alert."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "socks://127.0.0.1:9")
    send(telegram, "SERVING")
    assert bot_api.texts == ["SERVING"]


@both
def test_a_proxy_of_the_config_is_used(send: Send, telegram: Telegram, bot_api: BotApi) -> None:
    """The stand-in plays the proxy: it gets the request for a server that does not exist."""
    send(other(telegram, api_base="http://127.0.0.1:9", proxy=bot_api.url), "SERVING")
    assert bot_api.texts == ["SERVING"]


_SELF_SIGNED = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"]
_SELF_SIGNED += ["-subj", "/CN=127.0.0.1"]
_SELF_SIGNED += ["-addext", "subjectAltName=IP:127.0.0.1"]


@both
def test_a_server_that_cannot_show_who_it_is_gets_no_token(
    send: Send, telegram: Telegram, tmp_path: Path
) -> None:
    """A certificate that nobody vouches for ends the connection before the token is sent."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    try:
        subprocess.run(
            [*_SELF_SIGNED, "-keyout", str(key), "-out", str(certificate)],
            check=True,
            capture_output=True,
        )
    except FileNotFoundError:
        pytest.skip("openssl is not installed: no certificate to refuse")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    with BotApi(tls=tls) as server:
        with pytest.raises(DeliveryError, match=r"(?i)certificate") as caught:
            send(other(telegram, api_base=server.url), "SERVING")
        assert server.requests == []
    assert not caught.value.uncertain


def test_a_broken_library_does_not_silence_the_alert(
    telegram: Telegram, bot_api: BotApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a broken upgrade the library does not import; the standard library delivers."""
    monkeypatch.setitem(sys.modules, "telegram", None)
    assert by_library(telegram, "SERVING") == "message 1"
    assert "json" not in bot_api.requests[0].data
    assert bot_api.requests[0].data["link_preview_options"] == {"is_disabled": True}


def test_the_last_resort_needs_the_standard_library_only(
    telegram: Telegram, bot_api: BotApi
) -> None:
    """With no package installed at all, recovery still tells."""
    root = Path(__file__).parents[2]
    program = (
        f"import sys; sys.path.insert(0, {str(root)!r})\n"
        "from alerts import deliver, plain\n"
        f"(channel,) = plain.channels([{telegram.spec()!r}])\n"
        "alert = deliver.stamped(deliver.Alert('k', 'SERVING'), 0)\n"
        "print(channel.deliver(alert, within=5))\n"
    )
    command = [sys.executable, "-I", "-S", "-c", program]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout == "message 1\n"
    assert bot_api.texts[0].startswith("SERVING\n[")
