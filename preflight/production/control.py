"""May production be stopped and, above all, started again? Proven beforehand, never assumed.

What is run here changes nothing: a start of a unit that is active, a question to sudo, a status.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from preflight.box import TIMEOUT, Box, Unit
from preflight.check import Check, Deadline, Explained
from preflight.production.sudo import is_sudo, sudo_trouble, why
from preflight.verdict import BlastRadius, State, Verdict
from preflight.wording import clipped


def strings(value: object) -> tuple[str, ...]:
    return (
        tuple(item for item in value if isinstance(item, str))
        if isinstance(value, list | tuple)
        else ()
    )


class OfRecipe(Check):
    """What the checks of one service's recipe share."""

    radius: ClassVar[BlastRadius] = BlastRadius.PRODUCTION

    recipe: dict[str, Any]

    @property
    def service(self) -> str:
        """The service's name."""
        return str(self.recipe.get("name", "production"))

    @property
    def supervisor(self) -> Mapping[str, Any]:
        """How it is stopped and started."""
        found = self.recipe.get("supervisor")
        return found if isinstance(found, dict) else {}

    @property
    def pid(self) -> int | None:
        """The process of production as the recipe's identity has it."""
        identity = self.recipe.get("identity")
        found = identity.get("pid") if isinstance(identity, dict) else None
        return found if isinstance(found, int) and found > 1 else None

    @property
    def owner_uid(self) -> int | None:
        """The user that production runs as."""
        identity = self.recipe.get("identity")
        found = identity.get("uid") if isinstance(identity, dict) else None
        return found if isinstance(found, int) else None


class OfWayBack(OfRecipe):
    """What no person may wave through: without its way back production is not stopped."""

    @property
    def acceptable(self) -> bool:
        """Never."""
        return False


class MayControl(OfWayBack):
    """The permission to stop one service and, above all, to start it again: proven beforehand."""

    id: ClassVar[str] = "prod.permission"
    explains: ClassVar[tuple[Explained, ...]] = (
        Explained(
            "prod.permission",
            reads="the state of the unit, and then `systemctl start` of it while it is active, "
            "which does nothing and needs the same leave; for commands `sudo -n -k -l` and the "
            "rules of sudo, or the status command; for a plain process its user",
            passes="it may be stopped and started again without a password",
            fails="a start is refused, sudo would ask for a password, or the process belongs to "
            "another user: it could be stopped and not be brought back",
            unknown="the unit is not active, systemd or sudo does not answer or does not tell",
            remedies=(
                "runner install-units --write, as root, for the polkit rule",
                "a line with NOPASSWD in /etc/sudoers.d for each command",
                "run as the user that production runs as",
            ),
        ),
    )

    kind: Literal["may_control"] = "may_control"
    deadline_s: float = 20.0

    @property
    def subject(self) -> str:
        """The service."""
        return f"control of {self.service}"

    def look(self, box: Box) -> Verdict:
        """Ask the supervisor in the way that changes nothing."""
        match self.supervisor.get("kind"):
            case "process":
                return self._process(box)
            case "systemd":
                return self._systemd(box)
            case "command":
                return self._commands(box)
            case other:
                return self._says(State.FAIL, f"nobody can drive a supervisor of kind {other!r}")

    def _says(self, state: State, found: str, **more: Any) -> Verdict:
        return self.says(state, found, wanted="leave to stop it and to start it", **more)

    def _process(self, box: Box) -> Verdict:
        me = box.me()
        if self.owner_uid is None:
            return self._says(
                State.UNKNOWN, "whose process it is cannot be seen", remedy="run as its user"
            )
        if self.owner_uid != me.uid:
            return self._says(
                State.FAIL,
                f"runs as uid {self.owner_uid}, and this is {me.user} (uid {me.uid})",
                remedy="run as that user, or put it under systemd",
            )
        return self._says(State.PASS, f"runs as {me.user}, as this does")

    def _systemd(self, box: Box) -> Verdict:
        """`start` of a unit that is active is a no-op, and needs the same permission as a real one.

        The permission to stop cannot be proven without stopping; a refused stop leaves it up.
        """
        time = Deadline(self.deadline_s)
        unit = unit_of(box, self.supervisor, within=min(5.0, time.left()))
        if unit.fault:
            return self._says(
                State.UNKNOWN, f"systemd does not tell about {unit.name}: {clipped(unit.said, 160)}"
            )
        active = unit.get("ActiveState") or "unknown"
        if active != "active":
            return self._says(
                State.UNKNOWN,
                f"{unit.name} is {active}: asking for a start would start it",
                remedy=f"bring it up first: systemctl start {unit.name}",
            )
        argv = [*systemctl(self.supervisor), "start", unit.name]
        ran = box.run(argv, within=min(10.0, time.left()), env=_bus(box, self.supervisor))
        if ran.code == 0:
            return self._says(
                State.PASS, f"may start {unit.name} (asked while active: nothing happens)"
            )
        if ran.fault == TIMEOUT:
            return self._says(
                State.UNKNOWN, f"{ran.said} (timeout)", remedy=f"try: {' '.join(argv)}"
            )
        return self._says(
            State.FAIL,
            f"may not start {unit.name}: {why(ran)}",
            remedy="install the polkit rule for it (deploy/), or run as root",
        )

    def _commands(self, box: Box) -> Verdict:
        """Only sudo can be asked beforehand; it must never be able to ask for a password."""
        time = Deadline(self.deadline_s)
        commands = {
            verb: strings(self.supervisor.get(verb)) for verb in ("start", "stop", "status")
        }
        asked = {verb: argv for verb, argv in commands.items() if is_sudo(argv)}
        for verb, argv in asked.items():
            trouble = sudo_trouble(box, verb, argv, within=time.left())
            if trouble is not None:
                state, found, remedy = trouble
                return self._says(state, found, remedy=remedy)
        if asked:
            return self._says(State.PASS, "sudo lets this user do it without a password")
        ran = box.run(strings(self.supervisor.get("status")), within=min(10.0, time.left()))
        if ran.code == 0:
            return self._says(State.PASS, "its status command answers: running")
        said = "stopped" if ran.code == 3 else why(ran)
        return self._says(
            State.UNKNOWN,
            f"its status command does not say that it runs: {said}",
            remedy="status must end with 0 while it runs and with 3 while it is stopped",
        )


def systemctl(supervisor: Mapping[str, Any]) -> list[str]:
    """systemctl for the unit's scope, never able to ask for a password."""
    scope = ["--user"] if supervisor.get("scope") == "user" else []
    return ["systemctl", *scope, "--no-ask-password"]


def unit_of(box: Box, supervisor: Mapping[str, Any], *, within: float) -> Unit:
    """What systemd tells of a supervisor's unit."""
    names = [str(supervisor.get("unit", ""))]
    return box.units(names, scope=str(supervisor.get("scope") or "system"), within=within)[0]


def _bus(box: Box, supervisor: Mapping[str, Any]) -> dict[str, str] | None:
    """Where the user's own systemd listens; cron and sudo leave that out of the environment."""
    if supervisor.get("scope") != "user":
        return None
    return {"XDG_RUNTIME_DIR": f"/run/user/{box.me().uid}"}
