"""Every due slot has a row: missed spans are reconstructed, and nothing fires twice."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.journal import Journal
from runner.schedule.ledger import Ledger, Planned
from runner.schedule.reconcile import Reconciler, Row, rows
from runner.schedule.slots import Slot, State
from runner.settings import Settings
from tests.runner.schedule.times import FakeTimes


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    """An empty journal."""
    with Journal.open(tmp_path / "state") as opened:
        yield opened


@pytest.fixture
def ledger(journal: Journal) -> Ledger:
    """Its pages about time."""
    return Ledger(journal)


def schedule(cron: str = "0 0 * * *", **more: object) -> tuple[Row, ...]:
    """One row in UTC."""
    tables = {"timezone": "UTC", "schedule": [{"job": "night", "cron": cron, **more}]}
    return rows(Settings.model_validate(tables))


def reconciler(ledger: Ledger, mine: tuple[Row, ...], times: FakeTimes) -> Reconciler:
    """A daemon that has just begun."""
    begun = Reconciler(ledger, mine[0].cron.zone)
    begun.follow(mine, times.moment())
    return begun


def times_of(slots: list[Slot]) -> list[str]:
    """When they were due, without the rest."""
    return [slot.due[5:16] for slot in slots]


def test_a_slot_is_due_once(ledger: Ledger) -> None:
    """However often somebody looks."""
    times, mine = FakeTimes(), schedule()
    one = reconciler(ledger, mine, times)
    assert one.due(times.moment()) == []
    found = one.due(times.until("2027-01-16T00:00:00.02+00:00"))
    assert times_of(found) == ["01-16T00:00"]
    assert found[0].state is State.DUE
    assert found[0].trigger == "schedule"
    assert one.due(times.passes(1)) == []


def test_of_two_daemons_one_gets_the_slot(ledger: Ledger) -> None:
    """Started by mistake, on one state directory: the row is whose insert came first."""
    times, mine = FakeTimes(), schedule()
    first, second = reconciler(ledger, mine, times), reconciler(ledger, mine, times)
    first.due(times.moment())
    second.due(times.moment())
    now = times.until("2027-01-16T00:00:01+00:00")
    assert len(first.due(now)) == 1
    assert second.due(now) == []


def test_what_was_due_before_it_was_written_is_nobodys_debt(ledger: Ledger) -> None:
    """A new row begins with its next time."""
    times, mine = FakeTimes("2027-01-16T12:00:00+00:00"), schedule()
    assert reconciler(ledger, mine, times).due(times.moment()) == []


@pytest.mark.parametrize(
    ("happens", "said"),
    [
        ("sleeps", "the box was suspended for"),
        ("passes", "runner serve stood still for"),
        ("set_by", "the clock was set forward by"),
    ],
)
def test_a_slot_that_was_slept_through_has_a_row_with_its_reason(
    ledger: Ledger, happens: str, said: str
) -> None:
    """Suspend, SIGSTOP or a clock that jumps: the next tick finds out which it was."""
    times, mine = FakeTimes("2027-01-15T23:59:50+00:00"), schedule()
    one = reconciler(ledger, mine, times)
    one.due(times.moment())
    found = one.due(getattr(times, happens)(3600.0))
    assert times_of(found) == ["01-16T00:00"]
    assert found[0].state is State.DUE
    assert found[0].trigger == "catch-up"
    assert found[0].reason.startswith(said)


def test_a_daemon_that_was_down_reconstructs_what_it_missed(ledger: Ledger) -> None:
    """Also over days: the newest slot is for the desk to decide, the others are missed."""
    times, mine = FakeTimes(), schedule()
    reconciler(ledger, mine, times).due(times.moment())
    found = reconciler(ledger, mine, times).due(times.passes(3 * 86400))
    assert times_of(found) == ["01-16T00:00", "01-17T00:00", "01-18T00:00"]
    assert [slot.state for slot in found] == [State.MISSED, State.MISSED, State.DUE]
    assert all(slot.reason.startswith("runner serve was not running") for slot in found)
    assert len(ledger.latest("night", before=2e9, limit=9)) == 3


def test_a_reboot_across_a_slot_is_named(ledger: Ledger) -> None:
    """The boot is another one, whatever the clocks say."""
    times, mine = FakeTimes("2027-01-15T23:59:00+00:00"), schedule()
    reconciler(ledger, mine, times).due(times.moment())
    found = reconciler(ledger, mine, times).due(times.reboots(300))
    assert times_of(found) == ["01-16T00:00"]
    assert found[0].reason.startswith("the box was off or restarting (last look at 23:59)")


def test_a_restart_without_a_slot_in_between_owes_nothing(ledger: Ledger) -> None:
    """An upgrade in the afternoon is no news."""
    times, mine = FakeTimes(), schedule()
    reconciler(ledger, mine, times).due(times.moment())
    assert reconciler(ledger, mine, times).due(times.passes(60)) == []


def test_a_clock_set_back_fires_nothing_twice(ledger: Ledger) -> None:
    """A slot that has run does not come again with its hour."""
    times, mine = FakeTimes("2027-01-15T23:59:00+00:00"), schedule()
    one = reconciler(ledger, mine, times)
    one.due(times.moment())
    (slot,) = one.due(times.passes(61))
    ran = Slot(**{**_fields(slot), "state": State.RAN, "run": "r1"})
    assert ledger.move(ran)
    assert one.due(times.set_by(-1800)) == []
    assert one.gap is not None
    assert one.gap.said == "the clock was set back by 30m"
    assert one.due(times.passes(1860)) == []


def test_a_clock_set_forward_and_back_gives_the_slot_back(ledger: Ledger) -> None:
    """What a wrong clock called missed is due when its time really comes."""
    times, mine = FakeTimes("2027-01-15T20:00:00+00:00"), schedule()
    one = reconciler(ledger, mine, times)
    one.due(times.moment())
    (early,) = one.due(times.set_by(6 * 3600.0))
    assert ledger.move(Slot(**{**_fields(early), "state": State.MISSED}))
    assert one.due(times.set_by(-6 * 3600.0)) == []
    found = one.due(times.until("2027-01-16T00:00:00+00:00"))
    assert times_of(found) == ["01-16T00:00"]


def test_a_month_of_minutes_is_written_down_and_not_for_ever(ledger: Ledger) -> None:
    """So many rows that a person can see what happened, and no more than the disk should hold."""
    times, mine = FakeTimes(), schedule("* * * * *")
    reconciler(ledger, mine, times).due(times.moment())
    found = reconciler(ledger, mine, times).due(times.passes(40 * 86400))
    assert len(found) == 20_001
    assert sum(slot.state is State.DUE for slot in found) == 1
    assert any("so were all until" in slot.reason for slot in found)


def test_a_run_that_was_asked_for_is_due_without_a_schedule(ledger: Ledger) -> None:
    """And it is asked for once only."""
    times, mine = FakeTimes(), schedule()
    one = reconciler(ledger, mine, times)
    one.due(times.moment())
    at = int(times.moment().wall) + 60
    assert ledger.plan(Planned("other", at, times.moment().wall, "anna"))
    assert not ledger.plan(Planned("other", at, times.moment().wall, "anna"))
    (slot,) = one.due(times.passes(61))
    assert (slot.job, slot.trigger) == ("other", "manual")
    assert slot.story == ("asked for by anna at 22:00",)
    assert ledger.planned() == []


def test_the_nightly_audit_finds_a_slot_without_a_row(ledger: Ledger, journal: Journal) -> None:
    """It never should; if it does, a person hears of it and there is a row."""
    times, mine = FakeTimes(), schedule()
    one = reconciler(ledger, mine, times)
    one.due(times.moment())
    one.due(times.passes(86400))
    assert one.audit(times.moment()) == []
    with journal._write() as db:
        db.execute("DELETE FROM slots")
    found = one.audit(times.passes(60))
    assert times_of(found) == ["01-16T00:00"]
    assert found[0].state is State.MISSED
    assert "found by the nightly audit" in found[0].reason
    assert one.audit(times.moment()) == []


def _fields(slot: Slot) -> dict[str, object]:
    return {name: getattr(slot, name) for name in slot.__dataclass_fields__}
