"""The table of channel kinds. A new kind is one file, one line here, one test file."""

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import Field

from alerts.channel import Channel
from alerts.command import Command
from alerts.local import File, Terminal
from alerts.telegram import Telegram

AnyChannel = Annotated[Telegram | File | Terminal | Command, Field(discriminator="kind")]


def channels_to_specs(channels: Iterable[Channel]) -> list[dict[str, Any]]:
    """The channels that recovery can use, as plain JSON for `recovery.json`; holds no secret."""
    return [spec for channel in channels if (spec := channel.spec()) is not None]
