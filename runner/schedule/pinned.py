"""A job, its commands and production's recipes with their pins in place of the paths. Pure."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jobs.candidate import Resolved
from jobs.job import Job
from preflight.check import Check
from preflight.files.pins import Pinned
from preflight.given import Given
from preflight.verdict import State
from runner.production import Found
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


def notes(rows: Iterable[Row]) -> list[str]:
    """What a report says of the pins that a run uses."""
    return [
        f"{row['path'].rsplit('/', 1)[-1]}: the pin of {at_epoch(row['since'])[:10]} is used, "
        f"{at_its_path(row)}"
        for row in rows
    ]


def recipe_with(found: Found, rows: Sequence[Row]) -> Found:
    """A service whose recipe knows its pins, so that a restore can put them back."""
    if not rows:
        return found
    pins = [{"path": row["path"], "pin": row["pin"], "size": row["size"]} for row in rows]
    return dataclasses.replace(found, recipe=dataclasses.replace(found.recipe, pins=pins))


def checks(owner: str, rows: Sequence[Row], *, wanted: bool) -> Iterable[Check]:
    """Whether the pins hold; and where they are wanted and missing, a word about it."""
    if rows:
        yield Pinned(owner=owner, pins=as_checks(rows))
    elif wanted:
        yield Given(
            name="file.pin",
            about=f"the pins of {owner}",
            state=State.WARN,
            found="pin = true, and nothing is pinned",
            wanted="its files pinned, so that the way back is always there",
            remedy="runner pin",
        )
