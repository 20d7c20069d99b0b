"""The kinds of claim there are. A new kind is one file here and one line in this table."""

from typing import Annotated

from pydantic import Field

from jobs.claims.base import Claim, ClaimState, Judged
from jobs.claims.context import Context
from jobs.claims.exit_code import ExitCode
from jobs.claims.speculation import Speculation
from jobs.claims.throughput import Throughput

AnyClaim = Annotated[Speculation | Context | Throughput | ExitCode, Field(discriminator="kind")]

__all__ = [
    "AnyClaim",
    "Claim",
    "ClaimState",
    "Context",
    "ExitCode",
    "Judged",
    "Speculation",
    "Throughput",
]
