"""What the other users of the box may see of runs: the story as it goes on, how it ended, the list.

Files below `public/` in the state directory, all 0644. Who reads here opens no database. What is a
secret is redacted, what is bulky (evidence, samples) left out.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from runner import secrets
from runner.files import PUBLIC, publish
from runner.journal import Journal
from runner.recovery.files import read_json

HISTORY_LENGTH = 50
KEPT_STORIES = 200

Json = dict[str, Any]


def open_story(state_dir: Path, name: str) -> TextIO:
    """A file for the story of one run, line by line. Raises OSError."""
    room = state_dir / "public" / "runs"
    if not room.is_dir():
        room.mkdir(exist_ok=True)
        room.chmod(0o755)
    _forget_old(room)
    file = (room / f"{name}.log").open("w", encoding="utf-8", buffering=1)
    os.fchmod(file.fileno(), PUBLIC)  # the umask has no say in who may read it
    return file


def _forget_old(room: Path) -> None:
    stories = sorted(room.iterdir(), key=lambda path: path.stat().st_mtime)
    for path in stories[:-KEPT_STORIES]:
        path.unlink(missing_ok=True)


def show_job(state_dir: Path, job: str, said: Mapping[str, Any]) -> None:
    """The latest start of a job as a unit: `invocation`, `story`, and once it is over `ended`."""
    publish(state_dir, f"job-{job}", {"job": job, **said})


def job(state_dir: Path, name: str) -> Json:
    """What was shown of the latest start of a job; empty where nothing was."""
    return read_json(state_dir / "public" / f"job-{name}.json") or {}


def outcome(result: Mapping[str, Any]) -> Json:
    """The result object of a run for everybody: without evidence, without secrets."""
    return {key: secrets.redact_tree(_bare(value)) for key, value in result.items()}


def _bare(said: Any) -> Any:
    if isinstance(said, Mapping):
        return {key: _bare(value) for key, value in said.items() if key != "evidence"}
    if isinstance(said, list | tuple):
        return [_bare(value) for value in said]
    return said


def show_history(state_dir: Path, journal: Journal) -> None:
    """The latest runs, as `history` lists them. Raises OSError and JournalError."""
    runs = [outcome(run) for run in journal.history(limit=HISTORY_LENGTH)]
    publish(state_dir, "history", {"runs": runs})


def history(state_dir: Path) -> list[Json] | None:
    """What was shown of the latest runs, newest first; None where nothing was."""
    said = read_json(state_dir / "public" / "history.json")
    runs = said.get("runs") if said else None
    return [run for run in runs if isinstance(run, dict)] if isinstance(runs, list) else None
