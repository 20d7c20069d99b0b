"""What must hold before a job may touch anything, as preflight's checks. Pure; looks at nothing."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Literal, Protocol

from jobs.claims import Context
from jobs.job import Job
from jobs.machine import owner_of
from jobs.servers import LlamaCpp
from jobs.servers.base import LOOPBACK, Command, Server, ServerFile, programs
from jobs.servers.llamacpp_needs import Words, flag_check, load, roles, takes_questions
from preflight.check import Check
from preflight.files.access import MayRead
from preflight.files.exists import FileExists
from preflight.files.recorded import Record
from preflight.files.unchanged import Unchanged, Watched
from preflight.gpu.budget import GpuBudget
from preflight.host.room import Binary, DiskSpace, StateDir
from preflight.models.fit import Learned, Load
from preflight.models.roles import Roles, files_of
from preflight.models.safetensors_whole import ENDING, INDEX, SafetensorsWhole
from preflight.models.shards import Shards
from preflight.ports.owner import PortOwner
from preflight.production.back import way_back
from preflight.production.serves import ProductionServes

_MODELS = ("weights", "draft", "mmproj")
_ENGINES = frozenset({"docker", "podman", "nerdctl", "conmon"})

Json = Mapping[str, Any]


class Armed(Protocol):
    """One arm of a job as it will run: what is executed, and the server it is (None for a task)."""

    @property
    def command(self) -> Command:
        """What is executed."""

    @property
    def server(self) -> Server | None:
        """The server it is."""


@dataclass(frozen=True, slots=True)
class Known:
    """What earlier runs and this process know beside the job: all of it may be empty."""

    record: Record | None = None
    """The job's files as they were when it last passed."""
    learned: tuple[Learned, ...] = ()
    """Compute buffers of earlier starts."""
    inherited: Mapping[str, str] = field(default_factory=dict)
    """Variables of the runner's own environment that a candidate would see."""


def checks_for(
    job: Job,
    arms: Mapping[str, Armed],
    recipes: Sequence[Json],
    *,
    state_dir: str,
    known: Known | None = None,
) -> list[Check]:
    """Every check of this job, each once; preflight itself puts them into rings.

    `recipes` are the services of production as plain JSON, as `runner.recovery.recipe` writes them:
    name, kind, host, port, supervisor, probe, identity and inputs.
    """
    known = known or Known()
    armed = tuple(arms.values())
    stopped = [recipe for recipe in recipes if job.stops is None or recipe["name"] in job.stops]
    checks: list[Check] = [StateDir(path=state_dir)]
    own = (*_of_arms(armed), *_beside(job))
    checks += _files(own, "job", known.record)
    checks += _unchanged(job, own, known.record)
    checks += _roles(arms, known)
    for recipe in recipes:
        checks += _files(_inputs(recipe), "production")
        checks += _access(recipe)
    checks += _ports(armed, recipes)
    checks += _gpus(job, arms, stopped, known)
    checks += _programs(armed, known.record)
    checks += _flags(job, arms, known)
    checks.append(DiskSpace(path=state_dir, need_mib=job.needs.disk_mib))
    checks += [DiskSpace(path=place, need_mib=1, own=False) for place in _logs(recipes)]
    for recipe in recipes:
        probe = dict(recipe["probe"])
        checks.append(
            ProductionServes(name=recipe["name"], base_url=str(probe.get("base", "")), probe=probe)
        )
        if recipe in stopped:
            checks += way_back(dict(recipe))
    return _once(checks)


def _of_arms(arms: Iterable[Armed]) -> Iterator[ServerFile]:
    for arm in arms:
        yield from arm.server.files() if arm.server else programs(arm.command.argv)


def _beside(job: Job) -> Iterator[ServerFile]:
    """What the job needs beside what its arms name."""
    for path in job.needs.files:
        yield ServerFile("other", path)
    if not job.workload.prompts.startswith("builtin:"):
        yield ServerFile("prompt", job.workload.prompts)


def _inputs(recipe: Json) -> Iterator[ServerFile]:
    """The files that a service was seen to be started from."""
    for item in recipe.get("inputs", ()):
        path, role = str(item["path"]), item.get("role", "other")
        gguf = role in _MODELS and (recipe["kind"] == "llamacpp" or path.endswith(".gguf"))
        yield ServerFile(role, path, gguf)


def _files(
    files: Iterable[ServerFile],
    owner: Literal["job", "production"],
    record: Record | None = None,
) -> Iterator[Check]:
    for file in files:
        if not PurePosixPath(file.path).is_absolute():
            continue  # a live command line may look its program up; its recipe is checked for that
        yield FileExists(path=file.path, role=file.role, gguf=file.gguf, owner=owner, record=record)
        if file.gguf and file.role == "weights":
            yield Shards(path=file.path, owner=owner, record=record)
        if file.path.endswith((ENDING, INDEX)):
            yield SafetensorsWhole(path=file.path, owner=owner)


def _logs(recipes: Iterable[Json]) -> Iterator[str]:
    """Where production writes: a full disk there keeps it from starting, and is not ours to try."""
    for recipe in recipes:
        log = (recipe.get("supervisor") or {}).get("log")
        if isinstance(log, str) and PurePosixPath(log).is_absolute():
            yield str(PurePosixPath(log).parent)


