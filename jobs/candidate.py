"""The command of a job's arms: production's own, or the job's, with its fields, set and drop. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any, Literal

from jobs import flags
from jobs.errors import ConfigError, Problem
from jobs.flags import Flags
from jobs.job import Differences, Job
from jobs.mistakes import table_of
from jobs.servers import KINDS, no_kind
from jobs.servers.base import LOOPBACK, Command, Server, ServerFields
from jobs.servers.llamacpp import REMOTE, SECRET
from jobs.servers.llamacpp_flags import FLAGS
from jobs.shell import WRAPPERS, program_at, with_program

Arm = Literal["candidate", "baseline"]

_PASSED_ON = (
    "LLAMA_", "GGML_", "CUDA_", "NVIDIA_", "NCCL_", "HIP_", "ROCR_", "HSA_", "GPU_", "VK_", "ZE_",
    "SYCL_", "ONEAPI_", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "LD_LIBRARY_PATH", "HF_HOME",
)  # fmt: skip
"""Beginnings of variables that tell a server how to use this machine. What else production has in
its environment, and above all its secrets, is none of a candidate's business."""

_NEVER = frozenset({"LLAMA_API_KEY", "HF_TOKEN"})
_LIBRARIES = "LD_LIBRARY_PATH"


@dataclass(frozen=True, slots=True)
class Resolved:
    """One arm of a job: the server as it will run (None for a task), and what is executed."""

    server: Server | None
    command: Command


def resolve(
    job: Job,
    commands: Mapping[str, Command],
    servers: Mapping[str, Server] | None = None,
    *,
    port: int | None = None,
    arm: Arm = "candidate",
) -> Resolved:
    """What an arm of this job runs; raises ConfigError with the key that has to change.

    `commands` holds the command each service of production runs with, `servers` its fields, both by
    name. `port` is the free one that was chosen where the job says "free".
    """
    if job.candidate.is_task:
        return Resolved(None, _own(job, None))
    like = job.candidate.like
    known = (servers or {}).get(like or "")
    if like is not None and like not in commands:
        names = ", ".join(commands) or "none"
        raise _wrong(job, "like", f"there is no service `{like}`", f"services there are: {names}")
    kind = job.candidate.kind or (str(getattr(known, "kind", "")) or "llamacpp")
    if kind not in KINDS:
        what, _, todo = no_kind(kind).partition("; ")
        raise _wrong(job, "kind", what, todo)
    chosen = _port(job, port, servers or {})
    program = _program(job, arm)
    base = _like(job, commands[like], program) if like is not None else _own(job, program)
    table = table_of(kind)
    fields = _fields(job, known, chosen)
    for changed in (job.candidate, job.baseline if arm == "baseline" else None):
        base = _changed(base, changed, table)
    if kind == "llamacpp":
        base = _for_validation(base)
    fields |= {"command": base.argv, "args": (), "env": base.env, "cwd": base.cwd}
    server = KINDS[kind].model_construct(**fields)
    command = server.command_line()
    if kind != "llamacpp" and like is not None and str(chosen) not in " ".join(command.argv):
        what = f"is {chosen}, but the command of {like} does not say so"
        raise _wrong(job, "port", what, "change the flag that names its port, with set")
    if faults := flags.faults(command.argv, table):
        raise _wrong(job, "like" if like else "command", *faults[0])
    command = replace(command, env=_seen(command, table))
    return Resolved(server.seen(command), command)


def candidate_command(
    job: Job,
    commands: Mapping[str, Command],
    servers: Mapping[str, Server] | None = None,
    *,
    port: int | None = None,
    arm: Arm = "candidate",
) -> Command:
    """Only the command of `resolve`."""
    return resolve(job, commands, servers, port=port, arm=arm).command


def _wrong(job: Job, key: str, message: str, remedy: str) -> ConfigError:
    line = job.line("candidate", key)
    return ConfigError(Problem(job.file, line, f"candidate.{key}", message, remedy))


def _program(job: Job, arm: Arm) -> str | None:
    """The program that takes the place of the command's own, if one does."""
    other = job.baseline.binary if job.baseline is not None and arm == "baseline" else None
    return other or job.candidate.binary


def _own(job: Job, program: str | None) -> Command:
    """The job's own command."""
    candidate = job.candidate
    argv = (*(candidate.command or (str(candidate.binary),)), *candidate.args)
    if program is not None and program != candidate.binary:
        argv = _replaced(job, argv, program, f"command names {argv[0]}, which")
    return Command(argv, dict(candidate.env), candidate.cwd)


def _replaced(job: Job, argv: tuple[str, ...], program: str, whose: str) -> tuple[str, ...]:
    try:
        return with_program(argv, program)
    except ValueError as error:
        table = "candidate" if job.candidate.binary == program else "baseline"
        problem = Problem(
            job.file,
            job.line(table, "binary"),
            f"{table}.binary",
            f"has no place to go: {whose} {error}",
            "write the whole command instead of like and binary",
        )
        raise ConfigError(problem) from None


