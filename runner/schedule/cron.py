"""Cron times in any timezone: exactly one fire for each local time, whatever the clocks do.

Knows no job and no scheduler. Fields and names are those of cronsim; what an hour that does not
exist or exists twice means is decided here.
"""

import copy
import functools
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

__all__ = ["BadCron", "Cron", "checked", "existing"]

_LATEST = datetime(9000, 1, 1, tzinfo=UTC)
_ANCHOR = datetime(2020, 1, 1)  # noqa: DTZ001 - a wall clock, of no zone at all
_LONGEST_GAP = timedelta(hours=26)
"""Longer than any zone ever skipped: a whole day, when it moved across the date line."""


class BadCron(ValueError):
    """A text that is no cron expression, or one that never comes true."""


def checked(expression: str) -> str:
    """The expression, if it means something and ever comes true. Raises BadCron."""
    if len(expression.split()) != 5:
        raise BadCron(
            'is no cron expression; write minute hour day month weekday, such as "0 0 * * *"'
        )
    try:
        first = next(CronSim(expression, _ANCHOR), None)
    except CronSimError as error:
        if str(error) == "Bad day-of-month" and _parts_are_good(expression):
            raise BadCron(
                "never fires: no such day in these months; correct day or month"
            ) from None
        raise BadCron(
            f"is no cron expression ({str(error)[:1].lower()}{str(error)[1:]}); write minute hour "
            'day month weekday, such as "0 0 * * *"'
        ) from None
    if first is None:
        raise BadCron("never fires; correct day, month or weekday")
    return expression


def _parts_are_good(expression: str) -> bool:
    """Whether each field is fine by itself, so that only their combination is not."""
    minute, hour, day, _, weekday = expression.split()
    try:
        CronSim(f"{minute} {hour} {day} * {weekday}", _ANCHOR)
    except CronSimError:
        return False
    return True


@functools.lru_cache(maxsize=4096)
def _template(expression: str) -> CronSim:
    """The parsed expression, copied for each use: parsing costs as much as the next time."""
    return CronSim(expression, _ANCHOR)


class Cron:
    """One expression in one zone. All moments that go in and come out are in UTC.

    Where the hour is given, the wall clock counts: a time that the clocks jump over comes at the
    first minute after the jump (or the last before it, where that is another date), and one that
    comes twice counts the first time. Where it is not
    (`0 * * * *`, `*/5 */2 * * *`), real time counts: every hour that passes is an hour.
    """

    __slots__ = ("_by_the_wall", "expression", "zone")

    def __init__(self, expression: str, zone: ZoneInfo) -> None:
        """Raises BadCron."""
        self.expression, self.zone = expression, zone
        try:
            _template(expression)
        except CronSimError as error:
            raise BadCron(str(error)) from None
        self._by_the_wall = not expression.split()[1].startswith("*")

    def after(self, moment: datetime) -> datetime | None:
        """The first fire later than this moment; None where there is none within 50 years."""
        return next(self.from_(moment), None)

    def from_(self, moment: datetime) -> Iterator[datetime]:
        """Every fire later than this moment, in order, each once."""
        if moment >= _LATEST:
            return
        times = self._walls(moment) if self._by_the_wall else self._hours(moment)
        last = moment
        for at in times:
            if at > last:
                last = at
                yield at

    def between(self, begin: datetime, end: datetime) -> Iterator[datetime]:
        """Every fire later than `begin` and not later than `end`."""
        for at in self.from_(begin):
            if at > end:
                return
            yield at

    def _simulated(self, start: datetime) -> Iterator[datetime]:
        simulated = copy.copy(_template(self.expression))
        simulated.dt = start.replace(microsecond=0)
        return simulated

    def _walls(self, moment: datetime) -> Iterator[datetime]:
        wall = moment.astimezone(self.zone).replace(tzinfo=None, fold=0)
        for naive in self._simulated(wall):
            yield existing(naive, self.zone)

    def _hours(self, moment: datetime) -> Iterator[datetime]:
        for local in self._simulated(moment.astimezone(self.zone)):
            yield local.astimezone(UTC)

    def moved(self, at: datetime) -> str | None:
        """What a change of the clocks does to this fire, in words; None where it does nothing."""
        local = at.astimezone(self.zone)
        if not self._by_the_wall:
            return None
        simulated = self._simulated(local.replace(tzinfo=None) - timedelta(minutes=1))
        if next(simulated, None) != local.replace(tzinfo=None, fold=0):
            return f"moved to {local:%H:%M}: the clocks go forward over its time"
        if local.fold == 0 and local.replace(fold=1).utcoffset() != local.utcoffset():
            return f"{local:%H:%M} comes twice that night: it fires the first time only"
        return None

    def touched(self, moment: datetime, years: int = 1) -> tuple[datetime, str] | None:
        """The next fire that a change of the clocks touches, and how; None in so many years."""
        end = moment + timedelta(days=366 * years)
        if not self._by_the_wall:
            return None
        for change in _changes(self.zone, moment, end):
            for at in self.between(change - _LONGEST_GAP, change + _LONGEST_GAP):
                if at > moment and (said := self.moved(at)):
                    return at, said
        return None

    def in_words(self) -> str:
        """The expression as a sentence: `At 00:00 every day`."""
        return str(_template(self.expression).explain())


def existing(wall: datetime, zone: ZoneInfo) -> datetime:
    """The moment of a time on the wall: the first of two, or the first minute after a gap.

    Where the clocks jump over the end of a day, it is the last minute before: each date has its own.
    """
    at = wall.replace(tzinfo=zone).astimezone(UTC)
    if at.astimezone(zone).replace(tzinfo=None, fold=0) == wall:
        return at
    # In a gap, fold=0 counts with the offset before it: that lands behind the gap by as much as
    # the time lies in it. Minute by minute back to where the gap ends.
    while (back := at - timedelta(minutes=1)).astimezone(zone).utcoffset() == at.astimezone(
        zone
    ).utcoffset():
        at = back
    on_its_date = at.astimezone(zone).date() == wall.date()
    return at if on_its_date else at - timedelta(minutes=1)


def _changes(zone: ZoneInfo, begin: datetime, end: datetime) -> Iterator[datetime]:
    """The moments at which the zone's offset changes, to within a day."""
    at, day = begin, timedelta(days=1)
    while at < end:
        if at.astimezone(zone).utcoffset() != (at + day).astimezone(zone).utcoffset():
            yield at
        at += day
