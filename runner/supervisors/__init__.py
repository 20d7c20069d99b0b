"""How services are stopped and started. A new kind is one file here, one driver, one line below."""

from typing import Annotated

from pydantic import Field

from runner.supervisors.command import Command
from runner.supervisors.process import Process
from runner.supervisors.systemd import Systemd

AnySupervisor = Annotated[Process | Systemd | Command, Field(discriminator="kind")]

__all__ = ["AnySupervisor", "Command", "Process", "Systemd"]