def _like(job: Job, command: Command, program: str | None) -> Command:
    """Production's own command, with whole paths and without its keys and its model's sources.

    With a `program` that one runs instead, with the same flags.
    """
    candidate = job.candidate
    argv = command.argv
    if not argv:
        raise _wrong(
            job,
            "like",
            f"{candidate.like} does not run now, so its command is not known",
            "start it, or write the server's own command here",
        )
    at = program_at(argv)
    if not argv[at].startswith("/") and program is None:
        raise _wrong(
            job,
            "like",
            f"{candidate.like} runs `{argv[at]}`, which is no whole path",
            "start it by its whole path, or name the program here with binary",
        )
    if (name := PurePosixPath(argv[at]).name) in WRAPPERS:
        raise _wrong(
            job,
            "like",
            f"{candidate.like} is started through {name}, which hands the work to somebody else",
            "write the server's own command here, without like",
        )
    dropped = (*SECRET, *(REMOTE if candidate.model else ()))
    argv = flags.derive(argv, _whole_paths(command), dropped, FLAGS)
    env = {
        name: value
        for name, value in command.env.items()
        if name.startswith(_PASSED_ON) and name not in _NEVER
    }
    if program is not None and program != argv[at]:
        env = _without_libraries_of(argv[at], env)
        argv = _replaced(job, argv, program, str(candidate.like))
    return Command((*argv, *candidate.args), {**env, **candidate.env}, candidate.cwd or command.cwd)


def _without_libraries_of(program: str, env: dict[str, str]) -> dict[str, str]:
    """The environment without the places of one build's own libraries.

    LD_LIBRARY_PATH goes before the place that another build knows for its own: it would load
    production's libraries, and the old build would be measured under the new one's name.
    """
    if _LIBRARIES not in env:
        return env
    home = PurePosixPath(program).parent
    own = {home, home / "lib", home.parent / "lib", home.parent / "lib64"}
    kept = [place for place in env[_LIBRARIES].split(":") if PurePosixPath(place) not in own]
    rest = {name: value for name, value in env.items() if name != _LIBRARIES}
    return {**rest, _LIBRARIES: ":".join(kept)} if kept else rest


def _whole_paths(command: Command) -> dict[str, flags.Setting]:
    """The paths of a live command line that are relative to its directory."""
    found: dict[str, flags.Setting] = {}
    for piece in flags.pieces(command.argv, FLAGS):
        flag = FLAGS.find(piece.name) if piece.name else None
        if flag is None or flag.kind != "path" or piece.value is None:
            continue
        if not piece.value.startswith("/"):
            found[piece.name] = str(PurePosixPath(command.cwd or "/") / piece.value)
    return found


def _changed(command: Command, changed: Differences | None, table: Flags) -> Command:
    """The command with set and drop; a variable that says the same as such a flag goes, too."""
    if changed is None:
        return command
    argv = flags.derive(command.argv, changed.set, changed.drop, table)
    named = (*changed.set, *changed.drop)
    env = {
        name: value
        for name, value in command.env.items()
        if (flag := table.of_env(name)) is None or not any(item in flag.names for item in named)
    }
    return replace(command, argv=argv, env=env)


def _for_validation(command: Command) -> Command:
    """A log that tells what ran, and counters: where the user gave neither."""
    put: dict[str, flags.Setting] = {}
    if not any(flags.has(command.argv, name, FLAGS) for name in ("--verbosity", "--verbose")):
        put["-lv"] = "4"
    if not flags.has(command.argv, "--metrics", FLAGS):
        put["--metrics"] = True
    return replace(command, argv=flags.derive(command.argv, put, (), FLAGS))


def _seen(command: Command, table: Flags) -> dict[str, str]:
    """The environment without variables that a flag of the command line overrules anyway."""
    return {
        name: value
        for name, value in command.env.items()
        if (flag := table.of_env(name)) is None or not flags.has(command.argv, flag.names[0], table)
    }


def _fields(job: Job, known: Server | None, port: int) -> dict[str, Any]:
    """The candidate's fields for its server; what says nothing of the model comes from production."""
    candidate = job.candidate
    fields: dict[str, Any] = {name: getattr(candidate, name) for name in ServerFields.model_fields}
    if known is not None:
        for name in ("serves", "endpoint", "health", "ready_within", "headroom_mib"):
            if name not in candidate.model_fields_set:
                fields[name] = getattr(known, name)
    fields["host"] = candidate.host or LOOPBACK
    fields["port"] = port
    fields["binary"] = None
    return fields


def _port(job: Job, chosen: int | None, servers: Mapping[str, Server]) -> int:
    port = job.candidate.port if isinstance(job.candidate.port, int) else chosen
    if port is None:
        raise ValueError("the job asks for a free port, and none was chosen")
    for name, server in servers.items():
        if server.port == port:
            raise _wrong(
                job,
                "port",
                f"{port} is the port of production's {name}; while that is down its clients would "
                "meet the candidate",
                'write another port, or "free"',
            )
    return port
