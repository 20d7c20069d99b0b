"""What goes down with a service when it is stopped, and does not come back when it is started.

systemd stops whatever requires a unit along with it, and a start of that unit brings none of it
back: a web page in front of the model would be gone in the morning. It must not stop or start
anything.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from preflight.box import Box
from preflight.check import Deadline, Explained
from preflight.production.control import OfRecipe, unit_of
from preflight.verdict import State, Verdict
from preflight.wording import clipped, named

_GO_WITH_IT = ("RequiredBy", "RequisiteOf", "BoundBy", "ConsistsOf")
_BRINGS_BACK = ("Wants", "Requires", "BindsTo", "Upholds")
_WITHIN_S = 5.0


class Dependents(OfRecipe):
    """Nothing else goes down with the service and stays down."""

    id: ClassVar[str] = "prod.dependents"
    explains: ClassVar[tuple[Explained, ...]] = (
        Explained(
            "prod.dependents",
            reads="RequiredBy=, RequisiteOf=, BoundBy= and ConsistsOf= of its unit, which of these "
            "units are active, and what its own start brings up",
            passes="no active unit stops with it, or its start brings back each that does",
            fails="an active unit requires it or is part of it, and would be down after the run",
            unknown="systemd does not tell",
            remedies=(
                "Wants= instead of Requires= in the unit that depends on it",
                "WantedBy=the.service in the [Install] section of that unit, and enable it",
                "a [[production]] table of its own for what is a service of its own",
            ),
        ),
    )

    kind: Literal["dependents"] = "dependents"
    production: tuple[str, ...] = ()
    """Units of production: the run itself starts them again."""
    deadline_s: float = 10.0

    @property
    def subject(self) -> str:
        """The service."""
        return f"what stops with {self.service}"

    def look(self, box: Box) -> Verdict:
        """The active units that a stop takes down for longer than the run."""
        time, wanted = Deadline(self.deadline_s), "nothing that stays down"
        if self.supervisor.get("kind") != "systemd":
            return self.says(State.PASS, "no unit depends on it", wanted=wanted)
        unit = unit_of(box, self.supervisor, within=min(_WITHIN_S, time.left()))
        if unit.fault:
            said = f"systemd does not tell about {unit.name}: {clipped(unit.said, 160)}"
            return self.says(State.UNKNOWN, said, wanted=wanted)
        back = {name for key in _BRINGS_BACK for name in unit.names(key)} | {*self.production}
        going = {name for key in _GO_WITH_IT for name in unit.names(key)} - back - {unit.name}
        services = sorted(name for name in going if not name.endswith(".target"))
        scope = str(self.supervisor.get("scope") or "system")
        units = box.units(services, scope=scope, within=time.left())
        down = [one.name for one in units if one.get("ActiveState") == "active"]
        if not down:
            return self.says(State.PASS, "nothing that would stay down", wanted=wanted)
        return self.says(
            State.FAIL,
            f"{named(down)} stops with {unit.name}, and its start does not bring that back",
            wanted=wanted,
            remedy=f"Wants={unit.name} instead of Requires= in {down[0]}",
        )
