"""Shared by the tests of alerts: the stand-in Bot API, a token that must never be seen, a row."""

from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from alerts.telegram import Telegram
from tests.alerts.bot_api import BotApi

CANARY = "987654321:CANARY-aBcDeFgHiJkLmNoPqRsTuVwXyZ01"


@dataclass(frozen=True)
class FakeRow:
    """A row as the journal hands it over."""

    id: int = 1
    key: str = "run-1:refused"
    created: float = 0.0
    body: dict[str, Any] = field(default_factory=lambda: {"text": "SERVING", "kind": "refused"})
    tries: int = 0
    next_at: float = 0.0
    last_error: str | None = None
    sent_at: float | None = None


@pytest.fixture
def bot_api() -> Generator[BotApi]:
    """A Bot API that takes everything, until told otherwise."""
    with BotApi() as api:
        yield api


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    """A file with a token that no output may ever show."""
    path = tmp_path / "token"
    path.write_text(CANARY + "\n")
    return path


@pytest.fixture
def telegram(bot_api: BotApi, token_file: Path) -> Telegram:
    """The channel as a config would make it, pointed at the stand-in."""
    return Telegram.model_validate(
        {"token": {"file": str(token_file)}, "chat_id": -1001, "api_base": bot_api.url}
    )
