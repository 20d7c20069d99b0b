"""A fact that whoever asks knows already: it takes its place among the rings like any other answer.

The Box cannot tell whether a person can be reached or whether the night is long enough; the caller
can, and a stop depends on it all the same.
"""

from typing import ClassVar, Literal

from preflight.box import Box
from preflight.check import Check
from preflight.verdict import BlastRadius, State, Verdict


class Given(Check):
    """An answer that was known before anything was looked at."""

    id: ClassVar[str] = "self.given"
    radius: ClassVar[BlastRadius] = BlastRadius.SELF

    kind: Literal["given"] = "given"
    name: str
    """The id it is reported and accepted under, such as `self.alert`."""
    about: str
    state: State
    found: str
    wanted: str
    remedy: str = ""

    @property
    def subject(self) -> str:
        """What it is about."""
        return self.about

    @property
    def reported(self) -> str:
        """The id it was given."""
        return self.name

    def look(self, box: Box) -> Verdict:  # noqa: ARG002 - known already
        """Say it."""
        return self.says(
            self.state, self.found, wanted=self.wanted, remedy=self.remedy, id=self.reported
        )
