"""Everything needed to start a service again, as plain JSON, and what a run owes.

`recovery.json` holds what the restore must not have to look up: explicit paths, argument vectors,
expected identity. It is written before the first stop, never changed while the obligation is open,
and read tolerantly: a field this version does not know is kept out of the way, not refused. A copy
lies beside it, for the day when a disk gives back something else than was written.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from runner.recovery.files import read_json, remove_durably, reserve, write_durably
from runner.recovery.lock import BOX

NAME = "recovery.json"
COPY = "recovery.copy.json"
LAST_GOOD = "last-good.json"
RELEASED = "released.json"
SCHEMA = 1
SETTLE_S = 1.0
READY_WITHIN_S = 900.0

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one service is started, recognised and trusted again.

    `supervisor` is one of {"kind": "process", argv, cwd, env, log, pidfile}, {"kind": "systemd",
    unit, scope, invocation}, {"kind": "command", start, stop, status}. `probe` says what to ask
    and what must come back; `identity` is what was recorded of the service while it served.
    """

    name: str
    kind: str
    host: str
    port: int
    supervisor: Json
    probe: Json
    identity: Json = field(default_factory=dict)
    inputs: list[Json] = field(default_factory=list)
    ready_within: float = READY_WITHIN_S
    slowest_load: float | None = None
    settle: float = SETTLE_S
    fallbacks: list[Json] = field(default_factory=list)
    pins: list[Json] = field(default_factory=list)

    @property
    def patience(self) -> float:
        """Seconds a start may take: what was learned never shortens what was granted."""
        return max(self.ready_within, 3 * (self.slowest_load or 0.0))

    def to_json(self) -> Json:
        """Plain JSON, read back by `from_json`."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Recipe:
        """The recipe in a JSON object.

        A part that is missing, or is not what it is here, counts as its default. Raises KeyError or
        TypeError where it has none.
        """
        known = {
            name: said[name]
            for name, kinds in _PARTS.items()
            if name in said and isinstance(said[name], kinds)
        }
        for name in ("name", "port", "supervisor", "probe"):
            if name not in known:
                raise KeyError(name) if name not in said else TypeError(f"{name} is {said[name]!r}")
        for name in ("inputs", "fallbacks", "pins"):
            known[name] = [one for one in known.get(name, ()) if isinstance(one, dict)]
        return cls(**{"kind": "", "host": "127.0.0.1"} | known)


_NUMBER = (int, float)
_PARTS: dict[str, type | tuple[type, ...]] = {
    "name": str,
    "kind": str,
    "host": str,
    "port": int,
    "supervisor": dict,
    "probe": dict,
    "identity": dict,
    "inputs": list,
    "ready_within": _NUMBER,
    "slowest_load": _NUMBER,
    "settle": _NUMBER,
    "fallbacks": list,
    "pins": list,
}


@dataclass(frozen=True, slots=True)
class Owed:
    """One obligation: which run took which services down, and how a person is told.

    `services` are in the order of starting; `stops` names those the run takes down. `ends_at` is
    the run's lease in CLOCK_BOOTTIME seconds. `tell` are the channels as plain JSON. `timezone` is
    a name of the tz database: times are told in it.
    """

    run: str
    job: str
    boot: str
    since: str
    lock_name: str
    services: list[Recipe]
    stops: list[str]
    ends_at: float | None = None
    tell: list[Json] = field(default_factory=list)
    timezone: str = "UTC"
    trigger: str = "manual"
    schema: int = SCHEMA

    @property
    def stopped(self) -> list[Recipe]:
        """The services this run takes down, in the order of starting."""
        return [recipe for recipe in self.services if recipe.name in self.stops]

    def due(self, services: Mapping[str, Any]) -> list[Recipe]:
        """Those that were asked to stop, by what `recovery.state` says of the services.

        One that was not is somebody else's to start. Where nothing is said of any, all may have been.
        """
        asked = {
            name
            for name, said in services.items()
            if isinstance(said, Mapping) and said.get("stop_asked")
        }
        return [one for one in self.stopped if one.name in asked] if asked else self.stopped

    def to_json(self) -> Json:
        """Plain JSON, read back by `from_json`."""
        said = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return said | {"services": [recipe.to_json() for recipe in self.services]}

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Owed:
        """The obligation in a JSON object; what is missing is as if it were not known.

        Raises KeyError, TypeError or ValueError.
        """
        if not isinstance(said["services"], list):
            raise TypeError(f"services is {said['services']!r}")
        services = [Recipe.from_json(recipe) for recipe in said["services"]]
        known: Json = {
            "job": "a job that is not known",
            "boot": "unknown",
            "since": "",
            "lock_name": BOX,
            "stops": [one.name for one in services],
            "services": services,
        }
        for name, kinds in _KINDS.items():
            if isinstance(said.get(name), kinds):
                known[name] = said[name]
        if "run" not in known:
            raise TypeError(f"run is {said.get('run')!r}")
        return cls(**known)


_KINDS: dict[str, type | tuple[type, ...]] = {
    "run": str,
    "job": str,
    "boot": str,
    "since": str,
    "lock_name": str,
    "stops": list,
    "tell": list,
    "ends_at": _NUMBER,
    "timezone": str,
    "trigger": str,
    "schema": int,
}


class Unreadable(Exception):
    """`recovery.json` is there, and it cannot be read as one."""


def write(state_dir: Path, owed: Owed) -> None:
    """Make the obligation durable, before the first stop. Raises OSError."""
    said = json.dumps(owed.to_json(), indent=1).encode()
    reserve(state_dir)
    write_durably(state_dir / COPY, said)  # first, so that it is never older than the file itself
    write_durably(state_dir / NAME, said)


def read(state_dir: Path) -> Owed | None:
    """The open obligation; None when nothing is owed. Raises Unreadable."""
    try:
        os.stat(state_dir / NAME)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        pass  # it may well be there
    try:
        return _read(state_dir / NAME)
    except Unreadable:
        with contextlib.suppress(Unreadable):
            return _read(state_dir / COPY)
        raise


def _read(path: Path) -> Owed:
    said = read_json(path)
    if said is None:
        raise Unreadable(f"{path} is no JSON object")
    try:
        return Owed.from_json(said)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Unreadable(f"{path}: {error!r}") from error


def close(state_dir: Path, served: list[Recipe]) -> None:
    """Close the obligation: keep the recipes that were seen serving, then forget the debt.

    The recipes kept are the next restore's last-known-good; a disk too full to keep them does not
    keep the obligation open. Raises OSError when the debt itself cannot be removed.
    """
    if served:
        with contextlib.suppress(OSError):
            remember(state_dir, served)
    with contextlib.suppress(FileNotFoundError):  # the whole directory may be gone
        remove_durably(state_dir / NAME)
    with contextlib.suppress(OSError):
        (state_dir / COPY).unlink(missing_ok=True)


def remember(state_dir: Path, served: list[Recipe]) -> None:
    """Keep recipes that were seen serving as the last-known-good. Raises OSError."""
    before = last_good(state_dir)
    known = before | {one.name: _with_what_was(one, before.get(one.name)) for one in served}
    said = {name: recipe.to_json() for name, recipe in known.items()}
    write_durably(state_dir / LAST_GOOD, json.dumps(said, indent=1).encode())


def _with_what_was(recipe: Recipe, before: Recipe | None) -> Recipe:
    """A recipe that says of files which are gone by now what they were."""
    was = {one.get("path"): one for one in before.inputs if one.get("size")} if before else {}
    inputs = [
        was.get(one.get("path"), one) if one.get("size") is None else one for one in recipe.inputs
    ]
    return replace(recipe, inputs=inputs)


def last_good(state_dir: Path) -> dict[str, Recipe]:
    """Service → the recipe that it was last seen serving with."""
    found: dict[str, Recipe] = {}
    for name, said in (read_json(state_dir / LAST_GOOD) or {}).items():
        try:
            found[name] = Recipe.from_json(said if isinstance(said, dict) else {})
        except (KeyError, TypeError):
            continue
    return found


def mark_released(state_dir: Path, run: str) -> None:
    """A person has taken over what this run owes. A file of its own: a recovery that is at work
    writes its state over whatever anybody else wrote there. Raises OSError.
    """
    write_durably(state_dir / RELEASED, json.dumps({"run": run}).encode())


def is_released(state_dir: Path, run: str) -> bool:
    """Whether a person has taken over what this run owed."""
    return (read_json(state_dir / RELEASED) or {}).get("run") == run
