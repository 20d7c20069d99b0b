"""A systemd service: what runs is read from the unit and the live process, never written here."""

from typing import Annotated, Any, Literal

from pydantic import Field

from jobs.servers.base import Command
from runner.supervisors.base import Supervisor

Unit = Annotated[str, Field(pattern=r"^[A-Za-z0-9:_.\\@-]+\.service$")]


class Systemd(Supervisor):
    """Stop and start it through its manager, which owns its command line and its restarts."""

    kind: Literal["systemd"] = Field(default="systemd", description="A systemd service.")
    unit: Unit = Field(description='Full name of the unit, such as "llama.service".')
    scope: Literal["system", "user"] = Field(
        default="system", description="Whose manager: the system's, or the user's own."
    )

    def recipe(self, command: Command) -> dict[str, Any]:
        """The unit's name is all: the manager knows the rest."""
        del command
        return {"kind": self.kind, "unit": self.unit, "scope": self.scope}
