"""The claim of a task: it ended by itself, with the exit code that means success."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from jobs.claims.base import Claim, ClaimState, Judged
from jobs.evidence import Evidence, of
from jobs.samples import Sample


class ExitCode(Claim):
    """The task ends by itself with this exit code."""

    kind: Literal["exit_code"] = "exit_code"
    code: int = Field(default=0, ge=0, le=255, description="The exit code that means success.")

    @property
    def wanted(self) -> str:
        """The exit code."""
        return f"exit code {self.code}"

    def judge(self, evidence: Sequence[Evidence], samples: Sequence[Sample]) -> Judged:
        """Proven by the exit code of the process; a task that was ended from outside proves nothing."""
        del samples
        seen = of(evidence, "exit_code")
        if not seen:
            return self.says(
                ClaimState.UNPROVEN, "no exit code", "unproven: the task did not end by itself"
            )
        code = seen[-1].value
        if code == self.code:
            return self.says(
                ClaimState.PROVEN, f"exit code {code}", f"the task ended with {code}", seen[-1:]
            )
        return self.says(
            ClaimState.REFUTED,
            f"exit code {code}",
            f"refuted: the task ended with {code}, wanted {self.code}",
            seen[-1:],
        )
