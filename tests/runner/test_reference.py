"""The reference is made from the models, and what is in the repository is what would be made."""

import tomllib

import pytest
from pydantic import BaseModel

from jobs.job import Job
from runner.report import reference
from runner.report.schema import schemas
from runner.settings import Settings


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("config.md", reference.config),
        ("exit-codes.md", reference.exit_codes),
        ("checks.md", reference.checks),
    ],
)
def test_the_reference_has_not_drifted(name: str, made: object) -> None:
    """Where it has: python -m runner.report.reference."""
    assert callable(made)
    assert (reference.DOCS / name).read_text("utf-8") == made()


def test_every_key_of_the_configuration_is_in_the_reference() -> None:
    """Also those of tables within tables."""
    text = reference.config()
    for key in (
        "timezone",
        "idle_within",
        "unit",
        "chat_id",
        "cron",
        "filled_at_least",
        "free_mib",
    ):
        assert f"| `{key}` |" in text


@pytest.mark.parametrize(("name", "model"), [("runner", Settings), ("job", Job)])
def test_the_schemas_are_whole_and_closed(name: str, model: type[BaseModel]) -> None:
    """Every reference resolves, unknown keys are refused, durations are text."""
    schema = schemas()[name]
    text = str(schema)
    for ref in {part.split("'")[0] for part in text.split("#/$defs/")[1:]}:
        assert ref in schema["$defs"]
    assert schema["additionalProperties"] is False
    assert set(schema["properties"]) == {
        field.alias or key for key, field in model.model_fields.items()
    }
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def test_defaults_are_shown_as_they_are_written() -> None:
    """A duration with its unit, in a form that TOML takes."""
    schedule = schemas()["runner"]["$defs"]["Schedule"]["properties"]
    assert schedule["late_by"]["default"] == "2h"
    assert tomllib.loads(f"x = {schedule['early_checks']['default']}")["x"][0] == "12h"
