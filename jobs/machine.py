"""What a job needs of the machine around it, and what may bring production back. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from jobs import flags
from jobs.job import Job
from jobs.servers import LlamaCpp
from jobs.servers.base import LOOPBACK, Command, Server
from jobs.servers.llamacpp_flags import FLAGS
from jobs.shell import executed
from preflight.check import Check
from preflight.files.recorded import Record
from preflight.gpu.driver import GpuDriver, GpuPending
from preflight.gpu.health import GpuHealthy
from preflight.gpu.identity import GpuIdentity, Visible
from preflight.host.limits import HostLimits
from preflight.host.others import OthersAtWork
from preflight.host.pressure import Quiet
from preflight.host.ram import HostRam
from preflight.host.timing import ClockKept, StaysUp
from preflight.models.roles import files_of
from preflight.ports.activation import Activation
from preflight.ports.containers import Published
from preflight.ports.leftover import Leftovers
from preflight.ports.owner import ExpectedOwner
from preflight.production.busy import Busy
from preflight.production.dependents import Dependents
from preflight.production.stoptime import StopTime

_MODELS = ("weights", "draft", "mmproj")
_VISIBLE, _ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"
SEEN = (_VISIBLE, _ORDER)
"""Variables that decide which GPUs a candidate sees."""

Json = Mapping[str, Any]


class Armed(Protocol):
    """One arm of a job as it will run."""

    @property
    def command(self) -> Command:
        """What is executed."""

    @property
    def server(self) -> Server | None:
        """The server it is."""


@dataclass(frozen=True, slots=True)
class Around:
    """What a run knows of itself and of its production, beside the job. Times are seconds."""

    takes: float = 0.0
    """How long it may last, the way back included."""
    before_back: float | None = None
    """What the downtime budget leaves beside the way back."""
    idle_within: Mapping[str, float] = field(default_factory=dict)
    """Service → how long a run waits for requests in flight."""
    slowest_stop: Mapping[str, float] = field(default_factory=dict)
    inherited: Mapping[str, str] = field(default_factory=dict)
    """What a candidate would inherit of our environment."""
    in_slurm: bool = False


def owner_of(recipe: Json) -> ExpectedOwner:
    """By what the processes of a service are known: its unit, or its process as it was found."""
    identity, supervisor = recipe.get("identity") or {}, recipe.get("supervisor") or {}
    pid, start = identity.get("pid"), identity.get("start")
    return ExpectedOwner(
        name=recipe["name"],
        idents=((pid, start or 0),) if isinstance(pid, int) else (),
        unit=supervisor.get("unit"),
        told=supervisor.get("kind") == "process",
    )


def units_of(recipes: Sequence[Json]) -> tuple[str, ...]:
    """The systemd units among these services."""
    units = ((recipe.get("supervisor") or {}).get("unit") for recipe in recipes)
    return tuple(unit for unit in units if isinstance(unit, str))


def stop_checks(recipe: Json, around: Around, *, beside: Sequence[Json] = ()) -> tuple[Check, ...]:
    """Whether one service can be stopped now, in time, and stays down until it is started again.

    `beside` are all the services that are stopped, and so started again.
    """
    known, name = dict(recipe), str(recipe["name"])
    return (
        Activation(recipe=known),
        Dependents(recipe=known, production=units_of(beside)),
        StopTime(
            recipe=known,
            left_s=around.before_back,
            slowest_s=around.slowest_stop.get(name),
        ),
        Busy(recipe=known, within_s=around.idle_within.get(name, 300.0)),
    )


def box_checks(recipes: Sequence[Json], around: Around) -> list[Check]:
    """What is asked of the machine where there is no job."""
    owners = tuple(owner_of(recipe) for recipe in recipes)
    return [
        ClockKept(),
        Leftovers(production=owners, **_known_servers((), recipes)),
        OthersAtWork(in_slurm=around.in_slurm),
        GpuDriver(),
        GpuHealthy(),
        GpuPending(),
        Quiet(production=owners),
        StaysUp(for_s=around.takes),
    ]


def machine_checks(
    job: Job,
    arms: Mapping[str, Armed],
    recipes: Sequence[Json],
    around: Around,
    *,
    record: Record | None = None,
) -> list[Check]:
    """What this job needs of the machine; `recipes` are the services of production as plain JSON.

    `record` is what was recorded when the job last passed.
    """
    stopped = [recipe for recipe in recipes if job.stops is None or recipe["name"] in job.stops]
    owners = tuple(owner_of(recipe) for recipe in recipes)
    down = tuple(owner_of(recipe) for recipe in stopped)
    meant = tuple(
        gpu
        for need in job.needs.gpu
        if (gpu := need.uuid if need.uuid is not None else need.index) is not None
    )
    asked = bool(job.needs.gpu)
    copied, locked = _in_memory(arms)
    return [
        ClockKept(),
        *_published(arms),
        Leftovers(production=owners, **_known_servers(tuple(arms.values()), recipes)),
        OthersAtWork(
            gpus=tuple(gpu for gpu in meant if isinstance(gpu, int)), in_slurm=around.in_slurm
        ),
        GpuDriver(asked=asked, record=record),
        GpuIdentity(gpus=meant, visible=tuple(_visible(arms, around)), asked=asked, record=record),
        GpuHealthy(),
        GpuPending(),
        HostRam(copied=copied, production=down),
        HostLimits(locked=locked, processes=tuple(_plain(stopped))),
        Quiet(production=owners, at_most=job.needs.cpu_pressure_at_most),
        StaysUp(for_s=around.takes),
        *(check for recipe in stopped for check in stop_checks(recipe, around, beside=stopped)),
    ]


def _published(arms: Mapping[str, Armed]) -> Iterator[Check]:
    seen: set[int] = set()
    for arm in arms.values():
        if arm.server is not None and arm.server.port is not None and arm.server.port not in seen:
            seen.add(arm.server.port)
            yield Published(port=arm.server.port, host=arm.server.host or LOOPBACK)


def _known_servers(arms: Sequence[Armed], recipes: Sequence[Json]) -> dict[str, Any]:
    """The model files that servers here may hold, and what such servers are started with."""
    models: dict[str, None] = {}
    commands = [arm.command.argv for arm in arms]
    for arm in arms:
        if arm.server is not None:
            for file in arm.server.files():
                models |= dict.fromkeys([file.path] if file.role in _MODELS else [])
    for recipe in recipes:
        inputs = recipe.get("inputs", ())
        models |= dict.fromkeys(str(one["path"]) for one in inputs if one.get("role") in _MODELS)
        commands.append(tuple((recipe.get("identity") or {}).get("argv") or ()))
    programs: dict[str, None] = {}
    for argv in commands:
        binaries, scripts = executed(argv) if argv else ([], [])
        programs |= dict.fromkeys(scripts or binaries)
    return {"models": tuple(models), "programs": tuple(programs)}


def _visible(arms: Mapping[str, Armed], around: Around) -> Iterator[Visible]:
    for name, arm in arms.items():
        env = {**around.inherited, **arm.command.env}
        yield Visible(arm=name, devices=env.get(_VISIBLE), order=env.get(_ORDER, ""))


def _in_memory(arms: Mapping[str, Armed]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The model files that are read into the host's memory as a whole, and those locked there."""
    copied: dict[str, None] = {}
    locked: dict[str, None] = {}
    for arm in arms.values():
        if not isinstance(arm.server, LlamaCpp):
            continue
        given = {piece.name for piece in flags.pieces(arm.command.argv, FLAGS)}
        files = [
            path for one in arm.server.files() if one.role in _MODELS for path in files_of(one.path)
        ]
        if "--mlock" in given:
            locked |= dict.fromkeys(files)
        if given & {"--mlock", "--no-mmap"}:
            copied |= dict.fromkeys(files)
    return tuple(copied), tuple(locked)


def _plain(recipes: Sequence[Json]) -> Iterator[tuple[str, int, bool]]:
    """The services that come back with our limits: name, pid, whether they lock their weights."""
    for recipe in recipes:
        identity = recipe.get("identity") or {}
        pid = identity.get("pid")
        if (recipe.get("supervisor") or {}).get("kind") == "process" and isinstance(pid, int):
            yield str(recipe["name"]), pid, "--mlock" in (identity.get("argv") or ())
