"""What must serve: looked at, written down as recipes, stopped with proof. Knows no job.

The way back is not here: it is `runner.recovery.restore`, which needs nothing of this page but the
recipes that were made on it.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from jobs.servers.base import Command, ServerFile
from preflight.box import Box, FileFact
from preflight.gpu.budget import GpuBudget
from preflight.linux import proc
from preflight.linux.files import LinuxFiles
from preflight.linux.proc import Ident
from preflight.production.busy import Busy, asleep
from preflight.rings import Gate
from preflight.verdict import State, Verdict
from runner.gpu_memory import GPU_WITHIN_S, held_by, memory_back, residency
from runner.recovery import probe
from runner.recovery.drivers import Standing, driver
from runner.recovery.keeper import Keeper, KeeperGone
from runner.recovery.probe import Look
from runner.recovery.recipe import Recipe
from runner.recovery.state import StateFile
from runner.recovery.stop import Halt, Stop, households, living
from runner.service import Service
from runner.until import Clock, TimedOut, until

FILES_WITHIN_S = 5.0

Nothing = Callable[[], str | None]


class StopRefused(Exception):
    """Production may not be stopped now; nothing was touched."""


class StopFailed(Exception):
    """Production was asked to stop, and a proof that it has does not hold. Go back, and say so."""


@dataclass(frozen=True, slots=True)
class Found:
    """One service as it was found: how it can be started again, and what it answered."""

    service: Service
    recipe: Recipe
    command: Command
    standing: Standing
    look: Look
    family: frozenset[Ident]

    @property
    def up(self) -> bool:
        """Whether it is there at all."""
        return bool(self.family)


def _configured(service: Service) -> Command:
    """The command its fields make; empty where the supervisor owns the command line."""
    try:
        return service.command_line()
    except ValueError:
        return Command(())


def _live(port: int, family: frozenset[Ident], heads: frozenset[Ident]) -> int | None:
    """The pid whose command line tells what runs: the listener of the family, else its head."""
    members = {who.pid for who in family}
    listening = sorted(proc.owners(port) & members)
    if listening:
        return listening[0]
    return min((who.pid for who in heads), default=None)


class Files(Protocol):
    """Looks at files where one that hangs holds nobody up: what of a Box is needed here."""

    def files(self, paths: Sequence[str], *, within: float) -> tuple[FileFact, ...]:
        """One fact a path, in order."""
        ...


def survey(
    service: Service, *, slowest_load: float | None = None, box: Files | None = None
) -> Found:
    """Look at one service without waking, loading or asking anything of its model.

    Its files are looked at in a child, so that a dead mount holds nobody up: that of the Box, or
    one of its own.
    """
    port = service.port or 0
    configured = _configured(service)
    recipe = Recipe(
        name=service.name,
        kind=service.kind,
        host=service.host or "127.0.0.1",
        port=port,
        supervisor=service.supervisor.recipe(configured),
        probe=service.ready(api_key=service.key_spec()),
        ready_within=float(service.ready_within),
        slowest_load=slowest_load,
        fallbacks=[_fallback(service, other) for other in service.fallen_back()],
    )
    drive = driver(recipe)
    standing = drive.standing()
    family = households(drive, port)
    pid = _live(port, family, standing.heads)
    if pid is None:
        return Found(service, recipe, configured, standing, Look("silent"), family)
    return _known(service, recipe, standing, family, pid, box=box)


def _known(
    service: Service,
    recipe: Recipe,
    standing: Standing,
    family: frozenset[Ident],
    pid: int,
    *,
    box: Files | None,
) -> Found:
    """A service that is there: its recipe from what really runs, not from what was configured."""
    argv = _whole_path(pid, proc.cmdline(pid) or ())
    command = Command(argv, proc.environ(pid) or dict(service.env), proc.cwd(pid))
    seen = service.seen(command)
    asked = seen.ready(api_key=seen.key_spec())
    look = probe.health(asked)
    if look.serving:
        look = probe.identity(asked)
    supervisor = dict(recipe.supervisor)
    if supervisor["kind"] == "process":
        head = min(standing.heads, key=lambda who: who.start, default=None)
        # exactly so: its own environment and directory, not those of whoever restores
        supervisor["env"] = (proc.environ(head.pid) if head else None) or supervisor["env"]
        supervisor["cwd"] = (proc.cwd(head.pid) if head else None) or supervisor["cwd"]
    who = proc.ident(pid)
    identity = {
        "who": who.to_json() if who else None,
        "pid": pid,
        "start": who.start if who else None,
        "uid": proc.uid(pid),
        "token": standing.token,
        "argv": list(argv),
        "said": look.identity,
    }
    inputs = _inputs(seen.files(), box)
    known = dataclasses.replace(
        recipe, supervisor=supervisor, probe=asked, identity=identity, inputs=inputs
    )
    return Found(service, known, command, standing, look, family)


def _whole_path(pid: int, argv: tuple[str, ...]) -> tuple[str, ...]:
    """The command with its program by explicit path: a name that PATH resolved may resolve anew."""
    program = proc.exe(pid)
    if not argv or argv[0].startswith("/") or not program or program.endswith(" (deleted)"):
        return argv
    return (program, *argv[1:])


def _inputs(files: Sequence[ServerFile], box: Files | None) -> list[dict[str, Any]]:
    """The files a service needs, each with what tells whether it is still the same one."""
    if box is None:
        with contextlib.closing(LinuxFiles()) as own:
            return _inputs(files, own)
    facts = box.files([file.path for file in files], within=FILES_WITHIN_S)
    return [
        {"path": file.path, "role": file.role, **stamp(fact)}
        for file, fact in zip(files, facts, strict=True)
    ]


def stamp(fact: FileFact) -> dict[str, Any]:
    """What tells whether a file is still the same one; nothing of one that could not be looked at."""
    known = {"size": fact.size, "inode": fact.inode, "mtime_ns": fact.mtime_ns}
    return dict.fromkeys(known) if fact.fault else known


def _fallback(service: Service, other: Service) -> dict[str, Any]:
    """A configured fallback as a recipe of its own."""
    return Recipe(
        name=service.name,
        kind=other.kind,
        host=other.host or "127.0.0.1",
        port=other.port or 0,
        supervisor=other.supervisor.recipe(_configured(other)),
        probe=other.ready(api_key=other.key_spec()),
        ready_within=float(other.ready_within),
    ).to_json()


def as_it_is(found: Found) -> Found:
    """The same service with what it answers now; asks for no completion, so it wakes nothing."""
    look = probe.health(found.recipe.probe)
    if look.serving:
        look = probe.identity(found.recipe.probe)
    return dataclasses.replace(found, look=look)


def wait_idle(found: Found, box: Box, *, clock: Clock, stop: Nothing) -> Verdict | None:
    """Wait until nobody is being served; None then, else why not. Raises Stopped."""
    within = float(found.service.idle_within)
    asked = Busy(recipe=found.recipe.to_json(), within_s=within)

    def idle() -> bool | None:
        return True if asked.look(box).state is State.PASS else None

    try:
        until(idle, within=within, clock=clock, every=0.25, stop=stop)
    except TimedOut:
        last = asked.model_copy(update={"waited": True}).look(box)
        return None if last.state is State.PASS else last
    return None


def take_identity(found: Found, box: Box) -> Found:
    """Record what only a serving, idle service can tell: a greedy answer and its GPU memory.

    Raises StopRefused when it completes nothing: what does not serve cannot be restored.
    """
    if asleep(found.recipe.to_json(), box):
        return found  # an answer would load its model again, only to be stopped
    look, _ = probe.complete(found.recipe.probe)
    if not look.serving:
        raise StopRefused(f"{found.service.name} completes nothing: {look.why or look.state}")
    _, greedy = probe.complete(found.recipe.probe, which="greedy")
    identity = found.recipe.identity | {
        "greedy": greedy or None,
        "gpu_mib": residency(box)({who.pid for who in found.family}),
    }
    return dataclasses.replace(found, recipe=dataclasses.replace(found.recipe, identity=identity))


def stop(
    found: Sequence[Found],
    *,
    gate: Gate,
    keeper: Keeper,
    memory: StateFile,
    clock: Clock,
    box: Box,
    say: Callable[[str], None],
    budgets: Sequence[GpuBudget] = (),
) -> dict[str, Halt]:
    """Stop the services, last first, each with its proofs; then there is room for the `budgets`.

    Raises StopRefused while nothing was asked to stop (an old gate, a guardian that does not
    answer, a service that somebody else has ended, a state file that cannot be written, a
    supervisor that does not accept it), StopFailed after.
    """
    try:
        keeper.look()  # one that was stopped lives too, and guards nothing
    except KeeperGone as gone:
        raise StopRefused(str(gone)) from gone
    if not gate.fresh(clock.now()):
        raise StopRefused("the gate is older than 10 s")
    halts: dict[str, Halt] = {}
    asked: dict[str, Any] = {}
    for one in reversed(found):
        name, drive = one.service.name, driver(one.recipe)
        stopping = Stop(one.recipe, drive, clock)
        stopping.family |= one.family
        if not living(stopping.family):  # whoever ended it may want it down: it is not ours
            raise (StopFailed if asked else StopRefused)(f"{name} has ended, and not by us")
        asked[name] = {
            "stop_asked": True,
            "stopped": clock.wall().timestamp(),
            "stopped_moment": clock.now(),
            "boot": proc.boot_id(),
            "token": drive.standing().token,  # of now: it may have been restarted since the survey
            "family": [who.to_json() for who in sorted(stopping.family, key=lambda who: who.pid)],
        }
        _note_stop(memory, asked, first=len(asked) == 1)
        say(f"stopping {name}")
        halt = stopping.run()
        halts[name] = halt
        for note in halt.notes:
            say(note)
        if halt.refused:
            _take_back(memory, asked, name)
            raise (StopFailed if asked else StopRefused)(halt.finding)
        if not halt.stopped:
            left = {who.pid for who in stopping.family}
            held = held_by(left, box.gpus(within=GPU_WITHIN_S))
            raise StopFailed(f"{halt.finding}; GPU memory {held}" if held else halt.finding)
    members = {who.pid for one in found for who in one.family}
    if finding := memory_back(members, box, clock, budgets):
        raise StopFailed(finding)
    return halts


def _take_back(memory: StateFile, asked: dict[str, Any], name: str) -> None:
    """The supervisor refused: this service was asked nothing, and is not ours to restart."""
    del asked[name]
    memory.note(phase="stopping" if asked else "armed", services=dict(asked))


def _note_stop(memory: StateFile, asked: Mapping[str, Any], *, first: bool) -> None:
    """From here on production is owed. If that cannot be written, nothing has been asked yet."""
    try:
        memory.write(phase="stopping", services=dict(asked))
    except OSError as error:
        message = f"the stop cannot be recorded: {error.strerror or error}"
        raise (StopRefused if first else StopFailed)(message) from error


def revived(found: Sequence[Found], ours: set[int]) -> str | None:
    """Who serves on a stopped service's port while it should be down; None when nobody does.

    `ours` are the candidate's pids. It has no business there either: production's clients would
    meet it. A job that says so is refused before; what a command does shows only here.
    """
    for one in found:
        rows = proc.claimants(one.recipe.host, one.recipe.port)
        pids = sorted(proc.owners(one.recipe.port))
        if not rows:
            continue
        if pids and set(pids) <= ours:
            return (
                f"the candidate listens on port {one.recipe.port}, where the clients of "
                f"{one.service.name} would meet it; give it a port of its own"
            )
        line = " ".join(proc.cmdline(pids[0]) or ()) if pids else "a process we may not see"
        unit = proc.unit_or_container(proc.cgroup(pids[0])) if pids else None
        by = f" of {unit}" if unit else ""
        pid = f"pid {pids[0]}{by}, " if pids else ""
        return f"{one.service.name} is back while it should be down: {pid}{line[:120]}"
    return None
