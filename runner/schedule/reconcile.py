"""Every slot has a row: what became due since the last look, also what nobody was awake for.

Level-triggered: it does not matter who or what wakes it. Pure apart from the ledger it is handed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from heapq import heapify, heapreplace
from math import inf
from zoneinfo import ZoneInfo

from runner.schedule.cron import Cron
from runner.schedule.ledger import Ledger
from runner.schedule.moments import Gap, Moment, gap
from runner.schedule.slots import Slot, State
from runner.schedule.windows import GRACE_S, ON_TIME_S
from runner.settings import Schedule, Settings
from runner.words import clock, iso

AUDITED = timedelta(hours=48)
_ALIVE = "alive"
_LOOKED = "looked"
_FIRST = "first-seen:"
_FARTHEST = timedelta(days=35)
_NOTE_EVERY_S = 10.0
_MOST = 20_000
"""So many slots of one row are reconstructed one by one; older ones share the oldest's row."""


@dataclass(frozen=True, slots=True)
class Row:
    """One `[[schedule]]`, ready to be asked."""

    name: str
    schedule: Schedule
    cron: Cron

    @property
    def job(self) -> str:
        """Its job."""
        return self.schedule.job


def rows(settings: Settings) -> tuple[Row, ...]:
    """The schedule in the order of the file, which is the order of firing."""
    zone = settings.zone
    return tuple(
        Row(f"{one.job} {one.cron} {settings.timezone}", one, Cron(one.cron, zone))
        for one in {f"{one.job} {one.cron}": one for one in settings.schedule}.values()
    )


