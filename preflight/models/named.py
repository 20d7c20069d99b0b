"""What is asked of a model by the name of one of its files: whose it is, and what may be accepted."""

from typing import Literal

from preflight.check import Check


class NamedModel(Check):
    """A question about a model that a job or production names."""

    path: str
    owner: Literal["job", "production"] = "job"
    deadline_s: float = 10.0

    @property
    def subject(self) -> str:
        """The file as it was named."""
        whose = "production's model" if self.owner == "production" else "model"
        return f"{whose} {self.path}"

    @property
    def acceptable(self) -> bool:
        """Production's own files are part of its way back."""
        return self.owner != "production"
