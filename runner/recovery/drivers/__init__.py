"""How each kind of service is started, asked to stop and recognised, as its recipe says.

A driver never waits and never decides; it answers for one service and one supervisor. A new kind is
one file, and one line in `DRIVERS`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from preflight.linux.proc import Ident
from runner.recovery.drivers.command import CommandDriver
from runner.recovery.drivers.process import ProcessDriver
from runner.recovery.drivers.standing import Driver, Standing, idents
from runner.recovery.drivers.systemd import SystemdDriver
from runner.recovery.recipe import Recipe

__all__ = ["DRIVERS", "Driver", "Standing", "driver", "idents"]

DRIVERS: dict[str, Callable[[Recipe, Ident | None], Driver]] = {
    "process": ProcessDriver,
    "systemd": SystemdDriver,
    "command": CommandDriver,
}


def driver(recipe: Recipe, started: Ident | None = None) -> Driver:
    """The driver for a recipe. Raises KeyError for a supervisor this version does not know."""
    kind: Any = recipe.supervisor.get("kind")
    return DRIVERS[kind](recipe, started)
