"""Telling by a command of yours, such as a mailer. The one place of alerts that starts a process."""

import os
import signal
import subprocess
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from alerts import plain
from alerts.channel import WITHIN, Channel
from alerts.message import Alert, DeliveryError


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
        """Run it. Its output is not kept: a mailer that fails may print its password."""
        return plain.within(within + 2, lambda tell: tell(self._run(alert, within)))

    def _run(self, alert: Alert, within: float) -> str:
        told = {
            "RUNNER_ALERT_KEY": alert.key,
            "RUNNER_ALERT_KIND": alert.kind,
            "RUNNER_ALERT_FIRST_LINE": alert.first_line,
        }
        name = self.command[0]
        try:
            process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=os.environ | told,
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            raise DeliveryError(
                f"{name}: {os.strerror(error.errno or 0)}", permanent=True
            ) from None
        with process:
            try:
                process.communicate(alert.sendable.encode(), timeout=within)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # its children too, or they would linger
                raise DeliveryError(
                    f"{name}: not done within {within:g} s", uncertain=True
                ) from None
        if process.returncode:
            raise DeliveryError(f"{name}: exit code {process.returncode}")
        return f"{name} took it"
