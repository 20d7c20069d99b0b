"""The daemon's errands: alerts that are due, debts that nobody pays, runs that nobody will end."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from runner.journal import Journal
from runner.recovery import lock
from runner.schedule.children import Children, Done
from runner.schedule.post import Post
from tests.runner.schedule.times import FakeTimes


class Errands(Children):
    """Errands that are noted, and done at once."""

    def __init__(self, times: FakeTimes) -> None:
        self.clock = times
        self.asked: list[str] = []

    def start(self, name: str, words: Sequence[str], *, within: float) -> str | None:
        """Remember what was asked for."""
        del name, within
        self.asked.append(" ".join(words))
        return None

    def ended(self) -> dict[str, Done]:
        """Nothing is kept."""
        return {}


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    """An empty journal."""
    with Journal.open(tmp_path) as opened:
        yield opened


@pytest.fixture
def times() -> FakeTimes:
    """A clock."""
    return FakeTimes()


@pytest.fixture
def errands(times: FakeTimes) -> Errands:
    """What is asked for."""
    return Errands(times)


@pytest.fixture
def post(journal: Journal, errands: Errands, tmp_path: Path) -> Post:
    """A daemon outside systemd."""
    return Post(journal, errands, tmp_path, units=False)


def test_an_alert_that_is_due_is_delivered(
    post: Post, journal: Journal, errands: Errands, times: FakeTimes
) -> None:
    """And one whose next try is later is left until then."""
    post.tick(times.moment())
    assert errands.asked == []
    journal.post("k", {"first_line": "DOWN"})
    post.tick(times.moment())
    assert errands.asked == ["tell --json"]
    journal.failed(journal.outbox()[0].id, "no network", times.moment().wall + 60)
    post.tick(times.moment())
    assert errands.asked == ["tell --json"]
    post.tick(times.passes(61))
    assert errands.asked == ["tell --json"] * 2


def test_a_clock_that_was_set_back_keeps_no_alert_waiting(
    post: Post, journal: Journal, errands: Errands, times: FakeTimes
) -> None:
    """The next try stands years ahead then."""
    journal.post("k", {"first_line": "DOWN"})
    journal.failed(journal.outbox()[0].id, "no network", times.moment().wall + 3e8)
    post.tick(times.moment())
    assert errands.asked == ["tell --json"]


def test_a_debt_that_nobody_pays_is_recovered(
    post: Post, errands: Errands, times: FakeTimes, tmp_path: Path
) -> None:
    """Within a minute, and again; never while its run lives."""
    (tmp_path / "recovery.json").write_text("{}")
    with lock.hold(tmp_path, run="r1", since="", name=f"test-{tmp_path.name}"):
        post.tick(times.moment())
    assert errands.asked == []
    for _ in range(6):
        post.tick(times.passes(10))
    assert errands.asked == ["recover --quiet"] * 3


def test_a_run_that_died_before_it_owed_anything_gets_its_outcome(
    post: Post, journal: Journal, times: FakeTimes
) -> None:
    """No limbo: it is interrupted, and a person is told."""
    dead = {"boot": "another boot", "pid": 4711, "start": 1}
    journal.begin("r1", "night", "schedule", dead, "2027-01-16T00:00:00+00:00")
    post.tick(times.moment())
    run = journal.run("r1")
    assert run is not None
    assert (run["outcome"], run["exit_code"]) == ("interrupted", 137)
    assert [row.run for row in journal.outbox()] == ["r1"]
