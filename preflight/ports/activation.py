"""What would bring a service back while it should be down: sockets, timers, restarts, parents.

A stop that goes round whoever keeps the service alive is undone within seconds (ollama#13344). It
must not stop or start anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from preflight.box import Box, Proc, Running, Unit
from preflight.check import Deadline, Explained
from preflight.files.paths import Trouble
from preflight.production.control import OfRecipe, strings, unit_of
from preflight.verdict import BlastRadius, State, Verdict
from preflight.wording import clipped, command

_RESPAWNS = (
    "llama-swap", "ollama", "lms", "supervisord", "runsv", "s6-supervise", "pm2", "monit", "god",
    "circusd", "containerd-shim-runc-v2", "conmon",
)  # fmt: skip
"""Programs that start a child of theirs again, or at the next request."""
_LETS_GO = (
    "systemd",
    "init",
    "tmux",
    "tmux: server",
    "screen",
    "SCREEN",
    "sshd",
    "login",
    "su",
    "sudo",
)
_SHELLS = ("sh", "bash", "zsh", "dash", "fish", "ksh")
_WITHIN_S = 5.0
_ORDER = (State.FAIL, State.UNKNOWN, State.WARN)


class Activation(OfRecipe):
    """Nobody starts the service again while a run has it down."""

    id: ClassVar[str] = "port.activation"
    radius: ClassVar[BlastRadius] = BlastRadius.PORTS
    explains: ClassVar[tuple[Explained, ...]] = (
        Explained(
            "port.activation",
            reads="Restart= and TriggeredBy= of its unit, the sockets and timers that trigger it, "
            "the unit or container that a plain process lives in, and its parent",
            passes="nothing starts it again by itself",
            warns="its unit has Restart=, which a stop through systemd respects; a timer or path "
            "unit may start it; its parent is a program that may start it again",
            fails="a socket unit would start it for the first client; it is stopped as a plain "
            "process although a unit, a container engine or a program keeps it alive",
            unknown="systemd does not tell",
            remedies=(
                'supervisor = { kind = "systemd", unit = … } for what a unit keeps alive',
                "PartOf= in the socket unit and Requires= in the service: then it stops with it",
                'kind = "command" with the commands of whoever keeps it alive',
            ),
        ),
    )

    kind: Literal["activation"] = "activation"
    deadline_s: float = 10.0

    @property
    def subject(self) -> str:
        """The service."""
        return f"the stop of {self.service}"

    def look(self, box: Box) -> Verdict:
        """Whoever might start it again, the surest one first."""
        time = Deadline(self.deadline_s)
        kind = self.supervisor.get("kind")
        if kind == "systemd":
            troubles = list(self._unit(box, time))
        else:
            troubles = list(self._process(box, time, plain=kind == "process"))
        wanted = "nobody who starts it again"
        if not troubles:
            return self.says(State.PASS, "nothing starts it again by itself", wanted=wanted)
        worst = min(troubles, key=lambda trouble: _ORDER.index(trouble.state))
        others = tuple(one.found for one in troubles if one is not worst)
        state, found, remedy = worst
        return self.says(state, found, wanted=wanted, remedy=remedy, evidence=others)

    def _unit(self, box: Box, time: Deadline) -> Iterator[Trouble]:
        unit = unit_of(box, self.supervisor, within=min(_WITHIN_S, time.left()))
        if unit.fault:
            found = f"systemd does not tell about {unit.name}: {clipped(unit.said, 160)}"
            yield Trouble(State.UNKNOWN, found, f"try: systemctl show {unit.name}")
            return
        scope = str(self.supervisor.get("scope") or "system")
        triggers = box.units(unit.names("TriggeredBy"), scope=scope, within=time.left())
        for one in triggers:
            if one.get("ActiveState") == "active" or one.fault:
                yield from _trigger(unit, one)
        if unit.get("Restart") not in ("", "no"):
            yield Trouble(
                State.WARN,
                f"{unit.name} has Restart={unit.get('Restart')}; it is stopped through systemd, "
                "which then leaves it down",
                "nothing; but do not kill it by hand while a run is on",
            )

    def _process(self, box: Box, time: Deadline, *, plain: bool) -> Iterator[Trouble]:
        """What a process lives in keeps it alive, unless it is told through that."""
        live = box.process(self.pid) if self.pid is not None else None
        if live is None:
            return
        if live.unit is not None and live.unit != box.me().unit:
            yield from self._home(box, live, live.unit, time, plain=plain)
        if plain:
            yield from _parent(box, live)

    def _home(
        self, box: Box, live: Proc, home: str, time: Deadline, *, plain: bool
    ) -> Iterator[Trouble]:
        if not home.endswith(".service"):
            found = f"it lives in {home}, whose engine may start it again"
            remedy = 'kind = "command" with the commands of that engine'
            if plain:
                yield Trouble(State.FAIL, found, remedy)
            return
        words = [word for verb in ("start", "stop") for word in strings(self.supervisor.get(verb))]
        if home in words or home.removesuffix(".service") in words:
            return
        scope = "user" if "/user@" in (live.cgroup or "") else "system"
        (unit,) = box.units([home], scope=scope, within=min(_WITHIN_S, time.left()))
        restart = unit.get("Restart")
        remedy = f'supervisor = {{ kind = "systemd", unit = "{home}" }}'
        if restart in ("", "no"):
            why = f": {clipped(unit.said, 120)}" if unit.fault else ""
            found = f"it lives in {home}, and is not stopped through it{why}"
            yield Trouble(State.WARN, found, remedy)
            return
        found = f"it lives in {home}, which starts it again (Restart={restart})"
        yield Trouble(State.FAIL if plain else State.WARN, found, remedy)


def _trigger(unit: Unit, one: Unit) -> Iterator[Trouble]:
    """One unit that starts another when something happens."""
    if not one.name.endswith(".socket"):
        found = f"{one.name} may start it meanwhile"
        yield Trouble(State.WARN, found, f"systemctl list-timers; or stop {one.name} for the night")
        return
    ends_with_it = unit.name in (*one.names("PartOf"), *one.names("BindsTo"))
    comes_with_it = one.name in (
        *unit.names("Requires"), *unit.names("Wants"), *unit.names("BindsTo"),
    )  # fmt: skip
    if not (ends_with_it and comes_with_it):
        yield Trouble(
            State.FAIL,
            f"{one.name} starts it again as soon as a client connects",
            f"PartOf={unit.name} in {one.name} and Requires={one.name} in {unit.name}, "
            "then it stops and starts with it",
        )


def _parent(box: Box, live: Proc) -> Iterator[Trouble]:
    """Whoever started it may be waiting for its end, to start it again."""
    table = {one.pid: one for one in box.table()}
    child = table.get(live.pid)
    parent = table.get(child.ppid) if child is not None else None
    if parent is None or parent.pid == 1 or parent.pid in box.me().line or _lets_go(parent):
        return
    said = f"its parent is pid {parent.pid} {command(parent.argv) or parent.comm}"
    if parent.comm in _RESPAWNS or (parent.argv and _program(parent) in _RESPAWNS):
        found = f"{said}, which starts it again"
        yield Trouble(State.FAIL, found, 'kind = "command" with commands that go through it')
        return
    found = f"{said}: if that is a supervisor, it will start it again"
    yield Trouble(State.WARN, found, "end it first, or stop the service through it")


def _program(one: Running) -> str:
    return one.argv[0].lstrip("-").rsplit("/", 1)[-1] if one.argv else ""


def _lets_go(one: Running) -> bool:
    """A login, a terminal or an interactive shell: it only waits for its user."""
    program = _program(one)
    if program in _SHELLS:
        return not any(not word.startswith("-") for word in one.argv[1:]) and "-c" not in one.argv
    return program.startswith(_LETS_GO) or one.comm in _LETS_GO