def _unchanged(job: Job, files: Iterable[ServerFile], record: Record | None) -> Iterator[Check]:
    """One look at all of them: what changed since the job last passed."""
    watched: dict[str, Watched] = {}
    for file in files:
        paths = files_of(file.path) if file.gguf else (file.path,)
        for path in paths:
            if PurePosixPath(path).is_absolute():
                watched.setdefault(path, Watched(path=path, role=file.role))
    if watched:
        yield Unchanged(
            job=job.name,
            files=tuple(watched.values()),
            record=record,
            required=job.needs.unrecorded == "refuse",
        )


def _roles(arms: Mapping[str, Armed], known: Known) -> Iterator[Check]:
    for name, arm in arms.items():
        if isinstance(arm.server, LlamaCpp):
            found = roles(arm.server, Words(arm.command, known.inherited), name)
            if found is not None:
                yield found
        elif arm.server is not None and (arm.server.model or "").endswith(".gguf"):
            yield Roles(arm=name, model=str(arm.server.model))


def _access(recipe: Json) -> Iterator[Check]:
    """Production's files with the eyes of the user that it runs as, where that is known."""
    identity = recipe.get("identity") or {}
    uid, pid = identity.get("uid"), identity.get("pid")
    paths = [path for file in _inputs(recipe) for path in _all_of(file)]
    if isinstance(uid, int) and paths:
        yield MayRead(
            service=str(recipe["name"]),
            paths=tuple(dict.fromkeys(paths)),
            uid=uid,
            pid=pid if isinstance(pid, int) else None,
            engine=_engine(identity.get("argv") or ()),
        )


def _engine(argv: Sequence[str]) -> str:
    """The container engine that a process only asks for what it seems to run."""
    name = PurePosixPath(argv[0]).name if argv else ""
    return name if name in _ENGINES else ""


def _all_of(file: ServerFile) -> tuple[str, ...]:
    """The file with its shards; nothing where its place is not known."""
    if not PurePosixPath(file.path).is_absolute():
        return ()
    return files_of(file.path) if file.gguf else (file.path,)


def _ports(arms: Iterable[Armed], recipes: Iterable[Json]) -> Iterator[Check]:
    for recipe in recipes:
        yield PortOwner(port=recipe["port"], host=recipe["host"], expect=owner_of(recipe))
    for arm in arms:
        if arm.server is not None and arm.server.port is not None:
            yield PortOwner(port=arm.server.port, host=arm.server.host or LOOPBACK, expect="free")


def _gpus(
    job: Job, arms: Mapping[str, Armed], stopped: Sequence[Json], known: Known
) -> Iterator[Check]:
    """One budget for each GPU that the job names; without any, one that a box without GPU skips."""
    weights = tuple(dict.fromkeys(_weights(_of_arms(arms.values()))))
    headroom = job.candidate.headroom_mib
    common = {} if headroom is None else {"headroom_mib": headroom}
    shared = [need for need in job.needs.gpu if need.free_mib == "estimate"]
    for need in job.needs.gpu or (None,):
        free = need.free_mib if need else "estimate"
        place = shared.index(need) if need in shared and len(shared) > 1 else None
        yield GpuBudget(
            need_mib=None if free == "estimate" else int(free),
            gpu=(need.uuid if need.uuid is not None else need.index) if need else None,
            loads=tuple(_loads(arms, known, place, len(shared))),
            weights=weights,
            production=tuple(owner_of(recipe) for recipe in stopped),
            production_ports=tuple((recipe["host"], recipe["port"]) for recipe in stopped),
            asked=need is not None,
            **common,
        )


def _loads(
    arms: Mapping[str, Armed], known: Known, place: int | None, count: int
) -> Iterator[Load]:
    """What each arm puts on the GPU, or its share of several, where that can be estimated."""
    for name, arm in arms.items():
        if isinstance(arm.server, LlamaCpp):
            words = Words(arm.command, known.inherited)
            share = 1.0 if place is None else words.share(place, count)
            found = load(words, name, known.learned, share=share)
            if found is not None:
                yield found


def _weights(files: Iterable[ServerFile]) -> Iterator[str]:
    """The model files that go to the GPU, all shards of a split one."""
    for file in files:
        if file.role in _MODELS and not file.path.endswith(INDEX):
            yield from files_of(file.path)


def _programs(arms: Iterable[Armed], record: Record | None) -> Iterator[Check]:
    for arm in arms:
        env = {name: arm.command.env[name] for name in _LOADER if name in arm.command.env}
        for file in programs(arm.command.argv):
            if file.role == "binary":
                asked = isinstance(arm.server, LlamaCpp) and takes_questions(file.path)
                yield Binary(path=file.path, version=asked, env=env, record=record)


def _flags(job: Job, arms: Mapping[str, Armed], known: Known) -> Iterator[Check]:
    claimed = max((claim.tokens for claim in job.claims if isinstance(claim, Context)), default=0)
    for name, arm in arms.items():
        if isinstance(arm.server, LlamaCpp):
            loader = {each: arm.command.env[each] for each in _LOADER if each in arm.command.env}
            words = Words(arm.command, known.inherited)
            found = flag_check(arm.server, words, name, loader=loader, claimed=claimed)
            if found is not None:
                yield found


_LOADER = ("LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES")


def _once(checks: Iterable[Check]) -> list[Check]:
    """The checks without repetitions, in their order."""
    seen: dict[str, Check] = {}
    for check in checks:
        seen.setdefault(f"{type(check).__name__} {check.model_dump_json()}", check)
    return list(seen.values())
