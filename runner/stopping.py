"""Signals as a wish: the first asks for an orderly end, a second changes nothing."""

import signal
from types import FrameType

HANDLED = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)


class StopFlag:
    """Whether somebody asked for an end, and by which signal.

    The handler only sets an attribute; whoever waits looks at it. Nothing is blocked or masked: a
    mask would be inherited by every process we start.
    """

    def __init__(self) -> None:
        self.by: str | None = None

    def ask(self, by: str) -> None:
        """Ask for an end; the first one who asks is remembered."""
        if self.by is None:
            self.by = by

    def __call__(self) -> str | None:
        """Why to end, or None."""
        return f"interrupted by {self.by}" if self.by else None

    def install(self) -> None:
        """Take HUP, INT and TERM as a wish from now on."""
        for number in HANDLED:
            signal.signal(number, self._handle)

    def _handle(self, number: int, _: FrameType | None) -> None:
        self.ask(signal.Signals(number).name.removeprefix("SIG"))
