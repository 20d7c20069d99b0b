"""What `[[alerts.channel]]` may say, and how it is refused without showing a secret."""

from typing import Any

import pytest
from pydantic import ConfigDict, TypeAdapter, ValidationError

from alerts.channel import SecretRef
from alerts.local import File
from alerts.message import KINDS
from alerts.table import AnyChannel, channels_to_specs
from alerts.telegram import Telegram
from tests.alerts.conftest import CANARY

# As a settings model must: pydantic shows the input where the outermost model does not forbid it.
CHANNEL: TypeAdapter[AnyChannel] = TypeAdapter(
    AnyChannel, config=ConfigDict(hide_input_in_errors=True)
)
TOKEN = {"credential": "telegram-token"}


def telegram(**changes: Any) -> dict[str, Any]:
    """A good channel as TOML gives it, with these keys changed."""
    return {"kind": "telegram", "token": TOKEN, "chat_id": -1001234567890} | changes


def test_the_shortest_useful_channel_is_taken() -> None:
    """Kind, token and chat are enough; the rest has defaults."""
    channel = CHANNEL.validate_python(telegram())
    assert isinstance(channel, Telegram)
    assert channel.api_base == "https://api.telegram.org"
    assert channel.on is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (telegram(token=CANARY), "never written into the config"),
        (telegram(token={"file": CANARY}), "absolute path"),
        (telegram(token={"env": CANARY}), "not the name of a secret"),
        (telegram(token={"credential": CANARY}), "not the name of a secret"),
        (telegram(token={"value": CANARY}), "Extra inputs"),
        (telegram(tokn=CANARY), "Extra inputs"),
        (telegram(chat_id=CANARY), "not a chat"),
        (telegram(api_base=f"https://x.example/?token={CANARY}"), "leave out user"),
        (telegram(proxy=f"http://u:{CANARY}@x.example:1"), "without a password"),
    ],
)
def test_a_wrong_channel_is_refused_without_showing_the_secret(
    given: dict[str, Any], said: str
) -> None:
    """Wherever somebody puts the token by mistake, the error does not repeat it."""
    with pytest.raises(ValidationError, match=said) as caught:
        CHANNEL.validate_python(given)
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (telegram(token={}), "exactly one"),
        (telegram(token={"file": "/a", "env": "B"}), "exactly one"),
        (telegram(token={"file": "~/token"}), "absolute path"),
        (telegram(token={"file": "/etc/tok*"}), "absolute path"),
        (telegram(chat_id="-1001234"), "without quotes"),
        (telegram(chat_id=True), "not a chat"),
        (telegram(api_base="api.telegram.org"), "not a server"),
        (telegram(api_base="http://api.telegram.org"), "use https"),
        (telegram(api_base="http://localhost:8081"), "use https"),
        (telegram(proxy="socks5://127.0.0.1:1"), "not a proxy"),
        (telegram(on=[]), "empty list"),
        (telegram(on=["refuse"]), "no such kind of alert: refuse → use proven, refused"),
        ({"kind": "file", "path": "alerts.txt"}, "absolute path"),
        ({"kind": "file", "path": "/a", "format": "xml"}, "format"),
        ({"kind": "command", "command": []}, "command"),
        ({"kind": "command", "command": ["mail", "me"]}, "absolute path"),
        ({"kind": "pigeon"}, "'telegram', 'file', 'terminal', 'command'"),
    ],
)
def test_a_wrong_value_says_what_is_expected(given: dict[str, Any], said: str) -> None:
    """Each refusal names the key and what to write instead."""
    with pytest.raises(ValidationError, match=said):
        CHANNEL.validate_python(given)


@pytest.mark.parametrize(
    "base", ["http://127.0.0.1:1", "http://10.0.0.7:8081/x/", "http://[::1]:2"]
)
def test_a_bot_server_nearby_may_speak_http(base: str) -> None:
    """An own Bot API server has no certificate; on the loopback and in the house that is fine."""
    assert CHANNEL.validate_python(telegram(api_base=base)) == CHANNEL.validate_python(
        telegram(api_base=base.rstrip("/"))
    )


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_alert_can_be_named(kind: str) -> None:
    """`on` takes each outcome, incidents and tests."""
    assert CHANNEL.validate_python(telegram(on=[kind])).on == (kind,)


def test_recovery_gets_the_channels_and_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """`recovery.json` names where the token lies; kinds that need more than it has are left out."""
    monkeypatch.setenv("BOT_TOKEN", CANARY)
    channels = [
        CHANNEL.validate_python(given)
        for given in (
            telegram(token={"env": "BOT_TOKEN"}, message_thread_id=5, on=["refused"]),
            {"kind": "terminal"},
            {"kind": "file", "path": "/var/log/alerts"},
            {"kind": "command", "command": ["/usr/bin/mail", "me"]},
        )
    ]
    assert channels_to_specs(channels) == [
        {
            "kind": "telegram",
            "on": ["refused"],
            "token": {"env": "BOT_TOKEN"},
            "chat_id": -1001234567890,
            "message_thread_id": 5,
            "api_base": "https://api.telegram.org",
        },
        {"kind": "file", "path": "/var/log/alerts", "format": "text"},
        {"kind": "command", "command": ["/usr/bin/mail", "me"]},
    ]
    assert SecretRef(env="BOT_TOKEN").read() == CANARY


def test_channels_are_frozen() -> None:
    """A channel cannot change after the config was judged."""
    channel = File(path="/a")
    with pytest.raises(ValidationError):
        channel.path = "/b"  # type: ignore[misc] - the point of the test
    assert SecretRef(env="A") == SecretRef(env="A")
