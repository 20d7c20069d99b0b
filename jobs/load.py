"""Open jobs/<name>.toml by its exact name; list the jobs there are. Nothing runs because it lies there.

Listing reads plain TOML: the models, which take a moment to build, are only imported to load one."""

import difflib
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.errors import ConfigError, Problem
from jobs.names import bad_name
from jobs.toml_lines import Document, Key, open_plain, read

if TYPE_CHECKING:
    from jobs.job import Job

_SUFFIX = ".toml"
_CLOSE = 0.6
_INDEX = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class JobLine:
    """One job of a list: its question, or what is wrong with its file."""

    name: str
    question: str | None
    problem: Problem | None = None


def list_jobs(jobs_dir: Path) -> tuple[JobLine, ...]:
    """The jobs of a directory by name, read as plain TOML; a broken file is named, not skipped."""
    return tuple(_line(jobs_dir, name) for name in _names(jobs_dir))


def _names(jobs_dir: Path) -> list[str]:
    try:
        with os.scandir(jobs_dir) as entries:
            return sorted(
                entry.name.removesuffix(_SUFFIX)
                for entry in entries
                if entry.name.endswith(_SUFFIX) and not entry.name.startswith(".")
            )
    except OSError:
        return []


def _line(jobs_dir: Path, name: str) -> JobLine:
    path = jobs_dir / f"{name}{_SUFFIX}"
    if wrong := bad_name(name):
        return JobLine(name, None, Problem(shown(path), None, "", wrong, "rename the file"))
    try:
        with open_plain(path) as stream:
            question = tomllib.load(stream).get("question")
    except (OSError, ValueError, RecursionError):
        try:
            read(path, shown=shown(path))
        except ConfigError as error:
            return JobLine(name, None, error.problems[0])
        return _line(jobs_dir, name)  # it was being written just now
    if isinstance(question, str) and question:
        return JobLine(name, question)
    problem = Problem(
        shown(path), None, "question", "is missing", "write the question that this job answers"
    )
    return JobLine(name, None, problem)


def shown(path: Path) -> str:
    """A path as a person sees it: relative where it lies below the current directory."""
    try:
        return str(path.absolute().relative_to(Path.cwd()))
    except (OSError, ValueError):
        return str(path)


def load_job(jobs_dir: Path, name: str, *, overrides: Mapping[str, str] | None = None) -> "Job":
    """The job of exactly this name; raises ConfigError naming every mistake with its line.

    `overrides` are `--set key=value` of a command line: dotted keys, values as in TOML or plain text.
    A claim is reached by its place or its kind: `claim.0.tokens`, `claim.context.tokens`.
    """
    from jobs import explain  # noqa: PLC0415  # see the top of this file
    from jobs.job import Job  # noqa: PLC0415  # likewise
    from jobs.mistakes import mistakes  # noqa: PLC0415  # likewise

    if wrong := bad_name(name):
        raise ConfigError(Problem("", None, "", wrong, _meant(jobs_dir, name)))
    path = jobs_dir / f"{name}{_SUFFIX}"
    if not os.path.lexists(path):
        raise ConfigError(_no_job(jobs_dir, name))
    written = read(path, shown=shown(path))
    document = _overridden(written, overrides or {})
    try:
        job = explain.build(Job, document).named(name, written.file, document.lines)
    except ConfigError as error:
        raise ConfigError([_placed(one, overrides or {}) for one in error.problems]) from None
    found = [
        Problem(
            document.file,
            document.line(mistake.key),
            ".".join(str(part) for part in mistake.key if isinstance(part, str)),
            mistake.message,
            mistake.remedy,
        )
        for mistake in mistakes(job)
    ]
    if found:
        raise ConfigError([_placed(one, overrides or {}) for one in found])
    return job


def _meant(jobs_dir: Path, name: str) -> str:
    """What to write instead of a file's name, where that is the file of a job."""
    stem = name.rpartition("/")[2].removesuffix(_SUFFIX)
    meant = stem if stem in _names(jobs_dir) and not bad_name(stem) else ""
    return f"write {meant}" if meant else "runner list shows the jobs there are"


def _no_job(jobs_dir: Path, name: str) -> Problem:
    names = [known for known in _names(jobs_dir) if not bad_name(known)]
    close = difflib.get_close_matches(name, names, 1, _CLOSE)
    guess = f"; did you mean `{close[0]}`?" if close else ""
    known = (
        f"the jobs there are: {', '.join(names[:20])}" if names else f"no job lies in {jobs_dir}"
    )
    return Problem(
        shown(jobs_dir / f"{name}{_SUFFIX}"), None, "", f"there is no such job{guess}", known
    )


def _placed(problem: Problem, overrides: Mapping[str, str]) -> Problem:
    """A mistake of `--set` is not one of the file."""
    for key in overrides:
        plain = ".".join(part for part in key.split(".") if not _INDEX.fullmatch(part))
        if problem.key == plain or problem.key.startswith(f"{plain}."):
            return replace(problem, file=f"--set {key}", line=None)
    return problem


def _overridden(document: Document, overrides: Mapping[str, str]) -> Document:
    if not overrides:
        return document
    values = deepcopy(document.values)
    lines = dict(document.lines)
    for key, text in overrides.items():
        for path in _paths(values, key):
            _put(values, path, _value(text), key)
            lines = {known: line for known, line in lines.items() if known[: len(path)] != path}
    return replace(document, values=values, lines=lines)


def _paths(values: Mapping[str, object], key: str) -> Iterator[Key]:
    """Where `--set` puts a value; a kind stands for each claim of that kind."""
    first, _, rest = key.partition(".")
    claims = values.get("claim")
    word, _, last = rest.partition(".")
    if first != "claim" or not last or not isinstance(claims, list):
        yield tuple(key.split("."))
        return
    places = [
        place
        for place, claim in enumerate(claims)
        if str(place) == word or (isinstance(claim, dict) and claim.get("kind") == word)
    ]
    if not places:
        raise ConfigError(
            Problem(f"--set {key}", None, "claim", f"there is no claim `{word}`", "name its kind")
        )
    for place in places:
        yield ("claim", place, *last.split("."))


def _put(values: dict[str, object], path: Key, value: object, key: str) -> None:
    here: object = values
    for part in path[:-1]:
        if isinstance(here, list) and isinstance(part, int):
            here = here[part]
        elif isinstance(here, dict):
            here = here.setdefault(part, {})
    if not isinstance(here, dict):
        raise ConfigError(
            Problem(f"--set {key}", None, "", "is below a key that is no table", "check the key")
        )
    here[str(path[-1])] = value


def _value(text: str) -> object:
    try:
        return tomllib.loads(f"x = {text}")["x"]
    except tomllib.TOMLDecodeError:
        return text
