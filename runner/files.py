"""The state directory's rooms, and whole JSON files in them. Standard library only; no content."""

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from runner.recovery.files import write_durably

PUBLIC = 0o644


def make_state_dir(path: Path) -> None:
    """Create the state directory with its rooms, each with the mode it needs. Raises OSError.

    0711 lets the other users of the box reach `public/`, and nothing else.
    """
    for room, mode in (
        (path, 0o711),
        (path / "runs", 0o700),
        (path / "spool", 0o700),
        (path / "public", 0o755),
    ):
        if not room.is_dir():
            room.mkdir(parents=True, exist_ok=True)
            room.chmod(mode)


def as_json(value: Mapping[str, object]) -> str:
    """One JSON object, indented for people. Raises TypeError, and ValueError for NaN."""
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def write_json(path: Path, value: Mapping[str, object], mode: int = 0o600) -> None:
    """Replace a JSON file as a whole, so that it survives a power cut. Raises OSError."""
    write_durably(path, as_json(value).encode(), mode)


def publish(state: Path, name: str, value: Mapping[str, object]) -> None:
    """Show one JSON object to the other users of the box as `public/<name>.json`. Raises OSError.

    Atomic but not durable: after a power cut the next look writes it again. The temporary name is
    unique, since a run, its guardian and a person's `runner status` may all publish at once.
    """
    room = state / "public"
    fd, beside = tempfile.mkstemp(prefix=f".{name}.", dir=room)
    try:
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), PUBLIC)
            file.write(as_json(value))
        Path(beside).replace(room / f"{name}.json")
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise
