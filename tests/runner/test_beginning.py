"""Could a run begin at all: who has the box, what is owed, whether it is drained."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from preflight.rings import look
from preflight.verdict import State, Verdict
from runner import beginning
from runner.journal import Journal
from runner.recovery import lock, recipe
from runner.recovery.recipe import Owed
from runner.settings import Settings
from tests.fakes import FakeBox

SINCE = "2026-11-29T00:00:00+00:00"
RUN = "20261129-000000-night-3f9a"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A box of its own: its state directory, and a name that no other runner takes."""
    state = tmp_path / "state"
    state.mkdir()
    name = f"test-{abs(hash(str(tmp_path)))}"
    return Settings.model_validate(
        {"timezone": "UTC", "state_dir": str(state), "jobs_dir": str(tmp_path), "lock_name": name}
    )


@pytest.fixture
def journal(settings: Settings) -> Iterator[Journal]:
    """Its journal."""
    with Journal.open(Path(settings.state_dir)) as opened:
        yield opened


def ask(settings: Settings, journal: Journal) -> dict[str, Verdict]:
    """The answers by their ids."""
    found = look([*beginning.checks(settings, journal)], FakeBox()).verdicts
    return {one.id: one for one in found}


def owe(settings: Settings) -> None:
    """A run has written down what it is about to owe."""
    owed = Owed(
        run=RUN, job="night", boot="", since=SINCE, lock_name="x", services=[], stops=["llm"]
    )
    recipe.write(Path(settings.state_dir), owed)


def test_a_free_box_that_owes_nothing_passes(settings: Settings, journal: Journal) -> None:
    """And nothing is said of drains."""
    found = ask(settings, journal)
    assert {name: one.state for name, one in found.items()} == {
        "self.lock": State.PASS,
        "self.journal": State.PASS,
    }


@pytest.mark.parametrize("elsewhere", [False, True])
def test_who_has_the_box_is_told(
    settings: Settings, journal: Journal, tmp_path: Path, elsewhere: bool
) -> None:
    """By the lock of this state directory, or by the name of the box; its debt is its own."""
    owe(settings)
    room = tmp_path / "other"
    room.mkdir()
    place = room if elsewhere else Path(settings.state_dir)
    with lock.hold(place, run=RUN, since=SINCE, name=settings.lock_name):
        found = ask(settings, journal)
    assert found["self.lock"].state is State.FAIL
    assert f"is held by run {RUN}, pid " in found["self.lock"].found
    assert "runner cancel" in found["self.lock"].remedy
    assert found["self.journal"].state is State.PASS
    assert ask(settings, journal)["self.lock"].state is State.PASS


def test_what_a_dead_run_owes_comes_first(settings: Settings, journal: Journal) -> None:
    """Production may be down because of it."""
    owe(settings)
    owed = ask(settings, journal)["self.journal"]
    assert owed.state is State.FAIL
    assert owed.found == f"run {RUN} of 2026-11-29 00:00 has died, and no restore is recorded"
    assert owed.remedy == "runner recover"


def test_a_debt_that_cannot_be_read_is_unknown(settings: Settings, journal: Journal) -> None:
    """Not nothing, as far as anybody knows."""
    owe(settings)
    for path in Path(settings.state_dir).glob("recovery*.json"):
        path.write_text("{")
    assert ask(settings, journal)["self.journal"].state is State.UNKNOWN


def test_a_drained_box_is_a_warning(settings: Settings, journal: Journal) -> None:
    """A job could run, and none will until a person says so."""
    journal.drain("a restore failed")
    drained = ask(settings, journal)["self.drained"]
    assert drained.state is State.WARN
    assert drained.found.endswith(": a restore failed")
    assert "runner undrain" in drained.remedy
