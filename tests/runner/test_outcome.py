"""How runs end: the table that other programs are written against."""

import pytest

from runner.outcome import MEANINGS, USAGE, Outcome, exit_code, worst


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (Outcome.PROVEN, 0),
        (Outcome.REFUSED, 3),
        (Outcome.SKIPPED, 4),
        (Outcome.BROKEN, 5),
        (Outcome.REFUTED, 6),
        (Outcome.PRODUCTION_DOWN, 10),
        (Outcome.BUG, 70),
    ],
)
def test_every_outcome_has_the_exit_code_of_the_table(outcome: Outcome, code: int) -> None:
    """The codes are public; changing one breaks somebody's script."""
    assert exit_code(outcome) == code


@pytest.mark.parametrize(
    ("signal", "code"), [("HUP", 129), ("INT", 130), ("SIGTERM", 143), ("KILL", 137)]
)
def test_an_interruption_says_by_which_signal(signal: str, code: int) -> None:
    """128 plus the signal's number, as shells do."""
    assert exit_code(Outcome.INTERRUPTED, signal) == code


def test_production_down_outranks_all_others() -> None:
    """A proven claim is no comfort while production is down."""
    assert worst(Outcome) is Outcome.PRODUCTION_DOWN
    assert worst([Outcome.PROVEN, Outcome.REFUTED]) is Outcome.REFUTED
    assert worst([Outcome.PROVEN]) is Outcome.PROVEN


def test_every_code_has_a_meaning_and_every_meaning_an_outcome() -> None:
    """The documentation's table is this table."""
    codes = {exit_code(o) for o in Outcome if o is not Outcome.INTERRUPTED}
    codes |= {exit_code(Outcome.INTERRUPTED, s) for s in ("HUP", "INT", "TERM", "KILL")}
    assert codes | {USAGE} == set(MEANINGS)
    assert {name for name, _ in MEANINGS.values()} - {"-"} == {str(o) for o in Outcome}
