"""The schema of a job file is its reference: every key is described."""

import json
from typing import Any

import pytest

from jobs.job import Job


def keys() -> list[tuple[str, dict[str, Any]]]:
    """Every key of every table."""
    schema = Job.model_json_schema()
    tables = {"Job": schema, **schema["$defs"]}
    return [
        (f"{table}.{name}", key)
        for table, content in tables.items()
        for name, key in content.get("properties", {}).items()
    ]


@pytest.mark.parametrize(("name", "key"), keys(), ids=[name for name, _ in keys()])
def test_every_key_is_described_in_a_sentence(name: str, key: dict[str, Any]) -> None:
    """With a full stop, and no default that JSON cannot hold."""
    json.dumps(key)
    if not name.endswith(".kind"):
        assert key["description"].endswith((".", ")", '".')), name


def test_unknown_keys_are_not_in_the_schema() -> None:
    """An editor marks them, too."""
    schema = Job.model_json_schema()
    assert schema["additionalProperties"] is False
    assert schema["$defs"]["Candidate"]["additionalProperties"] is False
