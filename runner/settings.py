"""`runner.toml` as frozen models, and every mistake in it as a sentence with its line.

Knows where things are and who is told; must not know what a job is or how a service is stopped.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import date, time
from pathlib import Path
from typing import Annotated, ClassVar, Literal
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, Field

from alerts.message import DeliveryError
from alerts.table import AnyChannel
from jobs import explain, toml_lines
from jobs.errors import ConfigError, Problem
from jobs.fields import Duration, ExplicitDirectory, ExplicitPath, Model, Seconds
from jobs.names import bad_name
from jobs.toml_lines import Document, Key
from runner import __version__, where
from runner.recovery import lock
from runner.schedule.cron import checked
from runner.service import LATER, AnyService, Service

__all__ = [
    "VERSION",
    "Alerts",
    "Gpu",
    "Schedule",
    "Service",
    "Settings",
    "load_settings",
    "secrets_of",
]

VERSION = 1
"""The version of runner.toml that this runner writes and understands."""

# By the first part and the length of the key: the kinds, and what to use instead.
_LATER_KINDS: Mapping[tuple[str, int], tuple[frozenset[str], str]] = {
    ("production", 4): (
        frozenset({"docker", "podman", "compose"}),
        'use kind = "command" with the commands that start, stop and ask for it',
    ),
    ("alerts", 4): (frozenset({"apprise", "webhook"}), "use telegram, command, file or terminal"),
}


def _job_name(name: str) -> str:
    if wrong := bad_name(name):
        raise ValueError(wrong)
    return name


def _blackout(span: str) -> str:
    first, dots, last = span.partition("..")
    parts = (first, last) if dots else (first,)
    try:
        if ":" in span:
            begin, _, end = span.partition("-")
            return f"{time.fromisoformat(begin):%H:%M}-{time.fromisoformat(end):%H:%M}"
        days = [date.fromisoformat(part) for part in parts]
    except ValueError:
        raise ValueError(
            "is no blackout; write a date, a span of dates such as "
            '"2026-12-24..2026-12-26", or of times such as "08:00-20:00"'
        ) from None
    if days != sorted(days):
        raise ValueError("ends before it begins; write the earlier date first")
    return span


ClockTime = Annotated[str, Field(pattern=r"^([01]\d|2[0-3]):[0-5]\d$")]


class Schedule(Model):
    """When a job is to run."""

    reserved: ClassVar[Mapping[str, str]] = {"heartbeat": f"a dead man's switch {LATER}"}

    job: Annotated[str, AfterValidator(_job_name)] = Field(description="Name of the job.")
    cron: Annotated[str, AfterValidator(checked)] = Field(
        description="Minute hour day month weekday, in `timezone`."
    )
    late_by: Duration = Field(
        default=Seconds(7200), description="How late a run may still begin, such as 2h."
    )
    missed: Literal["run-once", "skip"] = Field(
        default="skip", description="What becomes of slots that passed while the box slept."
    )
    try_until: ClockTime | None = Field(
        default=None, description="Until when a refused run is tried again, as HH:MM."
    )
    back_by: ClockTime | None = Field(
        default=None, description="When production must serve again, as HH:MM."
    )
    not_before: ClockTime | None = Field(
        default=None, description="Earliest begin of a run, as HH:MM."
    )
    early_checks: tuple[Duration, ...] = Field(
        default=(Seconds(43200), Seconds(14400), Seconds(3600), Seconds(600)),
        description="How long before the slot to look whether the job could run.",
    )
    blackout: tuple[Annotated[str, AfterValidator(_blackout)], ...] = Field(
        default=(),
        description='Dates and spans whose slots are skipped, such as "2026-12-24", '
        '"2026-12-24..2026-12-26" or "08:00-20:00".',
    )


class Alerts(Model):
    """Who is told, and how."""

    reserved: ClassVar[Mapping[str, str]] = {
        "heartbeat": f"a dead man's switch {LATER}",
        "quiet_hours": "quiet hours are not in this version; remove it",
    }

    unproven_delivery: Literal["refuse", "accept"] = Field(
        default="refuse",
        description="What to do with a run while no channel is proven to reach a person: "
        '"refuse" it, or "accept" that its failure might not be told.',
    )
    channel: tuple[AnyChannel, ...] = Field(default=(), description="The ways to tell a person.")


class Gpu(Model):
    """How the GPU is read."""

    nvidia_smi: ExplicitPath | None = Field(
        default=None, description="Path of nvidia-smi where it is not on PATH."
    )
    reader: Literal["auto", "nvml", "nvidia-smi", "amd"] = Field(
        default="auto",
        description="Who is asked: NVML, then nvidia-smi, then amdgpu; or one of them alone.",
    )


def _zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        raise ValueError(
            'is no timezone; write an IANA name such as "Europe/Berlin" or "UTC"'
        ) from None
    return name


class Settings(Model):
    """The whole of runner.toml."""

    version: Literal[1] = Field(default=1, description="Version of this file's format.")
    timezone: Annotated[str, AfterValidator(_zone)] = Field(
        default_factory=where.local_timezone,
        description="IANA timezone of schedules and of all times shown (default: the box's own).",
    )
    jobs_dir: ExplicitDirectory = Field(
        default_factory=str,  # load_settings knows where the file lies
        description="Directory of the job files (default: jobs beside runner.toml).",
    )
    state_dir: ExplicitDirectory = Field(
        default_factory=lambda: str(where.state_dir()),
        description="Directory of journal, logs and results (default: $STATE_DIRECTORY, else "
        "/var/lib/runner with /etc/runner/runner.toml, else $XDG_STATE_HOME/runner).",
    )
    lock_name: Annotated[str, Field(pattern=r"^[a-z0-9-]{1,80}$")] = Field(
        default=lock.BOX,
        description="Name of the machine-wide lock; only a demo has a reason for one of its own.",
    )
    production: tuple[AnyService, ...] = Field(
        default=(), description="The services that serve, in the order in which they are started."
    )
    schedule: tuple[Schedule, ...] = Field(default=(), description="Which job runs when.")
    alerts: Alerts = Field(default_factory=Alerts, description="Who is told, and how.")
    gpu: Gpu = Field(default_factory=Gpu, description="How the GPU is read.")
    contact: str | None = Field(
        default=None, description="Whom to ask about what runs reserve, as others are told it."
    )

    @property
    def zone(self) -> ZoneInfo:
        """The timezone of all times shown."""
        return ZoneInfo(self.timezone)

    def service(self, name: str) -> Service | None:
        """The service of this name."""
        return next((one for one in self.production if one.name == name), None)


def secrets_of(settings: Settings) -> list[str]:
    """The secrets that the configuration names, as far as they can be read, to be hidden by value."""
    places = [service.api_key for service in settings.production]
    places += [getattr(channel, "token", None) for channel in settings.alerts.channel]
    found = []
    for place in places:
        with suppress(OSError, ValueError, DeliveryError):
            found += [place.read()] if place is not None else []
    return found


def load_settings(path: Path) -> Settings:
    """Read runner.toml; raises ConfigError naming every mistake with its line."""
    document = toml_lines.read(path)
    _refuse_newer(document)
    here = path.absolute()
    values = {
        "jobs_dir": str(where.jobs_dir(document.values, here)),
        "state_dir": str(where.state_dir(document.values, here)),
    } | document.values
    later = list(_later_kinds(document))
    try:
        settings = explain.build(Settings, Document(document.file, values, document.lines))
    except ConfigError as error:
        told = tuple(problem.message.split(" is ")[0] for problem in later)
        rest = [problem for problem in error.problems if not problem.message.endswith(told)]
        raise ConfigError(sorted(later + rest, key=_place)) from None
    if clashes := list(_clashes(settings, document)):
        raise ConfigError(clashes)
    return settings


def _place(problem: Problem) -> int:
    return problem.line or 0


def _refuse_newer(document: Document) -> None:
    found = document.values.get("version", VERSION)
    if isinstance(found, int) and not isinstance(found, bool) and found > VERSION:
        raise ConfigError(
            Problem(
                document.file,
                document.line(("version",)),
                "version",
                f"is {found}, written for a newer runner; runner {__version__} understands "
                f"version {VERSION}",
                "upgrade runner, or use a file of that version",
            )
        )


def _later_kinds(document: Document) -> Iterator[Problem]:
    """Kinds that other versions know: "there is no kind docker" would send a person looking."""
    for key, kind in _kinds(document):
        later, instead = _LATER_KINDS[str(key[0]), len(key)]
        if kind in later:
            yield Problem(
                document.file,
                document.line(key),
                ".".join(part for part in key if isinstance(part, str)),
                f"kind `{kind}` is not in this version",
                instead,
            )


def _kinds(document: Document) -> Iterator[tuple[Key, object]]:
    """Each place of the file that says a kind, and which."""
    for place, service in enumerate(_tables(document.values.get("production"))):
        supervisor = service.get("supervisor")
        if isinstance(supervisor, dict):
            yield ("production", place, "supervisor", "kind"), supervisor.get("kind")
    alerts = document.values.get("alerts")
    channels = alerts.get("channel") if isinstance(alerts, dict) else None
    for place, channel in enumerate(_tables(channels)):
        yield ("alerts", "channel", place, "kind"), channel.get("kind")


def _tables(value: object) -> Iterator[dict[str, object]]:
    yield from (
        each for each in (value if isinstance(value, list) else ()) if isinstance(each, dict)
    )


def _clashes(settings: Settings, document: Document) -> Iterator[Problem]:
    """What is right in each service and wrong beside the others."""
    names: set[str] = set()
    ports: dict[int, str] = {}
    for place, service in enumerate(settings.production):
        if service.name in names:
            yield _service_problem(
                document,
                place,
                "name",
                f"`{service.name}` is the name of two services",
                "give each a name of its own",
            )
        if service.port in ports:
            yield _service_problem(
                document,
                place,
                "port",
                f"{service.port} is the port of `{ports[service.port]}` too",
                "two services cannot listen on one port; correct one of them",
            )
        names.add(service.name)
        ports.setdefault(service.port or 0, service.name)
        if service.supervisor.kind == "process":
            try:
                service.command_line()
            except ValueError as error:
                message, _, remedy = str(error).partition("; ")
                yield _service_problem(
                    document,
                    place,
                    "supervisor",
                    f"`process` starts it from here, but it {message}",
                    remedy,
                )


def _service_problem(
    document: Document, place: int, key: str, message: str, remedy: str
) -> Problem:
    line = document.line(("production", place, key))
    return Problem(document.file, line, f"production.{key}", message, remedy)
