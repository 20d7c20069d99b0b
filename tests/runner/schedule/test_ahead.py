"""Looking ahead: at each of `early_checks`, at a change of a file, and never while a run has the box."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from runner.journal import Journal
from runner.schedule.ahead import Ahead
from runner.schedule.children import Children, Done
from runner.schedule.incidents import Incidents
from runner.schedule.inputs import Changed, Inputs
from runner.schedule.ledger import Ledger
from runner.schedule.reconcile import rows
from runner.settings import Settings
from tests.runner.schedule.times import FakeTimes


class Looks(Children):
    """Looks that are noted and end when the test says so."""

    def __init__(self) -> None:
        self.running = {}
        self.asked: list[str] = []
        self.done: dict[str, Done] = {}

    def start(self, name: str, words: Sequence[str], *, within: float) -> str | None:
        """Remember who was looked at, and why."""
        del within
        self.asked.append(f"{name.removeprefix('ahead-')} {words[-1]}".strip())
        return None

    def ended(self) -> dict[str, Done]:
        """What has ended, once."""
        found, self.done = self.done, {}
        return found


class Files(Inputs):
    """Files that change when the test says so."""

    def __init__(self) -> None:
        self.now: list[Changed] = []
        self.watched: list[str] = []

    def set(self, paths: object) -> None:
        """Remember what is watched."""
        self.watched = list(paths)  # type: ignore[call-overload]  # any iterable of paths

    alive = True

    def changed(self) -> list[Changed]:
        """What has changed, once."""
        found, self.now = self.now, []
        return found


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    """An empty journal."""
    with Journal.open(tmp_path) as opened:
        yield opened


class Box:
    """A daemon's eyes for what is to come."""

    def __init__(self, journal: Journal, **keys: object) -> None:
        row = {"job": "night", "cron": "0 0 * * *", **keys}
        self.settings = Settings.model_validate({"timezone": "UTC", "schedule": [row]})
        self.times, self.looks, self.files = (
            FakeTimes("2027-01-15T10:00:00+00:00"),
            Looks(),
            Files(),
        )
        self.journal, self.ledger = journal, Ledger(journal)
        self.ahead = Ahead(
            self.ledger, Incidents(journal), self.looks, self.files, lambda: "SERVING"
        )
        self.ahead.follow(self.settings, rows(self.settings))
        self.tick()
        self.looks.asked.clear()

    def tick(self, *, busy: bool = False) -> None:
        """One look of the daemon."""
        now = self.times.moment()
        self.ahead.changed(now)
        self.ahead.due(now)
        self.ahead.tick(now, busy=busy)

    def looked_at(self) -> list[str]:
        """At which times it was looked, from now until the slot, a tick each half a minute."""
        found = []
        while self.times.wall().day == 15:
            self.times.passes(30)
            self.tick()
            if self.looks.asked:
                found.append(f"{self.times.wall():%H:%M}")
                self.looks.asked.clear()
        return found


def test_it_looks_at_each_of_the_early_checks(journal: Journal) -> None:
    """Twelve hours, four hours, an hour and ten minutes before."""
    assert Box(journal).looked_at() == ["12:00", "20:00", "23:00", "23:50"]


def test_the_early_checks_are_the_user_s_own(journal: Journal) -> None:
    """None at all, too: then only a change of a file makes it look."""
    assert Box(journal, early_checks=["30m"]).looked_at() == ["23:30"]
    assert Box(journal, early_checks=[]).looked_at() == []


def known(box: Box, *files: str) -> None:
    """An earlier look has found out what the job needs."""
    box.ledger.remember(**{"ahead:night": {"refused": {}, "needs": {"files": list(files)}}})


def test_a_deleted_file_is_looked_at_at_once(journal: Journal) -> None:
    """With what happened, and when."""
    box = Box(journal)
    known(box, "/models/mtp/draft.gguf")
    box.files.now = [Changed("/models/mtp/draft.gguf", "was deleted")]
    box.tick()
    assert box.looks.asked == ["night draft.gguf was deleted at 10:00"]


def test_a_directory_that_goes_takes_its_files_along(journal: Journal) -> None:
    """The job needs a file in it."""
    box = Box(journal)
    known(box, "/models/mtp/draft.gguf")
    box.files.now = [Changed("/models/mtp", "was deleted")]
    box.tick()
    assert box.looks.asked == ["night mtp was deleted at 10:00"]


def test_a_file_that_is_being_written_is_not_looked_at_each_time(journal: Journal) -> None:
    """A download of an hour is one look in a few seconds at most."""
    box = Box(journal)
    known(box, "/m/a.gguf")
    for _ in range(20):
        box.files.now = [Changed("/m/a.gguf", "changed")]
        box.tick()
        box.times.passes(0.4)
    assert 3 <= len(box.looks.asked) <= 5


def test_nobody_looks_while_a_run_has_the_box(journal: Journal) -> None:
    """Production is down then on purpose; the look comes when the run is over."""
    box = Box(journal)
    known(box, "/m/a.gguf")
    box.files.now = [Changed("/m/a.gguf", "was deleted")]
    box.tick(busy=True)
    assert box.looks.asked == []
    box.tick()
    assert box.looks.asked == ["night a.gguf was deleted at 10:00"]


def test_files_that_cannot_be_watched_are_told_once_and_resolved(journal: Journal) -> None:
    """Only the early checks are left then; nobody is looked at because of that."""
    box = Box(journal)
    known(box, "/m/a.gguf")
    box.looks.asked.clear()
    box.files.alive = False
    for _ in range(2):
        box.files.now = [Changed("", "files cannot be watched: no space left")]
        box.tick()
    assert box.looks.asked == []
    (row,) = journal.outbox()
    assert "a deleted file is found late: files cannot be watched" in row.body["first_line"]
    box.files.alive = True
    box.looks.done = {"ahead-night": Done(0, {"checks": []}, "")}
    box.tick()
    assert "files are watched again" in journal.outbox()[-1].body["first_line"]


def test_a_look_that_met_a_run_is_repeated(journal: Journal) -> None:
    """It found production down and the box held: that is no news of the job, and the file still is."""
    box = Box(journal)
    known(box, "/m/a.gguf")
    box.files.now = [Changed("/m/a.gguf", "was deleted")]
    box.tick()
    box.looks.asked.clear()
    box.looks.done = {"ahead-night": Done(3, {"checks": [], "told": "busy"}, "")}
    box.tick()
    assert box.looks.asked == [], "not at once: the run still has the box"
    box.times.passes(3)
    box.tick()
    assert box.looks.asked == ["night a.gguf was deleted at 10:00"]
    assert journal.incidents() == []


def test_a_job_that_cannot_be_looked_at_is_told(journal: Journal) -> None:
    """Its file is broken: what runs at midnight would not, either."""
    box = Box(journal)
    error = {"error": {"where": "night.toml:3", "message": "candidate.mode: unknown key"}}
    box.looks.done = {"ahead-night": Done(2, error, "")}
    box.tick()
    (incident,) = journal.incidents()
    assert "night WOULD BE REFUSED" in incident["text"]
    assert "night.toml:3: candidate.mode: unknown key" in incident["text"]
