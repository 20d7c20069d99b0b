"""A service behind three commands of the user."""

from typing import Any, Literal

from pydantic import Field

from jobs.servers.base import Command as ServerCommand
from jobs.shell import ManagerCommand
from runner.supervisors.base import Supervisor


class Command(Supervisor):
    """Stop and start it by commands: for managers that the runner does not know."""

    kind: Literal["command"] = Field(
        default="command", description="Three commands of your own, run without a shell or input."
    )
    start: ManagerCommand = Field(
        description="Command that starts the service; it must do no harm when it runs already."
    )
    stop: ManagerCommand = Field(description="Command that stops the service.")
    status: ManagerCommand = Field(
        description="Command that exits 0 while it runs and 3 when stopped; else it is unknown."
    )

    def recipe(self, command: ServerCommand) -> dict[str, Any]:
        """The three commands."""
        del command
        return {
            "kind": self.kind,
            "start": list(self.start),
            "stop": list(self.stop),
            "status": list(self.status),
        }
