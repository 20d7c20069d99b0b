"""Cron in every zone: once for each local date, whatever the clocks do; and what never fires."""

import itertools
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo, available_timezones

import pytest

from runner.schedule.cron import BadCron, Cron, checked

TIMES = ("0 0 * * *", "30 0 * * *", "30 1 * * *", "30 2 * * *", "30 23 * * *")


def fires(expression: str, zone: str, begin: str, count: int) -> list[str]:
    """The next fires in local time, with their offset."""
    cron = Cron(expression, ZoneInfo(zone))
    times = itertools.islice(cron.from_(datetime.fromisoformat(begin)), count)
    return [at.astimezone(cron.zone).isoformat() for at in times]


def test_midnight_comes_every_day_around_a_change_of_the_clocks() -> None:
    """Case 15: APScheduler's own trigger skips the midnight after the spring change."""
    assert fires("0 0 * * *", "Europe/Berlin", "2027-03-26T12:00:00+01:00", 4) == [
        "2027-03-27T00:00:00+01:00",
        "2027-03-28T00:00:00+01:00",
        "2027-03-29T00:00:00+02:00",
        "2027-03-30T00:00:00+02:00",
    ]
    assert fires("0 0 * * *", "US/Pacific", "2027-03-12T12:00:00-08:00", 4) == [
        "2027-03-13T00:00:00-08:00",
        "2027-03-14T00:00:00-08:00",
        "2027-03-15T00:00:00-07:00",
        "2027-03-16T00:00:00-07:00",
    ]


def test_a_time_in_the_gap_comes_once_at_the_next_minute_there_is() -> None:
    """Case 15: 02:30 does not exist on that day; a run is neither lost nor doubled."""
    assert fires("30 2 * * *", "Europe/Berlin", "2027-03-26T12:00:00+01:00", 4) == [
        "2027-03-27T02:30:00+01:00",
        "2027-03-28T03:00:00+02:00",
        "2027-03-29T02:30:00+02:00",
        "2027-03-30T02:30:00+02:00",
    ]


def test_a_time_that_comes_twice_fires_the_first_time() -> None:
    """Case 15: two GPU runs in the autumn night would be one too many."""
    assert fires("30 2 * * *", "Europe/Berlin", "2027-10-29T12:00:00+02:00", 4) == [
        "2027-10-30T02:30:00+02:00",
        "2027-10-31T02:30:00+02:00",
        "2027-11-01T02:30:00+01:00",
        "2027-11-02T02:30:00+01:00",
    ]


def test_every_hour_is_every_hour_that_passes() -> None:
    """Without a fixed hour real time counts: the hour that comes twice fires twice."""
    found = fires("0 * * * *", "Europe/Berlin", "2027-10-31T00:30:00+00:00", 3)
    assert found == [
        "2027-10-31T02:00:00+01:00",
        "2027-10-31T03:00:00+01:00",
        "2027-10-31T04:00:00+01:00",
    ]


def test_half_an_hour_of_summer_time_is_handled() -> None:
    """Lord Howe moves its clocks by thirty minutes."""
    found = fires("15 2 * * *", "Australia/Lord_Howe", "2027-10-02T00:00:00+00:00", 2)
    assert found == ["2027-10-03T02:30:00+11:00", "2027-10-04T02:15:00+11:00"]


def changes(zone: ZoneInfo, first: int, last: int) -> list[date]:
    """The local dates on which the zone's offset changes."""
    day, end = datetime(first, 1, 1, tzinfo=UTC), datetime(last, 12, 31, tzinfo=UTC)
    found, before = [], day.astimezone(zone).utcoffset()
    while day < end:
        day += timedelta(days=1)
        now = day.astimezone(zone).utcoffset()
        if now != before:
            found.append(day.astimezone(zone).date())
        before = now
    return found


def distinct_zones() -> list[str]:
    """One name of each set of rules: many zones are the same file under other names."""
    root = Path("/usr/share/zoneinfo")
    by_rules: dict[bytes, str] = {}
    for name in sorted(available_timezones()):
        path = root / name
        by_rules.setdefault(path.read_bytes() if path.is_file() else name.encode(), name)
    return sorted(by_rules.values())


def test_exactly_one_fire_a_local_date_around_every_change_2020_to_2035() -> None:
    """Every zone of the database, five times of day, three days around each change of its clocks.

    The days between two changes are all alike; benchmarks/schedule.py goes through those as well.
    """
    wrong = []
    for name in distinct_zones():
        zone = ZoneInfo(name)
        crons = [Cron(expression, zone) for expression in TIMES]
        for day in changes(zone, 2020, 2035):
            days = [day + timedelta(days=offset) for offset in (-2, -1, 0, 1)]
            begin = datetime(days[0].year, days[0].month, days[0].day, tzinfo=zone)
            end = begin + timedelta(days=6)
            for cron in crons:
                around = cron.between(
                    begin.astimezone(UTC) - timedelta(minutes=1), end.astimezone(UTC)
                )
                found = [at.astimezone(zone).date() for at in around]
                wrong += [(name, cron.expression, one) for one in days if found.count(one) != 1]
    assert wrong == []


@pytest.mark.parametrize("expression", ["0 0 30 2 *", "0 0 31 4,6 *", "0 12 31 9 *"])
def test_what_never_fires_is_refused(expression: str) -> None:
    """Somebody waits for it every night otherwise."""
    with pytest.raises(BadCron, match="never fires"):
        checked(expression)


@pytest.mark.parametrize(
    "expression", ["midnight", "* * * *", "61 * * * *", "0 0 0 * *", "0 25 * * *", "0 0 * * FOO"]
)
def test_what_is_no_cron_expression_is_refused(expression: str) -> None:
    """With the field that is wrong, and an example."""
    with pytest.raises(BadCron, match="is no cron expression"):
        checked(expression)


@pytest.mark.parametrize(
    "expression", ["0 0 * * *", "*/15 2 * * MON-FRI", "0 0 29 2 *", "0 0 L * *"]
)
def test_what_fires_is_taken(expression: str) -> None:
    """Also what comes every four years."""
    assert checked(expression) == expression


def test_an_expression_is_explained_in_words() -> None:
    """Nobody should have to read five fields at night."""
    assert Cron("30 2 * * MON-FRI", ZoneInfo("UTC")).in_words() == (
        "At 02:30 on Monday through Friday"
    )


def test_what_a_change_of_the_clocks_touches_is_pointed_out() -> None:
    """With the date and what happens then; a midnight is not touched in Berlin."""
    cron = Cron("30 2 * * *", ZoneInfo("Europe/Berlin"))
    at, how = cron.touched(datetime(2027, 1, 1, tzinfo=UTC)) or (None, "")
    assert at == datetime(2027, 3, 28, 1, 0, tzinfo=UTC)
    assert how == "moved to 03:00: the clocks go forward over its time"
    at, how = cron.touched(datetime(2027, 4, 1, tzinfo=UTC)) or (None, "")
    assert at == datetime(2027, 10, 31, 0, 30, tzinfo=UTC)
    assert "comes twice that night" in how
    midnight = Cron("0 0 * * *", ZoneInfo("Europe/Berlin"))
    assert midnight.touched(datetime(2027, 1, 1, tzinfo=UTC)) is None
