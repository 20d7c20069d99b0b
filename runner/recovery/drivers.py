"""How each kind of service is started, asked to stop and recognised, as its recipe says.

A driver never waits and never decides; it answers for one service and one supervisor. Kinds are
listed in `DRIVERS`.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from preflight import proc
from preflight.proc import Ident
from runner.recovery import world
from runner.recovery.recipe import Recipe

_COMMAND_WITHIN = 60.0
_SHOW_WITHIN = 5.0
_STOPPED = 3  # what a status command answers for a stopped service, as init scripts do


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a service stands with its supervisor.

    `state` is "active", "changing" (starting or stopping, a job is queued), "inactive" or
    "unknown". `heads` are the live processes the supervisor calls this service. `token` changes
    with every start that the supervisor makes, where it tells (systemd's InvocationID).
    """

    state: str
    heads: frozenset[Ident] = frozenset()
    why: str = ""
    token: str | None = None


class Driver(Protocol):
    """One service under one kind of supervisor."""

    def standing(self) -> Standing:
        """Where the service stands now."""
        ...

    def start(self) -> str | None:
        """Ask for a start; None when it was accepted, else why not."""
        ...

    def stop(self) -> str | None:
        """Ask for a stop; None when it was accepted, else why not."""
        ...

    @property
    def patient(self) -> float | None:
        """Seconds the supervisor's own stop ladder may take; None when the ladder is ours."""
        ...


def idents(pids: set[int]) -> frozenset[Ident]:
    """The identities behind pids that still live."""
    return frozenset(who for pid in pids if (who := proc.ident(pid)) is not None)


def same_command(pid: int, argv: tuple[str, ...]) -> bool:
    """Whether this process was started with this command.

    A script shows its interpreter in front of it, and a shell that found the program by PATH shows
    its bare name; the file that runs is the same.
    """
    line = proc.cmdline(pid)
    if not line or len(line) < len(argv):
        return False
    shown = line[len(line) - len(argv) :]
    if shown[1:] != argv[1:]:
        return False
    if shown[0] == argv[0]:
        return True
    return len(line) == len(argv) and proc.exe(pid) == os.path.realpath(argv[0])


class ProcessDriver:
    """A plain process of our own user: detached, its output in a log file.

    It is recognised by its argument vector, so that a copy that somebody else brought up is never
    doubled, and by the process this run started, which may have changed its own title.
    """

    patient = None

    def __init__(self, recipe: Recipe, started: Ident | None = None) -> None:
        supervisor = recipe.supervisor
        self._argv = tuple(supervisor["argv"])
        self._env: Mapping[str, str] = supervisor.get("env") or {}
        self._cwd: str | None = supervisor.get("cwd")
        self._log = Path(supervisor["log"])
        self._pidfile: str | None = supervisor.get("pidfile")
        self._known = {who for who in (started, Ident.from_json(recipe.identity.get("who"))) if who}
        self.started = started

    def standing(self) -> Standing:
        """Active while a process with our argument vector lives."""
        heads = {who for who in self._known if proc.alive(who)}
        for pid in proc.pids():
            if same_command(pid, self._argv) and proc.uid(pid) == os.getuid():
                who = proc.ident(pid)
                # a candidate may run the same command; its tag tells it apart
                if who is not None and proc.TAG not in (proc.environ(pid) or {}):
                    heads.add(who)
        return Standing("active" if heads else "inactive", frozenset(heads))

    def start(self) -> str | None:
        """Start it in a session of its own, so that it survives us and our terminal."""
        try:
            child = world.spawn(self._argv, environment=self._env, cwd=self._cwd, log=self._log)
        except OSError as error:
            return f"cannot start {self._argv[0]}: {error.strerror} ({error.filename or self._cwd})"
        self.started = proc.ident(child.pid)
        if self.started is not None:
            self._known.add(self.started)
            self._write_pidfile(child.pid)
        # it is meant to outlive us: nobody here will wait for it
        child.returncode = 0
        return None

    def _write_pidfile(self, pid: int) -> None:
        if self._pidfile is None:
            return
        try:
            Path(self._pidfile).write_text(f"{pid}\n", encoding="ascii")
        except OSError:
            return  # a convenience for people; the way back does not depend on it

    def stop(self) -> str | None:
        """Ask its first process to end."""
        for who in self.standing().heads:
            world.send(who, signal.SIGTERM)
        return None


class SystemdDriver:
    """A systemd service. Its ladder, its restarts and its cgroup are systemd's own."""

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
        if job not in {"", "0"} or state in {"activating", "deactivating", "reloading"}:
            return Standing("changing", heads, why, token)
        return Standing("active" if state == "active" else "inactive", heads, why, token)

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
            [*self._systemctl, verb, "--no-block", "--", self._unit], within=_COMMAND_WITHIN
        )
        return None if code == 0 else f"systemctl {verb} {self._unit}: {said}"


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


class CommandDriver:
    """A service behind three commands of the user: start (idempotent), stop, status."""

    patient = None

    def __init__(self, recipe: Recipe, started: Ident | None = None) -> None:
        del started  # its process is whoever owns the port
        self._commands = recipe.supervisor
        self._port = recipe.port

    def standing(self) -> Standing:
        """0 is running, 3 is stopped, anything else tells nothing."""
        code, said = world.quiet(self._commands["status"], within=_COMMAND_WITHIN)
        if code == _STOPPED:
            return Standing("inactive")
        heads = idents(proc.owners(self._port))
        if code == 0:
            return Standing("active", heads)
        return Standing(
            "unknown", heads, f"{self._commands['status'][0]} answers {code}: {said[:200]}"
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


DRIVERS: dict[str, Callable[[Recipe, Ident | None], Driver]] = {
    "process": ProcessDriver,
    "systemd": SystemdDriver,
    "command": CommandDriver,
}


def driver(recipe: Recipe, started: Ident | None = None) -> Driver:
    """The driver for a recipe. Raises KeyError for a supervisor this version does not know."""
    kind: Any = recipe.supervisor.get("kind")
    return DRIVERS[kind](recipe, started)
