"""Compute buffers as earlier starts have told them, kept in the state directory for the next estimate."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from jobs.servers.llamacpp_memory import told
from preflight.models.fit import Learned
from runner.files import write_json
from runner.recovery.files import read_json

NAME = "learned.json"
_KEPT = 100
_HEAD_OF_LOG = 8 << 20
"""Memory is allocated while a server loads, so its lines stand at the beginning of the log."""


def read(state_dir: Path) -> tuple[Learned, ...]:
    """Everything learned so far, newest last; what cannot be read is left out."""
    found: list[Learned] = []
    said = (read_json(state_dir / NAME) or {}).get("compute")
    for one in said if isinstance(said, list) else ():
        with suppress(ValidationError):
            found.append(Learned.model_validate(one))
    return tuple(found)


def learn(state_dir: Path, run: str, logs: Iterable[Path]) -> tuple[Learned, ...]:
    """Add what these logs tell of compute buffers. Raises OSError when it cannot be kept."""
    new: list[Learned] = []
    for log in logs:
        try:
            with log.open("rb") as file:
                text = file.read(_HEAD_OF_LOG).decode("utf-8", "replace")
        except OSError:
            continue
        seen = told(text, run=run)
        if seen is not None:
            new.append(seen)
    if new:
        kept = [*(one for one in read(state_dir) if _like(one) not in map(_like, new)), *new]
        said = [one.model_dump(mode="json") for one in kept[-_KEPT:]]
        write_json(state_dir / NAME, {"compute": said})
    return tuple(new)


def _like(one: Learned) -> tuple[object, ...]:
    """What an estimate looks a start up by: a newer one takes the place of an older."""
    return one.architecture, one.layers, one.width, one.cells, one.batch, one.contexts
