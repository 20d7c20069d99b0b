"""JSON Schema of the two files a person writes, made from the models so that it cannot drift."""

from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from jobs.fields import Seconds, in_words
from jobs.job import Job
from runner.settings import Settings

DIALECT = "https://json-schema.org/draft/2020-12/schema"


class _AsWritten(GenerateJsonSchema):
    """Defaults as a person would write them: a duration with its unit."""

    def encode_default(self, dft: Any) -> Any:
        """The default as JSON."""
        if isinstance(dft, Seconds):
            return in_words(dft)
        if isinstance(dft, tuple):
            return [self.encode_default(each) for each in dft]
        return super().encode_default(dft)


def schemas() -> dict[str, dict[str, Any]]:
    """`runner` and `job`, each a whole JSON Schema of draft 2020-12."""
    return {
        "runner": {"$schema": DIALECT, **Settings.model_json_schema(schema_generator=_AsWritten)},
        "job": {"$schema": DIALECT, **Job.model_json_schema(schema_generator=_AsWritten)},
    }
