"""Drives a systemd service, of the system's manager or of the user's own."""

from __future__ import annotations

from preflight.linux.proc import Ident
from runner.recovery import world
from runner.recovery.drivers.standing import Standing, idents
from runner.recovery.recipe import Recipe

_ASK_WITHIN = 60.0
_SHOW_WITHIN = 5.0


class SystemdDriver:
    """A systemd service. Its ladder, its restarts and its cgroup are systemd's own."""

    grace = 0.0

    def __init__(self, recipe: Recipe, started: Ident | None = None) -> None:
        del started  # systemd knows its own
        self._unit: str = recipe.supervisor["unit"]
        user = ["--user"] if recipe.supervisor.get("scope") == "user" else []
        self._systemctl = ["systemctl", *user, "--no-ask-password"]

    def show(self) -> dict[str, str] | str:
        """The unit's properties, or why they cannot be read."""
        wanted = (
            "ActiveState,SubState,MainPID,Job,InvocationID,ControlGroup,Result,NRestarts,"
            "TimeoutStopUSec,Restart"
        )
        code, said = world.quiet(
            [*self._systemctl, "show", "--property", wanted, "--", self._unit], within=_SHOW_WITHIN
        )
        if code != 0:
            return said or "systemctl show failed"
        pairs = (line.partition("=") for line in said.splitlines())
        return {name: value for name, sign, value in pairs if sign}

    def standing(self) -> Standing:
        """Active only with no job queued: a service that is still stopping answers too."""
        shown = self.show()
        if isinstance(shown, str):
            return Standing("unknown", why=shown)
        state, job = shown.get("ActiveState", ""), shown.get("Job", "0")
        pid = int(shown.get("MainPID") or 0)
        heads = idents({pid}) if pid > 1 else frozenset()
        why = f"{self._unit} is {state} ({shown.get('SubState')}, {shown.get('Result')})"
        token = shown.get("InvocationID") or None
        cgroup = shown.get("ControlGroup") or None
        known = "active" if state == "active" else "inactive"
        if job not in {"", "0"} or state in {"activating", "deactivating", "reloading"}:
            known = "changing"
        return Standing(known, heads, why, token, cgroup if cgroup != "/" else None)

    @property
    def patient(self) -> float | None:
        """TimeoutStopSec, after which systemd kills by itself."""
        shown = self.show()
        return _seconds("" if isinstance(shown, str) else shown.get("TimeoutStopUSec", ""))

    def start(self) -> str | None:
        """Queue a start. A unit that failed too often is forgiven first."""
        world.quiet([*self._systemctl, "reset-failed", "--", self._unit], within=_SHOW_WITHIN)
        return self._ask("start")

    def stop(self) -> str | None:
        """Queue a stop through systemd, which also keeps Restart= from bringing it back."""
        return self._ask("stop")

    def _ask(self, verb: str) -> str | None:
        code, said = world.quiet(
            [*self._systemctl, verb, "--no-block", "--", self._unit], within=_ASK_WITHIN
        )
        return None if code == 0 else f"systemctl {verb} {self._unit}: {said}"

    def orphans(self) -> frozenset[Ident]:
        """None: systemd ends what is left in the cgroup by itself."""
        return frozenset()


def _seconds(text: str) -> float:
    """systemd's "1min 30s" in seconds; its default of 90 s where it says nothing we can read."""
    units = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
    total = 0.0
    for part in text.split():
        number = part.rstrip("abcdefghijklmnopqrstuvwxyz")
        unit = part[len(number) :]
        if unit not in units or not number:
            return 90.0
        total += float(number) * units[unit]
    return total or 90.0
