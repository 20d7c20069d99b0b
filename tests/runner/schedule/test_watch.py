"""The watch of production, alone: what it cannot see holds nobody up, and is no change."""

import json
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from preflight.box import TIMEOUT, FileFact
from runner.demo import models
from runner.journal import Journal
from runner.recovery import recipe
from runner.schedule.disk import AGAIN_AFTER_S, Disk
from runner.schedule.incidents import Incidents
from runner.schedule.ledger import Ledger
from runner.schedule.watch import Watch
from runner.settings import load_settings
from tests.dead_mount import apart
from tests.e2e.night import Night
from tests.runner.schedule.times import FakeTimes

DEAD = """
import json
from runner.journal import Journal
from runner.production import survey
from runner.schedule.incidents import Incidents
from runner.schedule.ledger import Ledger
from runner.schedule.moments import RealTimes
from runner.schedule.watch import Watch
from runner.settings import load_settings
settings = load_settings(Path(sys.argv[2]))
with Journal.open(Path(settings.state_dir)) as journal:
    watch = Watch(Ledger(journal), Incidents(journal), settings, RealTimes())
    watch.tick(set(), lambda: None)
    watch.follow(settings)
    watch.tick(set(), lambda: None)
    rows = len(journal.outbox())
print(json.dumps({"up": watch.last["llm"].up, "told": rows}))
found = survey(settings.production[0])  # as a drill looks
print(json.dumps({"serves": found.look.serving, "inputs": found.recipe.inputs}))
"""


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Night]:
    """A box with nothing on it yet."""
    made = Night(tmp_path / "box")
    try:
        yield made
    finally:
        made.close()


def test_a_model_on_a_dead_mount_does_not_hang_the_watch(tmp_path: Path, box: Night) -> None:
    """Its production serves from memory for as long as it likes; that it does is what counts."""
    dead = tmp_path / "dead"
    dead.mkdir()
    (model,) = models.write("plain", dead / "model.gguf")
    box.service(model=str(model))
    box.start()
    box.state.mkdir(exist_ok=True)
    child = subprocess.run(
        apart(DEAD, str(dead), str(box.config)),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PYTHONPATH": str(Path(__file__).parents[3]), "PATH": "/usr/bin:/bin"},
    )
    assert child.returncode == 0, child.stderr
    watched, surveyed = map(json.loads, child.stdout.splitlines())
    assert watched == {"up": True, "told": 0}
    assert surveyed["serves"]
    (one,) = [one for one in surveyed["inputs"] if one["path"] == str(model)]
    assert one["size"] is None


class Hanging:
    """A disk that answers, or does not, as the test says."""

    def __init__(self) -> None:
        self.hangs, self.asked = False, 0

    def files(self, paths: Sequence[str], *, within: float) -> tuple[FileFact, ...]:
        """One fact a path."""
        del within
        self.asked += 1
        if self.hangs:
            return tuple(FileFact(path, fault=TIMEOUT, said="no answer") for path in paths)
        return tuple(FileFact(path, size=7, inode=8, mtime_ns=9) for path in paths)

    def close(self) -> None:
        """Nothing to end."""


@pytest.fixture
def times() -> FakeTimes:
    """A clock."""
    return FakeTimes()


def test_a_disk_that_hangs_is_left_alone_for_a_while(times: FakeTimes) -> None:
    """Each question that hangs leaves a process behind that nobody can end."""
    files = Hanging()
    disk = Disk(times, files)
    assert disk.files(["/m"], within=5)[0].size == 7
    files.hangs = True
    for _ in range(3):
        assert disk.files(["/m"], within=5)[0].fault == TIMEOUT
    assert files.asked == 2
    files.hangs = False
    times.passes(AGAIN_AFTER_S)
    assert disk.files(["/m"], within=5)[0].size == 7


def test_a_model_that_cannot_be_looked_at_has_not_changed(night: Night, times: FakeTimes) -> None:
    """Unknown is no change; one that did change meanwhile is told when it is seen again."""
    settings, files = load_settings(night.config), Hanging()
    state = Path(settings.state_dir)
    with Journal.open(state) as journal:
        watch = Watch(Ledger(journal), Incidents(journal), settings, times, disk=Disk(times, files))
        for hangs in (False, True, True, False):
            files.hangs = hangs
            watch.tick(set(), lambda: None)
            times.passes(AGAIN_AFTER_S)
            assert watch.known["llm"].model["size"] == 7
        assert journal.outbox() == []
        (weights,) = [
            one for one in recipe.last_good(state)["llm"].inputs if one["role"] == "weights"
        ]
        assert weights["size"] == 7


def test_what_is_seen_is_known_although_it_cannot_be_written_down(
    night: Night, times: FakeTimes
) -> None:
    """Whoever tells without the journal must know how production is."""
    settings = load_settings(night.config)
    with Journal.open(Path(settings.state_dir)) as journal:
        watch = Watch(Ledger(journal), Incidents(journal), settings, times)
        watch.tick(set(), lambda: None)
        assert watch.last == watch.known
        watch.close()