class Reconciler:
    """Finds what is due. Remembers in the ledger until when somebody looked."""

    def __init__(self, ledger: Ledger, zone: ZoneInfo) -> None:
        self._ledger, self._zone = ledger, zone
        self._before: Moment | None = None
        self._looked: float | None = ledger.fact(_LOOKED)
        self._first: dict[str, float] = {}
        self._rows: tuple[Row, ...] = ()
        self._heap: list[tuple[float, int]] = []
        self._noted_at = -_NOTE_EVERY_S
        self.slept: str | None = None
        """Why nobody looked before this look; None where nothing was slept through."""
        self.gap: Gap | None = None

    def follow(self, rows: Sequence[Row], now: Moment) -> None:
        """These rows from now on: what was due before a row was written is nobody's debt."""
        self._rows, self._heap = tuple(rows), []
        known: Mapping[str, float] = self._ledger.facts(_FIRST)
        names = {row.name for row in rows}
        self._first = {name: float(known.get(name, now.wall)) for name in names}
        new = {f"{_FIRST}{name}": now.wall for name in names - set(known)}
        gone = {f"{_FIRST}{name}": None for name in set(known) - names}
        if new or gone:
            self._ledger.remember(**new, **gone)

    def due(self, now: Moment) -> list[Slot]:
        """Claim every slot that became due since the last look; those that are ours to decide.

        Older slots of a row that were slept through are written down as missed at once, and given
        back too: a run that comes late is for the newest only.
        """
        self._take_note(now)
        found = list(self._planned(now))
        if not self._heap:
            self._heap = [(self._begin(row, now), n) for n, row in enumerate(self._rows)]
            heapify(self._heap)
        while self._heap and self._heap[0][0] <= now.wall:
            _, place = self._heap[0]
            row = self._rows[place]
            begin = datetime.fromtimestamp(self._begin(row, now), UTC)
            found += self._of_row(row, begin, now)
            upcoming = row.cron.after(now.at)
            heapreplace(self._heap, (upcoming.timestamp() if upcoming else inf, place))
        claimed = self._ledger.claim(found) if found else []
        self._note(now, at_once=bool(found) or self.gap is not None)
        for slot in found:
            if slot.trigger == "manual":
                self._ledger.unplan(slot.job, slot.at)
        return claimed

    def _note(self, now: Moment, *, at_once: bool) -> None:
        """Remember that somebody looked; what a crash forgets of it is looked at again, and claimed
        by nobody a second time.
        """
        self._looked = max(now.wall, self._looked or 0.0)
        if at_once or now.boot - self._noted_at >= _NOTE_EVERY_S or now.boot < self._noted_at:
            self._noted_at = now.boot
            self._ledger.remember(**{_LOOKED: self._looked, _ALIVE: now.to_json()})

    def soonest(self) -> tuple[datetime, str] | None:
        """What is due next, and whose it is; None where nothing is."""
        if not self._heap or self._heap[0][0] == inf:
            return None
        at, place = self._heap[0]
        return datetime.fromtimestamp(at, UTC), self._rows[place].job

    def _begin(self, row: Row, now: Moment) -> float:
        """Until when this row was looked at, in seconds since 1970."""
        return max(self._first.get(row.name, now.wall), self._looked or 0.0)

    def _take_note(self, now: Moment) -> None:
        """Whether time was lost, or set, since the last look of whoever looked."""
        before, same = self._before, True
        if before is None:
            said, same = self._ledger.fact(_ALIVE), False
            before = Moment.from_json(said) if said else None
        self._before = now
        self.gap = None
        self.slept = None
        if before is None:
            return
        self.gap = gap(before, now, same_process=same)
        if self.gap is None:
            return
        since = clock(iso(before.at, self._zone))
        self.slept = f"{self.gap.said} (last look at {since})"
        if self.gap.jump:
            self._heap = []
        if self.gap.jump < 0:
            # these times will come again: what has not run is due again then
            self._ledger.forget_unrun_after(now.wall)
            self._looked = now.wall

    def _of_row(self, row: Row, begin: datetime, now: Moment) -> Iterator[Slot]:
        nearest = max(begin, now.at - _FARTHEST)
        times = list(row.cron.between(nearest, now.at))[-_MOST:]
        for place, at in enumerate(times):
            newest = place == len(times) - 1
            yield self._slot(row.job, at, now, newest=newest)
        if nearest > begin and (first := row.cron.after(begin)) and first < nearest:
            slot = self._slot(row.job, first, now, newest=False)
            yield replace(slot, reason=f"{slot.reason}; so were all until {nearest:%Y-%m-%d}")

    def _slot(self, job: str, at: datetime, now: Moment, *, newest: bool) -> Slot:
        late = now.wall - at.timestamp()
        slot = Slot(
            job=job,
            at=int(at.timestamp()),
            due=iso(at, self._zone),
            state=State.DUE,
            trigger="schedule" if late <= GRACE_S else "catch-up",
            changed=now.wall,
            reason=self.slept or "" if late > ON_TIME_S else "",
        )
        if newest or self.slept is None:
            return slot
        return replace(slot, state=State.MISSED, reason=f"{self.slept}; a later slot counts")

    def _planned(self, now: Moment) -> Iterator[Slot]:
        for planned in self._ledger.planned():
            if planned.at <= now.wall:
                at = datetime.fromtimestamp(planned.at, UTC)
                slot = self._slot(planned.job, at, now, newest=True)
                story = (
                    f"asked for by {planned.by} at {clock(iso(_at(planned.since), self._zone))}",
                )
                yield replace(slot, trigger="manual", story=story)

    def audit(self, now: Moment) -> list[Slot]:
        """Slots of the last 48 h that have no row, which should never be: written down as missed."""
        found: list[Slot] = []
        for row in self._rows:
            since = datetime.fromtimestamp(self._first.get(row.name, now.wall), UTC)
            begin = max(since, now.at - AUDITED)
            known = self._ledger.known(row.job, begin.timestamp(), now.wall)
            for at in row.cron.between(begin, now.at):
                if int(at.timestamp()) not in known:
                    slot = self._slot(row.job, at, now, newest=False)
                    why = "found by the nightly audit: it had no row"
                    found.append(replace(slot, state=State.MISSED, reason=why))
        return self._ledger.claim(found)


def _at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
