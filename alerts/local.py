"""Telling on this box: the terminal in front of the person, and a file. Knows no run."""

import sys
from typing import Any, ClassVar, Literal

from alerts import plain
from alerts.channel import WITHIN, AbsolutePath, Channel
from alerts.message import Alert, DeliveryError


class Terminal(Channel):
    """The terminal that the runner was started in, if there is one."""

    far: ClassVar[bool] = False

    kind: Literal["terminal"] = "terminal"

    def deliver(self, alert: Alert, *, within: float = WITHIN) -> str:
        """Write to standard error, since standard output may be somebody's JSON."""
        if not sys.stderr.isatty():
            raise DeliveryError("no terminal is attached")
        return plain.within(within, lambda tell: tell(_shown(alert.sendable)))


class File(Channel):
    """A file that grows by a block of text, or by a line of JSON, for each alert."""

    far: ClassVar[bool] = False

    kind: Literal["file"] = "file"
    path: AbsolutePath
    format: Literal["text", "json"] = "text"

    def deliver(self, alert: Alert, *, within: float = WITHIN) -> str:
        """Append, and return when the disk has it."""
        return plain.deliver(self.spec(), alert.sendable, within, alert)

    def spec(self) -> dict[str, Any]:
        """All of it: recovery appends in the same way."""
        return self.model_dump(exclude_none=True, mode="json")


def _shown(text: str) -> str:
    sys.stderr.write(f"\n{text}\n")
    sys.stderr.flush()
    return "shown on the terminal"
