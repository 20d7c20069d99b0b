"""Drives a service behind three commands of the user, for managers that the runner does not know."""

from __future__ import annotations

from preflight.linux import proc
from preflight.linux.proc import Ident
from runner.recovery import world
from runner.recovery.drivers.process import same_command
from runner.recovery.drivers.standing import Standing, idents
from runner.recovery.recipe import Recipe

_COMMAND_WITHIN = 60.0
_UP_WITHIN = 10.0
_STOPPED = 3  # what a status command answers for a stopped service, as init scripts do


class CommandDriver:
    """A service behind three commands of the user: start (idempotent), stop, status.

    Its processes are the commands' business: none of them is signalled by us.
    """

    grace = _UP_WITHIN

    def __init__(self, recipe: Recipe, started: Ident | None = None) -> None:
        del started  # its process is whoever owns the port
        self._commands = recipe.supervisor
        self._port = recipe.port
        self._argv = tuple(recipe.identity.get("argv") or ())

    def standing(self) -> Standing:
        """0 is running, 3 is stopped, anything else tells nothing."""
        code, said = world.quiet(self._commands["status"], within=_COMMAND_WITHIN)
        if code == _STOPPED:
            return Standing("inactive")
        heads = self._heads()
        if code == 0:
            return Standing("active", heads)
        return Standing(
            "unknown", heads, f"{self._commands['status'][0]} answers {code}: {said[:200]}"
        )

    @property
    def patient(self) -> float:
        """As long as a command of theirs may take; the ladder is theirs, too."""
        return _COMMAND_WITHIN

    def _heads(self) -> frozenset[Ident]:
        """Who listens for it: of several, or of a stranger, what runs the command it had before."""
        owners = idents(proc.owners(self._port))
        return frozenset(
            who for who in owners if not self._argv or same_command(who.pid, self._argv)
        )

    def start(self) -> str | None:
        """Run the start command."""
        return self._run("start")

    def stop(self) -> str | None:
        """Run the stop command."""
        return self._run("stop")

    def _run(self, verb: str) -> str | None:
        code, said = world.quiet(self._commands[verb], within=_COMMAND_WITHIN)
        if code == 0:
            return None
        return f"{verb} command {self._commands[verb][0]} answers {code}: {said[:200]}"

    def orphans(self) -> frozenset[Ident]:
        """None that we would know of."""
        return frozenset()
