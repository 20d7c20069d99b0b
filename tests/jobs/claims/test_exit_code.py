"""A task is judged by how it ended."""

import pytest

from jobs.claims import ClaimState, ExitCode
from tests.jobs.claims.cases import evidence


@pytest.mark.parametrize(
    ("code", "state"),
    [(0, ClaimState.PROVEN), (1, ClaimState.REFUTED), (None, ClaimState.UNPROVEN)],
)
def test_the_exit_code_decides(code: int | None, state: ClaimState) -> None:
    """A task that was ended from outside has none."""
    seen = [] if code is None else [evidence("exit_code", code, source="the process")]
    found = ExitCode().judge(seen, ())
    assert found.state is state
    assert found.wanted == "exit code 0"


def test_another_code_may_mean_success() -> None:
    """Some programs have their own idea of it."""
    seen = [evidence("exit_code", 3, source="the process")]
    assert ExitCode(code=3).judge(seen, ()).state is ClaimState.PROVEN
