"""A job, its commands and production's recipes with their pins in place of the paths. Pure."""

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from jobs.candidate import Resolved
from jobs.job import Job
from preflight.check import Check
from preflight.files.pins import Pinned
from preflight.given import Given
from preflight.models.shard_names import shard_name
from preflight.verdict import State
from runner.production import Found
from runner.recovery.pins import is_gone, put_one_back
from runner.recovery.recipe import Recipe
from runner.schedule.pins import as_checks, at_its_path
from runner.words import at_epoch

_FIELDS = ("model", "draft", "mmproj")

Row = Mapping[str, Any]


def job_with(job: Job, pins: Mapping[str, str]) -> Job:
    """The job reading its pins: path -> pin."""
    changed: dict[str, Any] = {}
    mine = {
        name: pins[path]
        for name in _FIELDS
        if (path := getattr(job.candidate, name)) is not None and path in pins
    }
    if mine:
        changed["candidate"] = job.candidate.model_copy(update=mine)
    if set(job.needs.files) & set(pins):
        files = tuple(pins.get(path, path) for path in job.needs.files)
        changed["needs"] = job.needs.model_copy(update={"files": files})
    if job.workload.prompts in pins:
        prompts = pins[job.workload.prompts]
        changed["workload"] = job.workload.model_copy(update={"prompts": prompts})
    return job.model_copy(update=changed) if changed else job


def arm_with(arm: Resolved, pins: Mapping[str, str]) -> Resolved:
    """What is executed, with each pinned path replaced, also those that production's own brought."""
    if not pins:
        return arm
    argv = tuple(_word(word, pins) for word in arm.command.argv)
    env = {name: pins.get(value, value) for name, value in arm.command.env.items()}
    command = dataclasses.replace(arm.command, argv=argv, env=env)
    if arm.server is None:
        return dataclasses.replace(arm, command=command)
    fields = {
        name: pins[value]
        for name in _FIELDS
        if (value := getattr(arm.server, name, None)) is not None and value in pins
    }
    server = arm.server.model_copy(update=fields).seen(command)
    return dataclasses.replace(arm, command=command, server=server)


def _word(word: str, pins: Mapping[str, str]) -> str:
    flag, equals, value = word.partition("=")
    if equals and word.startswith("-") and value in pins:
        return f"{flag}={pins[value]}"
    return pins.get(word, word)


def notes(rows: Iterable[Row], found: Iterable[Found] = ()) -> list[str]:
    """What a report says of the pins that a run uses, of the job and of what production lacks."""
    lacking = [pin for one in found for pin in one.recipe.pins if pin["gone"]]
    return [
        *(f"{_pin_of(row)} is used, {at_its_path(row)}" for row in rows),
        *(f"{_pin_of(pin)} is used, production's file is gone" for pin in lacking),
    ]


def _pin_of(row: Row) -> str:
    return f"{row['path'].rsplit('/', 1)[-1]}: the pin of {at_epoch(row['since'])[:10]}"


def recipe_with(
    found: Found, rows: Sequence[Row], *, before: Recipe | None, gone: Collection[str]
) -> Found:
    """A service whose recipe knows its pins, so that its files can be put back.

    A pin of which it is not known to be of the file that production runs from is left out: to start
    that may be to start something else. `before` is the recipe that it was last seen serving with,
    which knows what a file was that is among the `gone` now.
    """
    known = _recorded(before) | _recorded(found.recipe)
    by_path = {str(row["path"]): row for row in rows}
    pins = [
        {name: row[name] for name in ("path", "pin", "size", "inode", "mtime_ns", "since")}
        | {"gone": row["path"] in gone}
        for row in rows
        if _is_of(row, by_path, known)
    ]
    return dataclasses.replace(found, recipe=dataclasses.replace(found.recipe, pins=pins))


def _recorded(recipe: Recipe | None) -> dict[str, Mapping[str, Any]]:
    """The inputs of which it is known what they were, by path."""
    inputs = recipe.inputs if recipe else []
    return {str(one["path"]): one for one in inputs if one.get("size") is not None}


def _is_of(row: Row, rows: Mapping[str, Row], known: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether a pin keeps the file that was recorded. Of a set of shards only the first is."""
    shards = shard_name(str(row["path"]))
    first = rows.get(shards.paths()[0] if shards else str(row["path"]))
    recorded = known.get(str(first["path"])) if first else None
    if first is None or recorded is None:
        return False
    names = ("size", "mtime_ns", *(() if first["how"] == "reflink" else ("inode",)))
    return all(first[name] == recorded.get(name) for name in names)


def gone_of(found: Iterable[Found]) -> dict[str, str]:
    """Files of production that are gone from their paths, and where their bytes are kept."""
    pins = (pin for one in found for pin in one.recipe.pins)
    return {str(pin["path"]): str(pin["pin"]) for pin in pins if pin["gone"]}


def looked_at(recipe: Recipe) -> dict[str, Any]:
    """A recipe as preflight looks at it: what is gone from its path, where its bytes are kept."""
    said = recipe.to_json()
    pins = {str(pin["path"]): pin for pin in recipe.pins}
    gone = {path for path, pin in pins.items() if pin["gone"]}
    if not gone:
        return said
    return said | {
        "inputs": [_where_kept(one, pins, gone) for one in recipe.inputs],
        "kept": {path: pin["pin"] for path, pin in pins.items()},
    }


def _where_kept(
    said: dict[str, Any], pins: Mapping[str, Row], gone: AbstractSet[str]
) -> dict[str, Any]:
    """An input of which a part is gone, all of its shards together as they are pinned."""
    path = str(said["path"])
    shards = shard_name(path)
    if path not in pins or not gone & set(shards.paths() if shards else (path,)):
        return said
    pin = pins[path]
    return said | {
        "path": pin["pin"],
        **{name: pin[name] for name in ("size", "inode", "mtime_ns")},
    }


def put_back(found: Iterable[Found]) -> list[str]:
    """Put production's pinned files back where they are gone from; what was done, in words.

    Raises OSError: then a restart would not find them.
    """
    done = []
    for pin in (pin for one in found for pin in one.recipe.pins):
        if is_gone(pin["path"]):
            put_one_back(pin)
            done.append(f"{pin['path']} was gone; its pinned bytes were put back before the stop")
    return done


def checks(
    owner: str, rows: Sequence[Row], *, wanted: bool = False, back: bool = False
) -> Iterable[Check]:
    """Whether the pins hold; and where they are wanted and missing, a word about it.

    `back`: they are there to be put back to their paths.
    """
    if rows:
        yield Pinned(owner=owner, pins=as_checks(rows), back=back)
    elif wanted:
        yield Given(
            name="file.pin",
            about=f"the pins of {owner}",
            state=State.WARN,
            found="pin = true, and nothing is pinned",
            wanted="its files pinned, so that the way back is always there",
            remedy="runner pin",
        )
