"""What a run leaves in `runs/<id>/`: its result as a file that is there whole or not at all."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner.files import write_json
from runner.secrets import redact_tree


def write_result(directory: Path, result: Mapping[str, Any]) -> Path:
    """Write `result.json` without secrets and return its path. Raises OSError."""
    path = directory / "result.json"
    safe = redact_tree(result)
    write_json(path, safe if isinstance(safe, dict) else {})
    return path
