"""What a person writes in jobs/<name>.toml: what to run, and what would prove it. Acts on nothing."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, PrivateAttr, WithJsonSchema, field_validator

from jobs.claims import AnyClaim, ExitCode
from jobs.fields import (
    MOST,
    CheckId,
    Duration,
    ExplicitPath,
    Mib,
    Model,
    Name,
    PortOrFree,
    Repeats,
    Seconds,
    Share,
    Temperature,
    in_words,
)
from jobs.flags import Setting
from jobs.servers import KINDS, no_kind
from jobs.servers.base import ServerFields
from jobs.shell import Program

TASK = "task"


def _setting(value: object) -> Setting:
    """One flag's value from TOML, as the words of a command line."""
    if value is True:
        return True
    if value is False:
        raise ValueError("is false; to remove a flag, name it in drop")
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, list | tuple) and all(
        isinstance(part, str | int | float) for part in value
    ):
        return tuple(str(part) for part in value)
    raise ValueError("is no flag value; write text, a number, true, or a list of texts")


def _flag(name: str) -> str:
    if not name.startswith("-") or name != name.strip() or " " in name:
        raise ValueError(
            f'`{name}` is no flag; write it as on the command line, such as "--spec-type"'
        )
    return name


FlagName = Annotated[str, BeforeValidator(lambda name: _flag(str(name)))]
FlagValue = Annotated[
    Setting,
    BeforeValidator(_setting),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {"type": "number"},
                {"const": True},
                {"type": "array", "items": {"type": "string"}},
            ]
        }
    ),
]


class Differences(Model):
    """How a command line differs from the one it is made of."""

    set: dict[FlagName, FlagValue] = Field(
        default_factory=dict,
        description="Flags to set, under any of their names: a value, true for a switch, or a list "
        "for a flag that may be repeated.",
    )
    drop: tuple[FlagName, ...] = Field(
        default=(), description="Flags to remove together with their values."
    )


class Baseline(Differences):
    """The optional other arm of a comparison: the candidate with these differences."""

    reserved: ClassVar[Mapping[str, str]] = {
        "from": "measuring production itself is not in this version; "
        "write the differences with binary, set and drop",
    }

    binary: Program | None = Field(
        default=None,
        description="Path of the server program of this arm, such as the build before.",
    )


class Candidate(ServerFields, Differences):
    """What the job brings up: a server, or a task that ends by itself."""

    kind: str | None = Field(
        default=None,
        description='The kind of server, or "task" for a command that ends by itself; with `like` '
        "it is production's own kind.",
    )
    binary: Program | None = Field(
        default=None,
        description="Path of the server program; with `like` it takes the place of production's "
        "own, whose flags stay (a new build).",
    )
    like: Name | None = Field(
        default=None, description="Name of the production service whose command to start from."
    )
    port: PortOrFree | None = Field(
        default=None, description='TCP port to listen on, or "free" for any (default for llamacpp).'
    )

    @field_validator("kind")
    @classmethod
    def _known(cls, kind: str | None) -> str | None:
        if kind is not None and kind != TASK and kind not in KINDS:
            raise ValueError(no_kind(kind).replace("there are: ", f"there are: {TASK}, "))
        return kind

    @property
    def is_task(self) -> bool:
        """Whether it ends by itself and is judged by its exit code."""
        return self.kind == TASK


class GpuNeed(Model):
    """Memory that one GPU must have free once production is down."""

    free_mib: Mib | Literal["estimate"] = Field(
        default="estimate",
        description='GPU memory in MiB the candidate needs, or "estimate" to take it from the model.',
    )
    index: Annotated[int, Field(strict=True, ge=0)] | None = Field(
        default=None, description="Index of the GPU as the driver counts them."
    )
    uuid: str | None = Field(
        default=None,
        pattern="^(GPU|MIG)-",
        description="UUID of the GPU, as in GPU-5f0c…, which no reboot changes.",
    )

    @field_validator("free_mib", mode="before")
    @classmethod
    def _number_or_word(cls, value: object) -> object:
        whole = isinstance(value, int) and not isinstance(value, bool) and value >= 0
        if value == "estimate" or whole:
            return value
        raise ValueError('is no amount; write a number of MiB, or "estimate"')


class Needs(Model):
    """What the job needs beside the files that the candidate itself names."""

    files: tuple[ExplicitPath, ...] = Field(
        default=(), description="Further files that must be there, each by its whole path."
    )
    gpu: tuple[GpuNeed, ...] = Field(
        default=(), description="GPU memory that must be free; by default estimated where a GPU is."
    )
    disk_mib: Mib = Field(
        default=0, description="Disk space in MiB that the job writes into its run directory."
    )
    cpu_pressure_at_most: Annotated[float, Field(ge=0, le=100)] | None = Field(
        default=None,
        description="CPU pressure of the machine in percent above which the job is refused "
        "(default: results are only tagged as contended).",
    )
    unrecorded: Literal["accept", "refuse"] = Field(
        default="accept",
        description="What becomes of the job while a file of it is not recorded, so that no change "
        "of it could be seen: `accept` (with a warning), or `refuse` until `runner check JOB "
        "--record` or a proven run.",
    )


def _prompts(value: object) -> object:
    if isinstance(value, str) and value.startswith("builtin:"):
        if value in BUILTIN:
            return value
        raise ValueError(f"there is no `{value}`; write one of {', '.join(BUILTIN)}, or a path")
    return value


BUILTIN = ("builtin:mixed", "builtin:prose", "builtin:code", "builtin:reasoning")


class Workload(Model):
    """Which requests are measured: prompts times temperatures times repeats, for each arm."""

    prompts: Annotated[
        ExplicitPath | str,
        BeforeValidator(_prompts),
        WithJsonSchema({"anyOf": [{"enum": list(BUILTIN)}, {"type": "string", "pattern": "^/"}]}),
    ] = Field(
        default=BUILTIN[0],
        description="Built-in prompts (builtin:mixed, prose, code or reasoning), or the path of a "
        "text file whose prompts are separated by lines of three dashes.",
    )
    max_tokens: Annotated[int, Field(strict=True, ge=2, le=MOST)] = Field(
        default=256, description="Tokens to generate for each request."
    )
    temperatures: Annotated[tuple[Temperature, ...], Field(min_length=1)] = Field(
        default=(0.0,), description="Sampling temperatures; each is measured and judged by itself."
    )
    repeats: Repeats = Field(
        default=5, description="Measured replies for each prompt and temperature."
    )
    warmups: Annotated[int, Field(strict=True, ge=0, le=10_000)] = Field(
        default=3, description="Most replies to discard first; fewer when two in a row agree."
    )
    fill: tuple[Share, ...] = Field(
        default=(),
        description="Shares of the context to fill with one prompt; decoding is then measured there.",
    )
    repeats_at_depth: Repeats = Field(
        default=3, description="Measured replies for each temperature behind a filled context."
    )
    request_within: Duration = Field(
        default=Seconds(1800), description='Longest time for one reply, such as "30m".'
    )

    @field_validator("temperatures", "fill")
    @classmethod
    def _once(cls, values: tuple[float, ...]) -> tuple[float, ...]:
        if len(set(values)) != len(values):
            raise ValueError("names a value twice; name each once")
        return values

    @field_validator("prompts")
    @classmethod
    def _path(cls, value: str) -> str:
        if not value.startswith(("builtin:", "/")):
            raise ValueError(f"is no path; write one of {', '.join(BUILTIN)}, or a whole path")
        return value


class Job(Model):
    """One validation job."""

    reserved: ClassVar[Mapping[str, str]] = {
        "cron": "belongs to runner.toml; write it there under [[schedule]]",
        "schedule": "belongs to runner.toml; write it there under [[schedule]]",
        "production": "belongs to runner.toml; name the services to stop with stops",
        "name": "is the name of the file; remove it",
        "retry": "is not in this version; remove it",
    }

    version: Annotated[int, Field(strict=True, ge=1)] = Field(
        default=1, description="Version of this file's format (1)."
    )
    question: str = Field(min_length=1, description="The question that this job answers.")
    downtime_budget: Duration = Field(
        default=Seconds(5400),
        description='Longest time from the first stop to production serving again, such as "90m".',
    )
    timeout: Duration | None = Field(
        default=None,
        description="Longest time from the start of the run until the candidate is gone.",
    )
    stops: tuple[Name, ...] | None = Field(
        default=None, description="Names of the production services to stop (default: all of them)."
    )
    accept: dict[CheckId, Annotated[str, Field(min_length=3)]] = Field(
        default_factory=dict,
        description="Checks whose `unknown` is accepted: the id of the check, and the reason.",
    )
    candidate: Candidate = Field(description="What the job brings up.")
    needs: Needs = Field(default_factory=Needs, description="What must be there besides.")
    workload: Workload = Field(default_factory=Workload, description="Which requests are measured.")
    baseline: Baseline | None = Field(
        default=None, description="The candidate with differences, measured for comparison."
    )
    claim: tuple[AnyClaim, ...] = Field(default=(), description="What the job wants proven.")

    _name: str = PrivateAttr(default="")
    _file: str = PrivateAttr(default="")
    _lines: Mapping[tuple[str | int, ...], int] = PrivateAttr(default_factory=dict)

    @field_validator("version")
    @classmethod
    def _readable(cls, version: int) -> int:
        if version > 1:
            raise ValueError(
                f"is {version}, written for a newer runner; upgrade the runner, or write version = 1"
            )
        return version

    @field_validator("accept")
    @classmethod
    def _never_production(cls, accept: dict[str, str]) -> dict[str, str]:
        for name in accept:
            if name.startswith("prod.") and name != "prod.busy":
                raise ValueError(
                    f"accepts {name}; what production needs to come back is never accepted unknown"
                )
        return accept

    @property
    def name(self) -> str:
        """The job's name: its file's name without `.toml`."""
        return self._name

    @property
    def file(self) -> str:
        """The file it was read from, as shown to people."""
        return self._file

    @property
    def claims(self) -> tuple[AnyClaim, ...]:
        """What must be proven; a task's exit code is claimed without being written."""
        if self.candidate.is_task and not any(claim.kind == "exit_code" for claim in self.claim):
            return (*self.claim, ExitCode())
        return self.claim

    @property
    def arms(self) -> tuple[Literal["candidate", "baseline"], ...]:
        """The servers that are measured one after the other."""
        return ("candidate", "baseline") if self.baseline else ("candidate",)

    def limits(self) -> str:
        """The time limits in words, for a plan."""
        cut = f", cut after {in_words(self.timeout)}" if self.timeout else ""
        return f"production down for at most {in_words(self.downtime_budget)}{cut}"

    def line(self, *key: str) -> int | None:
        """The line of a key in its file, or of the table that it would stand in."""
        return next(
            (self._lines[key[:n]] for n in range(len(key), 0, -1) if key[:n] in self._lines), None
        )

    def named(
        self, name: str, file: str, lines: Mapping[tuple[str | int, ...], int] | None = None
    ) -> Self:
        """This job, knowing its name, the file it was read from, and where its keys stand."""
        self._name, self._file, self._lines = name, file, lines or {}
        return self
