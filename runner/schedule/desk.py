"""Decides each slot that is due, one after the other: begin, wait, or why not; and tells.

One run at a time on a box. What is due together begins in the order of its time, then of
runner.toml. Whoever waits is written down with what it waits for.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jobs.errors import ConfigError
from jobs.load import load_job
from runner.recovery import lock
from runner.schedule.children import Children, Done
from runner.schedule.firing import LATE, Ended, Firing, is_traffic, refusals
from runner.schedule.incidents import Incidents
from runner.schedule.ledger import Ledger
from runner.schedule.moments import Moment
from runner.schedule.reconcile import Row
from runner.schedule.slots import AT_WORK, SILENT, Slot, State
from runner.schedule.windows import ON_TIME_S, Over, Wait, decide, ends
from runner.settings import Schedule, Settings
from runner.words import clock, duration, iso

LOOK_AGAIN_S = 60.0
LOOK_WITHIN_S = 120.0
_LONGEST_STORY = 20

Json = dict[str, Any]


class Desk:
    """The slots that are open, and what is done about them."""

    def __init__(
        self,
        ledger: Ledger,
        incidents: Incidents,
        firing: Firing,
        looks: Children,
        standing: Callable[[], str],
    ) -> None:
        """`standing` says in a word how production is, for the first line of what is told."""
        self._ledger, self._incidents, self._firing = ledger, incidents, firing
        self._looks, self._standing = looks, standing
        self._looked: dict[tuple[str, int], float] = {}
        self.settings: Settings
        self._rows: Sequence[Row] = ()
        self._seen_done: dict[str, Done] = {}

    def follow(self, settings: Settings, rows: Sequence[Row]) -> None:
        """Decide by these settings from now on."""
        self.settings, self._rows = settings, rows

    def fds(self) -> Iterable[int]:
        """Descriptors that have news when a run or a look ends."""
        return [*self._firing.fds(), *self._looks.fds()]

    def wake_within(self) -> float:
        """Seconds until something open wants another look."""
        return 1.0 if any(slot.state is not State.WAITING for slot in self._ledger.open()) else 5.0

    def missed(self, slots: Sequence[Slot]) -> None:
        """Tell of slots that were found missed, all of a job in one message."""
        jobs = dict.fromkeys(slot.job for slot in slots if slot.state is State.MISSED)
        for job in jobs:
            mine = [slot for slot in slots if slot.job == job and slot.state is State.MISSED]
            times = clock(mine[0].due)
            if len(mine) > 1:
                times = f"{clock(mine[0].due)} to {clock(mine[-1].due)}, {len(mine)} of them,"
            first = f"{self._standing()} · {job} MISSED its slot of {times}"
            self._incidents.note(f"missed:{job}:{mine[0].at}", first, [mine[-1].reason])

    def tick(self, now: Moment, slept: str | None) -> None:
        """Bring every open slot as far as it can come now."""
        self._seen_done |= self._looks.ended()
        for ended in self._firing.ended(now.wall):
            self._run_is_over(ended, now)
        order = {row.job: place for place, row in reversed(list(enumerate(self._rows)))}
        waiting = [slot for slot in self._ledger.open() if slot.state in {State.DUE, State.WAITING}]
        for slot in sorted(waiting, key=lambda one: (one.at, order.get(one.job, 0))):
            self._decide(slot, now, slept)

    # One slot

    def _schedule(self, slot: Slot) -> Schedule | None:
        """What runner.toml says about this slot now; a run that a person asked for needs no row."""
        at = _at(slot.at)
        for row in self._rows:
            if row.job == slot.job and next(row.cron.between(_at(slot.at - 1), at), None) == at:
                return row.schedule
        if _asked_for(slot):
            return Schedule(job=slot.job, cron="0 0 * * *", missed="run-once")
        return None

    def _decide(self, slot: Slot, now: Moment, slept: str | None) -> None:
        schedule = self._schedule(slot)
        if schedule is None:
            self._over(slot, State.SKIPPED, "its schedule was taken out of runner.toml", now)
            return
        zone = self.settings.zone
        fresh = slot.state is State.DUE
        late = now.wall - slot.at
        drained = self._ledger.journal.drained()
        said = decide(
            schedule,
            _at(slot.at),
            now.at,
            zone=zone,
            pauses=self._ledger.pauses(now.wall),
            drained=f"drained since {clock(drained['since'])}: {drained['reason']}"
            if drained
            else None,
            slept=(slot.reason or slept) if fresh and late > ON_TIME_S else None,
        )
        if isinstance(said, Wait):
            self._wait(slot, said.why, now)
        elif isinstance(said, Over):
            self._end(slot, said, now)
        elif self._free(slot, now):
            self._begin(replace(slot, back_by=said.back_by), schedule, now, late if fresh else 0.0)

    def _end(self, slot: Slot, over: Over, now: Moment) -> None:
        """What waited until its window was over did not miss it: it was kept from running."""
        if slot.state is State.WAITING and over.state is State.MISSED:
            state = State.REFUSED if slot.trigger == "retry" else State.BUSY
            until = clock(iso(now.at, self.settings.zone))
            self._over(slot, state, f"until {until}: {slot.reason}", now)
        else:
            self._over(slot, over.state, over.why, now)

    def _free(self, slot: Slot, now: Moment) -> bool:
        """Whether the box is free; else the slot waits, or is over if its own job is at it."""
        state_dir = Path(self.settings.state_dir)
        others = [one for one in self._ledger.open() if one.state in AT_WORK]
        holder = lock.holder(state_dir) or lock.box_holder(self.settings.lock_name)
        if not others and holder is None:
            return True
        running = {one["run"]: one["job"] for one in self._ledger.journal.open_runs()}
        same = [one for one in others if one.job == slot.job]
        who = str(holder) if holder else f"the run of {others[0].job}"
        if same or (holder and running.get(holder.run) == slot.job):
            self._over(slot, State.BUSY, f"already running: {who}", now)
        else:
            self._wait(slot, who, now)
        return False

    def _begin(self, slot: Slot, schedule: Schedule, now: Moment, late: float) -> None:
        try:
            load_job(Path(self.settings.jobs_dir), slot.job)
        except ConfigError as error:
            self._refused(slot, schedule, str(error), now, told=False)
            return
        if slot.trigger == "retry" and not self._looks_good(slot, now):
            return
        if slot.state is State.WAITING:
            slot = replace(slot, reason=f"waited for {slot.reason}")
        elif late > ON_TIME_S:
            slot = replace(slot, reason=f"{duration(late)}{LATE}{slot.reason or 'nobody looked'}")
        begun = self._firing.start(slot, now.wall)
        if begun.state is State.REFUSED:
            self._tell(begun)

    def _looks_good(self, slot: Slot, now: Moment) -> bool:
        """Look again, each minute, whether what refused is mended. Preflight touches nothing."""
        key, name = (slot.job, slot.at), f"look-{slot.job}"
        done = self._seen_done.pop(name, None)
        if done is not None and key in self._looked:
            if done.code == 0:
                return True
            why = refusals(done.answer) or done.error
            self._wait(slot, why, now)
        if now.boot - self._looked.get(key, -LOOK_AGAIN_S) >= LOOK_AGAIN_S:
            self._looked[key] = now.boot
            self._looks.start(name, ["check", slot.job, "--json"], within=LOOK_WITHIN_S)
        return False

    def _run_is_over(self, ended: Ended, now: Moment) -> None:
        slot = ended.slot
        schedule = self._schedule(slot)
        if slot.state is State.REFUSED and schedule is not None:
            busy = ended.result is not None and is_traffic(ended.result)
            told = ended.result is not None
            self._refused(slot, schedule, slot.reason, now, told=told, busy=busy)
            return
        if self._ledger.move(slot) and ended.result is None:
            self._tell(slot)
        first = f"{self._standing()} · {slot.job} runs after all"
        self._incidents.resolve(_key(slot), first, [slot.reason])

    def _refused(
        self,
        slot: Slot,
        schedule: Schedule,
        why: str,
        now: Moment,
        *,
        told: bool,
        busy: bool = False,
    ) -> None:
        """Refused: look again until `try_until`, else that was it. Traffic alone is waited out
        within `late_by`, too: it passes by itself.
        """
        zone = self.settings.zone
        end = ends(schedule, _at(slot.at), zone)
        again = (schedule.try_until is not None or busy) and now.at < end
        if not again:
            if self._ledger.move(replace(slot, state=State.REFUSED, reason=why)) and not told:
                self._tell(replace(slot, state=State.REFUSED, reason=why))
            return
        self._looked[slot.job, slot.at] = now.boot
        until = clock(iso(end, zone))
        first = f"{self._standing()} · {slot.job} REFUSED, looking again until {until}"
        self._incidents.open(_key(slot), first, [why], run=slot.run or "", told=told)
        self._wait(replace(slot, trigger="retry", run=None), why, now)

    def _wait(self, slot: Slot, why: str, now: Moment) -> None:
        """Write down what it waits for; only what is new makes the story longer."""
        if slot.state is State.WAITING and slot.reason == why:
            return
        line = f"{clock(iso(now.at, self.settings.zone))} waits: {why}"
        story = (*slot.story, line)[-_LONGEST_STORY:]
        waiting = replace(slot, state=State.WAITING, reason=why, story=story, changed=now.wall)
        self._ledger.move(waiting)
        if slot.trigger == "retry" and self._incidents.text(_key(slot)):
            first = f"{self._standing()} · {slot.job} REFUSED, looking again"
            self._incidents.open(_key(slot), first, [why])

    def _over(self, slot: Slot, state: State, why: str, now: Moment) -> None:
        done = replace(slot, state=state, reason=why, changed=now.wall)
        if self._ledger.move(done):
            self._looked.pop((slot.job, slot.at), None)
            self._ledger.journal.resolve(_key(slot))
            self._tell(done)

    def _tell(self, slot: Slot) -> None:
        """One message about a slot without a run, unless a person decided it so."""
        if slot.state in SILENT:
            return
        first = f"{self._standing()} · {slot.job} {slot.state.upper()} at {clock(slot.due)}"
        self._incidents.note(
            f"{_key(slot)}:{slot.state}", first, [slot.reason, f"runner why {slot.job}"]
        )


def _key(slot: Slot) -> str:
    return f"slot:{slot.job}:{slot.at}"


def _asked_for(slot: Slot) -> bool:
    return any(line.startswith("asked for by ") for line in slot.story)


def _at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
