"""Telling by a command of yours, such as a mailer."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from alerts import plain, program
from alerts.channel import WITHIN, Channel
from alerts.message import Alert


def _program(command: tuple[str, ...]) -> tuple[str, ...]:
    if not command[0].startswith("/"):
        raise ValueError(
            "the program must be an absolute path → cron and systemd have another PATH"
        )
    return command


class Command(Channel):
    """A program that gets the text on its standard input; exit code 0 means delivered."""

    kind: Literal["command"] = "command"
    command: Annotated[tuple[str, ...], Field(min_length=1), AfterValidator(_program)]

    def deliver(self, alert: Alert, *, within: float = WITHIN) -> str:
        """Run it, and wait for its exit code."""
        return plain.within(
            within + 2, lambda tell: tell(program.hand_over(self.command, alert, within))
        )

    def spec(self) -> dict[str, Any]:
        """The channel as recovery uses it."""
        return self.model_dump(mode="json", exclude_none=True)
