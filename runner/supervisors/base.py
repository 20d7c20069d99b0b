"""What every kind of supervisor has in common: it can say, as plain JSON, how to start a service.

The acting on it is `runner.recovery.drivers`, which needs no model and no package; a kind here is
what a person may write, a driver there is what is done.
"""

from abc import ABC, abstractmethod
from typing import Any

from jobs.fields import Model
from jobs.servers.base import Command


class Supervisor(Model, ABC):
    """How a service is stopped and started."""

    kind: str

    @abstractmethod
    def recipe(self, command: Command) -> dict[str, Any]:
        """Everything this supervisor needs to start the service again, as plain JSON.

        `command` is what runs: the live process's own where it lives, else the configured one.
        """
