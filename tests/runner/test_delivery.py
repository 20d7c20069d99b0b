"""What stands in the outbox is delivered; a disk that is full makes no flood of it."""

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from alerts.channel import Channel
from alerts.local import File
from alerts.message import Alert
from runner.delivery import flush
from runner.journal import NAME, Journal
from runner.reach import FRESH_S, reach
from runner.recovery.told import AGAIN_AFTER_S, Told
from tests.e2e.night import Night


class Phone(Channel):
    """A far channel that remembers what it took."""

    kind: str = "phone"
    took: list[str]

    def deliver(self, alert: Alert, *, within: float = 1.0) -> str:
        """Take it."""
        assert within > 0
        self.took.append(alert.first_line)
        return "taken"


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    """A journal with one alert that nobody has heard of."""
    with Journal.open(tmp_path) as made:
        made.post("run-1:broken", {"first_line": "BROKEN", "text": "BROKEN", "kind": "broken"})
        yield made
    for file in Told(tmp_path).files:
        file.unlink(missing_ok=True)


def refuse_writes(state_dir: Path) -> None:
    """No row of the outbox can be changed any more, as on a full disk."""
    with sqlite3.connect(state_dir / NAME) as db:
        db.execute(
            "CREATE TRIGGER full BEFORE UPDATE ON outbox BEGIN SELECT RAISE(ABORT, 'disk is full'); END"
        )


def allow_writes(state_dir: Path) -> None:
    """There is room again."""
    with sqlite3.connect(state_dir / NAME) as db:
        db.execute("DROP TRIGGER full")


@pytest.mark.parametrize("at_once", [True, False])
def test_a_full_disk_makes_no_flood_of_an_alert(
    tmp_path: Path, journal: Journal, *, at_once: bool
) -> None:
    """The daemon looks every half minute; without this a phone got as many copies all night."""
    phone = Phone(took=[])
    refuse_writes(tmp_path)
    first = flush(journal, [phone], tmp_path, at_once=at_once)
    assert (first.sent, first.unsent, len(phone.took)) == (0, 1, 1)
    assert "disk is full" in first.errors[0]
    for _ in range(5):
        assert flush(journal, [phone], tmp_path, at_once=at_once).unsent == 1
    assert len(phone.took) == 1
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert not Told(tmp_path).due("outbox:1:run-1:broken", now + AGAIN_AFTER_S[0] - 60)
    assert Told(tmp_path).due("outbox:1:run-1:broken", now + AGAIN_AFTER_S[0] + 60)


def test_what_could_be_written_down_at_last_is_over(tmp_path: Path, journal: Journal) -> None:
    """Nothing is remembered of it beside the journal."""
    phone = Phone(took=[])
    refuse_writes(tmp_path)
    flush(journal, [phone], tmp_path)
    allow_writes(tmp_path)
    Told(tmp_path).note("outbox:1:run-1:broken", time.clock_gettime(time.CLOCK_BOOTTIME) - 1e6, "x")
    done = flush(journal, [phone], tmp_path)
    assert (done.sent, done.unsent) == (1, 0)
    assert Told(tmp_path).all() == {}


def test_an_alert_is_delivered_once(tmp_path: Path, journal: Journal) -> None:
    """And the proof of the path is there from then on."""
    phone = Phone(took=[])
    assert flush(journal, [phone], tmp_path).sent == 1
    assert flush(journal, [phone], tmp_path).sent == 0
    assert phone.took == ["BROKEN"]
    assert reach(journal, [phone], live=False).proven


@pytest.mark.parametrize(
    ("ago", "proven"),
    [(60.0, True), (FRESH_S - 60, True), (FRESH_S + 60, False), (-86400.0, False)],
)
def test_a_delivery_proves_the_path_for_a_week(
    tmp_path: Path, journal: Journal, ago: float, *, proven: bool
) -> None:
    """One that lies in the future was written by a clock that nobody believes any more."""
    flush(journal, [Phone(took=[])], tmp_path)
    with sqlite3.connect(tmp_path / NAME) as db:
        db.execute("UPDATE outbox SET sent_at = ?", (time.time() - ago,))
    told = reach(journal, [Phone(took=[])], live=False)
    assert told.proven is proven
    assert ("set back" in told.said) is (ago < 0)


def test_without_a_proof_nobody_is_reached(tmp_path: Path, journal: Journal) -> None:
    """A file on the box is proven by its disk, a far channel only by a delivery."""
    assert not reach(journal, [Phone(took=[])], live=False).proven
    assert not reach(journal, [], live=False).proven
    assert reach(journal, [Phone(took=[])], live=True).proven
    assert reach(journal, [File(path=str(tmp_path / "alerts"))], live=False).proven


def test_only_a_person_delivers_what_is_not_due(night: Night) -> None:
    """Telegram asked for patience: the daemon and systemd wait, `alerts flush` does not."""
    with Journal.open(night.state) as journal:
        journal.post("run:refused", {"first_line": "SERVING", "text": "SERVING", "kind": "refused"})
        journal.failed(1, "429: retry after 600", time.time() + 600)
    told = night.call("tell", "--json")
    assert (told.code, told.json["sent"], told.json["unsent"]) == (0, 0, 1)
    assert night.told() == ""
    assert night.call("alerts", "flush", "--json").json["sent"] == 1
    assert "SERVING" in night.told()
