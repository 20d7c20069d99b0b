"""A plain process of the owner's own user: detached, surviving the runner, its output in a file."""

import os
from typing import Any, Literal

from pydantic import Field

from jobs.fields import ExplicitPath
from jobs.servers.base import Command
from runner.recovery.world import scrubbed
from runner.supervisors.base import Supervisor


class Process(Supervisor):
    """Start and stop it ourselves: TERM, TERM, KILL; then its command again."""

    kind: Literal["process"] = Field(
        default="process", description="A plain process of the same user as the runner."
    )
    log: ExplicitPath = Field(description="File that its output is appended to.")
    pidfile: ExplicitPath | None = Field(
        default=None, description="File to write its process id to when the runner starts it."
    )

    def recipe(self, command: Command) -> dict[str, Any]:
        """The argument vector, directory and environment to start it with."""
        return {
            "kind": self.kind,
            "argv": list(command.argv),
            "cwd": command.cwd or "/",
            "env": scrubbed(os.environ) | dict(command.env),
            "log": str(self.log),
            "pidfile": str(self.pidfile) if self.pidfile else None,
        }
