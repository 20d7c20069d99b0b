"""What must hold before a job may touch anything, as preflight's checks. Pure; looks at nothing."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Literal

from jobs.candidate import Resolved
from jobs.job import Job
from jobs.servers import LlamaCpp
from jobs.servers.base import LOOPBACK, ServerFile, programs
from preflight.back import way_back
from preflight.check import Check
from preflight.files import FileExists, Shards
from preflight.gguf import shard_name
from preflight.gpu import GpuBudget
from preflight.host import Binary, DiskSpace, StateDir
from preflight.ports import ExpectedOwner, PortOwner
from preflight.serves import ProductionServes

_OURS = "llama-server"
"""The one program that is known to take `--version` for a question."""


@dataclass(frozen=True, slots=True)
class ServiceFacts:
    """One service of production as it was found: what the checks need to know of it.

    `recipe` and `probe` are the plain JSON by which it is started again and asked; `files` are those
    its live command line names; `owner` tells its processes; `stops` whether this job stops it.
    """

    name: str
    port: int
    owner: ExpectedOwner
    recipe: dict[str, Any]
    probe: dict[str, Any]
    host: str = LOOPBACK
    base_url: str = ""
    files: tuple[ServerFile, ...] = ()
    stops: bool = True


def checks_for(
    job: Job,
    arms: Sequence[Resolved],
    services: Sequence[ServiceFacts],
    *,
    state_dir: str,
    gpu_idents: Sequence[ExpectedOwner] = (),
) -> list[Check]:
    """Every check of this job, each once; preflight itself puts them into rings.

    `gpu_idents` are further processes whose GPU memory comes back when production stops.
    """
    checks: list[Check] = [StateDir(path=state_dir)]
    checks += _files(_of_arms(arms), "job")
    checks += [FileExists(path=path) for path in job.needs.files]
    if not job.workload.prompts.startswith("builtin:"):
        checks.append(FileExists(path=job.workload.prompts, role="prompt"))
    for service in services:
        checks += _files(service.files, "production")
    checks += _ports(arms, services)
    owners = [service.owner for service in services if service.stops]
    checks += _gpus(job, arms, (*owners, *gpu_idents), services)
    checks += _programs(arms)
    checks.append(DiskSpace(path=state_dir, need_mib=job.needs.disk_mib))
    for service in services:
        checks.append(
            ProductionServes(name=service.name, base_url=service.base_url, probe=service.probe)
        )
        if service.stops:
            checks += way_back(service.recipe)
    return _once(checks)


def _of_arms(arms: Iterable[Resolved]) -> Iterator[ServerFile]:
    for arm in arms:
        yield from arm.server.files() if arm.server else programs(arm.command.argv)


def _files(files: Iterable[ServerFile], owner: Literal["job", "production"]) -> Iterator[Check]:
    for file in files:
        if not PurePosixPath(file.path).is_absolute():
            continue  # a live command line may look its program up; its recipe is checked for that
        yield FileExists(path=file.path, role=file.role, gguf=file.gguf, owner=owner)
        if file.gguf and file.role == "weights":
            yield Shards(path=file.path, owner=owner)


def _ports(arms: Iterable[Resolved], services: Iterable[ServiceFacts]) -> Iterator[Check]:
    for service in services:
        yield PortOwner(port=service.port, host=service.host, expect=service.owner)
    for arm in arms:
        if arm.server is not None and arm.server.port is not None:
            yield PortOwner(port=arm.server.port, host=arm.server.host or LOOPBACK, expect="free")


def _gpus(
    job: Job,
    arms: Sequence[Resolved],
    owners: tuple[ExpectedOwner, ...],
    services: Sequence[ServiceFacts],
) -> Iterator[Check]:
    """One budget for each GPU that the job names; without any, one that a box without GPU skips."""
    weights = tuple(dict.fromkeys(_weights(_of_arms(arms))))
    headroom = job.candidate.headroom_mib
    common = {} if headroom is None else {"headroom_mib": headroom}
    ports = tuple((service.host, service.port) for service in services if service.stops)
    for need in job.needs.gpu or (None,):
        free = need.free_mib if need else "estimate"
        yield GpuBudget(
            need_mib=None if free == "estimate" else int(free),
            gpu=(need.uuid if need.uuid is not None else need.index) if need else None,
            weights=weights,
            production=owners,
            production_ports=ports,
            asked=need is not None,
            **common,
        )


def _weights(files: Iterable[ServerFile]) -> Iterator[str]:
    """The model files that go to the GPU, all shards of a split one."""
    for file in files:
        if file.role in ("weights", "draft", "mmproj"):
            shards = shard_name(file.path)
            yield from shards.paths() if shards else (file.path,)


def _programs(arms: Iterable[Resolved]) -> Iterator[Check]:
    for arm in arms:
        env = {name: arm.command.env[name] for name in _LOADER if name in arm.command.env}
        for file in programs(arm.command.argv):
            if file.role == "binary":
                asked = isinstance(arm.server, LlamaCpp) and PurePosixPath(file.path).name == _OURS
                yield Binary(path=file.path, version=asked, env=env)


_LOADER = ("LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES")


def _once(checks: Iterable[Check]) -> list[Check]:
    """The checks without repetitions, in their order."""
    seen: dict[str, Check] = {}
    for check in checks:
        seen.setdefault(f"{type(check).__name__} {check.model_dump_json()}", check)
    return list(seen.values())
