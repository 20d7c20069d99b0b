"""What the units must know of a box: where things are, whose they are, which units production is."""

import grp
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from jobs.errors import ConfigError, Problem
from runner import credentials, where, who
from runner.settings import Settings
from runner.supervisors import Systemd

OWNER = "runner"
MEMBERS = "runner-users"
"""Members of this group may start a run and cancel it, and read how it went; nothing else."""

_GPU_GROUPS = ("video", "render")
_PLAIN = re.compile(r"/[A-Za-z0-9/._+:@-]*")
_STATE_ROOM = Path("/var/lib")


@dataclass(frozen=True, slots=True)
class Place:
    """One box, as its units have to name it.

    `services` are production's units of the system manager. `credentials` are the names that the
    configuration calls secrets by; each is read from a file of that name beside the configuration.
    `written` are directories outside the state directory that alerts are written to. `mails` says
    whether a command of the owner's own tells, which may need to write anywhere.
    """

    program: str
    config: str
    state_dir: str
    user: str = OWNER
    services: tuple[str, ...] = ()
    credentials: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    written: tuple[str, ...] = ()
    mails: bool = False

    @property
    def state_name(self) -> str | None:
        """What StateDirectory= would call the state directory; None where it lies elsewhere."""
        try:
            return str(Path(self.state_dir).relative_to(_STATE_ROOM))
        except ValueError:
            return None

    def secret_file(self, credential: str) -> str:
        """The file that a credential is read from, by root."""
        return str(credentials.file_of(Path(self.config), credential))


def place_of(config: Path, settings: Settings, *, user: str | None = None) -> Place:
    """This box. Raises ConfigError where a path could not stand in a unit."""
    here = config.absolute()
    place = Place(
        program=str(Path(sys.prefix) / "bin" / "runner"),
        config=str(here),
        state_dir=settings.state_dir,
        user=user or _owner(Path(settings.state_dir)),
        services=tuple(_services(settings)),
        credentials=tuple(sorted(set(credentials.named(where.read(here))))),
        groups=tuple(name for name in _GPU_GROUPS if _is_group(name)),
        written=tuple(dict.fromkeys(_written(settings))),
        mails=any(channel.kind == "command" for channel in settings.alerts.channel),
    )
    for path in (place.program, place.config, place.state_dir, *place.written):
        if not _PLAIN.fullmatch(path):
            raise ConfigError(
                Problem(
                    str(here),
                    None,
                    "",
                    f"{path} has signs that a unit would read otherwise",
                    "use a path of letters, digits and . _ + : @ - only",
                )
            )
    return place


def _owner(state_dir: Path) -> str:
    """The state directory's owner; the usual name while there is none, or it is root's own."""
    try:
        uid = who.owner_of(state_dir)
    except who.NotOwner:
        return OWNER
    return who.named(uid) if uid else OWNER


def _services(settings: Settings) -> Iterator[str]:
    for service in settings.production:
        supervisor = service.supervisor
        if isinstance(supervisor, Systemd) and supervisor.scope == "system":
            yield supervisor.unit


def _written(settings: Settings) -> Iterator[str]:
    for channel in settings.alerts.channel:
        path = getattr(channel, "path", None)
        if channel.kind == "file" and isinstance(path, str):
            yield str(Path(path).parent)


def _is_group(name: str) -> bool:
    try:
        grp.getgrnam(name)
    except KeyError:
        return False
    return True
