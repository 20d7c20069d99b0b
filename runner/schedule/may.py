"""Whether others may delete a file, use a port or stop a unit, by what is published. Any user may ask.

Standard library only and without the daemon: other people's scripts wait for this answer. What
cannot be told is no yes.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from runner.recovery.files import read_json
from runner.words import day_and_clock, duration, parsed

VALID = timedelta(days=8)
"""Reservations reach so far ahead; older ones tell nothing of today."""

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """Yes or no, and the sentence that says why."""

    yes: bool
    said: str

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return {"may": self.yes, "why": self.said}


def published(state_dir: Path) -> dict[str, Any] | None:
    """What is published about reservations; None where nothing is, or where it may not be read."""
    return read_json(state_dir / "public" / "reservations.json")


def delete(path: str, said: Json | None, now: datetime) -> Answer:
    """Whether a file, or a directory with all that lies in it, may be deleted."""
    wanted = _names(path)

    def needed(file: str) -> bool:
        return any(_lies_in(one, want) for one in _names(file) for want in wanted)

    def inside(place: str) -> bool:
        return any(_lies_in(want, one) for one in _names(place) for want in wanted)

    kept = {str(one["path"]) for one in (said or {}).get("pins") or () if _keeps(one)}

    def hits(said: Json) -> Iterator[tuple[str, str]]:
        for own in said.get("own") or ():
            if needed(own) or inside(own):
                yield own, "the runner works with it"
        for file, why in _needed_files(said, now):
            if file not in kept and needed(file):
                yield file, why

    pinned = any(needed(file) for file in kept)
    yes = "its bytes are pinned, so runs keep them" if pinned else "no coming run needs it"
    return _answer(path, said, now, hits, yes)


def _needed_files(said: Json, now: datetime) -> Iterator[tuple[str, str]]:
    """Each file that somebody needs, and who."""
    for one in said.get("production") or ():
        for file in one.get("files") or ():
            yield file, f"production ({one['name']}) runs from it"
    for pin in said.get("pins") or ():
        yield str(pin["pin"]), f"it is the pin of {pin['path']}"
    for job, needs in (said.get("jobs") or {}).items():
        for file in needs.get("files") or ():
            yield file, _needed_by(said, job, now)


def _lies_in(path: str, place: str) -> bool:
    """Whether a path is this file, or somewhere below this directory."""
    return path == place or path.startswith(f"{place.rstrip('/')}/")


def _keeps(pin: Json) -> bool:
    """Whether a pin holds what lies at its path now, as far as we may see."""
    path = str(pin["path"])
    try:
        kept = os.stat(str(pin["pin"]))
        if (kept.st_size, kept.st_ino) != (pin["size"], pin["inode"]):
            return False
        there = os.stat(path)
    except FileNotFoundError as error:
        return str(error.filename) == path
    except (OSError, KeyError):
        return False
    if pin["how"] == "reflink":
        return (there.st_size, there.st_mtime_ns) == (pin["size"], pin["mtime_ns"])
    return there.st_ino == kept.st_ino


def use(port: int, said: Json | None, now: datetime) -> Answer:
    """Whether a port may be used from now on."""

    def hits(said: Json) -> Iterator[tuple[str, str]]:
        for one in said.get("production") or ():
            if one.get("port") == port:
                yield str(port), f"it is production's ({one['name']})"
        for job in _wanting(said, "ports", port, now):
            yield str(port), _needed_by(said, job, now)

    return _answer(f"port {port}", said, now, hits, "no coming run needs it")


def stop(unit: str, said: Json | None, now: datetime) -> Answer:
    """Whether a systemd unit may be stopped."""
    name = unit if "." in unit else f"{unit}.service"

    def hits(said: Json) -> Iterator[tuple[str, str]]:
        for one in said.get("production") or ():
            if one.get("unit") == name:
                yield name, f"it is production ({one['name']}); a coming run would find it down"
        for job in _wanting(said, "units", name, now):
            yield name, _needed_by(said, job, now)

    return _answer(name, said, now, hits, "no coming run needs it")


def _wanting(said: Json, kind: str, what: object, now: datetime) -> Iterator[str]:
    """The jobs that still need a port or a unit."""
    for job, needs in (said.get("jobs") or {}).items():
        if what in (needs.get(kind) or ()) and parsed(str(needs["until"])) >= now:
            yield job


def _answer(subject: str, said: Json | None, now: datetime, hits: Any, yes: str) -> Answer:
    if said is None:
        why = "nothing is published about what runs need; start runner serve, or ask its owner"
        return Answer(yes=False, said=f"cannot tell about {subject}: {why}")
    at = parsed(str(said.get("at") or "1970-01-01"))
    if now - at > VALID:
        age = duration((now - at).total_seconds())
        return Answer(yes=False, said=f"cannot tell about {subject}: what is known is {age} old")
    found = list(dict.fromkeys(hits(said)))
    if not found:
        unseen = [
            job for job, needs in (said.get("jobs") or {}).items() if needs.get("known") is False
        ]
        if unseen:
            why = f"what {unseen[0]} needs is not known yet"
            return Answer(
                yes=False, said=f"cannot tell about {subject}: {why} → runner reservations"
            )
        return Answer(yes=True, said=f"yes: {subject}: {yes}")
    name, why = found[0]
    more = f", and {len(found) - 1} more" if len(found) > 1 else ""
    ask = f"; ask {said['contact']}" if said.get("contact") else ""
    which = "" if name == subject or subject.endswith(name) else f" ({name})"
    return Answer(yes=False, said=f"no: {subject}{which}: {why}{more}{ask} → runner reservations")


def _needed_by(said: Json, job: str, now: datetime) -> str:
    for run in said.get("runs") or ():
        if run["job"] == job and _to_come(run, now):
            seconds = (parsed(run["at"]) - now).total_seconds()
            soon = f"in {duration(seconds)}" if seconds > 0 else "now"
            return f"{job} needs it at {day_and_clock(run['at'])} ({soon})"
    return f"{job} needs it"


def _to_come(run: Json, now: datetime) -> bool:
    """Whether a run is still ahead, or may be going on."""
    return parsed(str(run.get("until") or run["at"])) >= now


def _names(path: str) -> set[str]:
    """A path as it is written, and as it is once its links are followed."""
    absolute = os.path.abspath(path)
    return {absolute, os.path.realpath(absolute)}


def in_words(said: Json, now: datetime | None = None) -> list[str]:
    """The reservations for people, one line a run."""
    at = now or datetime.now(UTC)
    lines = []
    for run in said.get("runs") or ():
        if not _to_come(run, at):
            continue
        needs = run.get("needs") or {}
        files = ((said.get("jobs") or {}).get(run["job"]) or {}).get("files") or ()
        parts = [
            f"ports {', '.join(map(str, needs['ports']))}" if needs.get("ports") else "",
            f"units {', '.join(needs['units'])}" if needs.get("units") else "",
            "the GPU" if needs.get("gpu") else "",
            f"{len(files)} files" if files else "",
        ]
        what = ", ".join(part for part in parts if part) or "not known yet"
        lines.append(f"{day_and_clock(run['at'])}  {run['job']}  {what}")
    return lines


def motd(said: Json, now: datetime | None = None) -> str:
    """One line for whoever logs in; empty where nothing is to come."""
    at = now or datetime.now(UTC)
    run = next((run for run in said.get("runs") or () if _to_come(run, at)), None)
    if run is None:
        return ""
    ask = f", or ask {said['contact']}" if said.get("contact") else ""
    return (
        f"runner: {run['job']} takes this GPU at {day_and_clock(run['at'])}. Before you delete a "
        f"model, use a port or stop a server: runner may-i delete PATH{ask}"
    )
