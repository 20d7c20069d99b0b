"""Telling by a program of a person's own. Standard library only: recovery tells by it, too.

The one place of alerts that starts a process.
"""

import os
import signal
import subprocess
from collections.abc import Sequence

from alerts.message import Alert, DeliveryError, clean, clip


def hand_over(command: Sequence[str], alert: Alert, within: float) -> str:
    """Run it with the text on its standard input; what is known of the delivery.

    Its output is not kept: a mailer that fails may print its password. Raises DeliveryError.
    """
    told = {
        "RUNNER_ALERT_KEY": clip(clean(alert.key)),
        "RUNNER_ALERT_KIND": clip(clean(alert.kind)),
        "RUNNER_ALERT_FIRST_LINE": clip(clean(alert.first_line)),
    }
    name = command[0]
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | told,
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        raise DeliveryError(f"{name}: {os.strerror(error.errno or 0)}", permanent=True) from None
    with process:
        try:
            process.communicate(alert.sendable.encode(), timeout=within)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # its children too, or they would linger
            raise DeliveryError(f"{name}: not done within {within:g} s", uncertain=True) from None
    if process.returncode:
        raise DeliveryError(f"{name}: exit code {process.returncode}")
    return f"{name} took it"
