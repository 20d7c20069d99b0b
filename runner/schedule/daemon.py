"""`runner serve`: the loop that fires, watches, looks ahead and tells. Read this page first.

Every part is level-triggered and looks at the world at each tick; whatever wakes the loop (the
alarm, a death, a file, a signal) only makes it look sooner. What may hang or grow is a child.
"""

import os
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

from runner import logs
from runner.files import make_state_dir
from runner.journal import Journal, JournalError
from runner.recovery.notify import notify
from runner.schedule import firing, reserved
from runner.schedule.ahead import Ahead
from runner.schedule.alarm import BEAT_S, After, Alarm
from runner.schedule.aloud import Aloud
from runner.schedule.children import Children
from runner.schedule.conf import Live
from runner.schedule.desk import Desk
from runner.schedule.held import is_held
from runner.schedule.incidents import Incidents
from runner.schedule.inputs import Inputs
from runner.schedule.ledger import Ledger
from runner.schedule.moments import TICK_S, Moment, Times
from runner.schedule.post import Post
from runner.schedule.process import Wishes, alone, watchdog_s
from runner.schedule.reconcile import Reconciler, Row, rows
from runner.schedule.slots import AT_WORK
from runner.schedule.unused import release_unused
from runner.schedule.watch import Watch
from runner.stopping import StopFlag

log = logs.get(__name__)

AUDIT_AT = 5
"""The hour of the local day after which the last 48 h are gone over."""

_SHORTEST_S = 0.05
_PUBLISH_EVERY_S = 600.0
_PUBLISH_SOON_S = 30.0
_STATUS_WITHIN_S = 120.0
_DEAF_AFTER_S = 6 * BEAT_S


class StateGone(Exception):
    """The state directory was removed or renamed: what is written now, nobody will read."""


class Daemon:
    """One daemon of one state directory."""

    def __init__(
        self,
        config: Path,
        *,
        times: Times,
        stop: StopFlag,
        wishes: Wishes | None = None,
        alarm: Alarm | None = None,
        units: bool | None = None,
    ) -> None:
        """Read the configuration and open the journal; nothing is fired yet.

        Raises ConfigError, JournalError, OSError, and Taken where another daemon serves.
        """
        self._times, self._stop, self._wishes = times, stop, wishes or Wishes()
        self._live = Live(config)
        state_dir = Path(self._live.settings.state_dir)
        make_state_dir(state_dir)
        self._live.keep()
        self._state_dir, self._aloud = state_dir, Aloud(state_dir, times)
        self._lock = alone(state_dir)
        journal = Journal.open(state_dir, zone=self._live.settings.zone)
        self._journal, self._ledger = journal, Ledger(journal)
        self._incidents = Incidents(journal)
        self._alarm = alarm or Alarm()
        units = firing.under_systemd() if units is None else units
        self._watch = Watch(self._ledger, self._incidents, self._live.settings, times)
        self._post = Post(journal, self._children(), state_dir, units=units)
        self._ahead = Ahead(
            self._ledger, self._incidents, self._children(), Inputs(), self.standing
        )
        self._desk = Desk(
            self._ledger,
            self._incidents,
            firing.Firing(self._ledger, self._children(), units=units),
            self._children(),
            self.standing,
        )
        self._reconciler = Reconciler(self._ledger, self._live.settings.zone)
        self._rows: tuple[Row, ...] = ()
        self._beats, self._beat_at, self._failed = 0, times.moment().steady, False
        self._published, self._shown = 0.0, self._children()
        self._woken: set[int] = set()
        self._follow()

    def _children(self) -> Children:
        return Children(lambda: self._live.in_force, self._state_dir / "spool", self._times)

    # The loop

    def serve(self) -> None:
        """Tick until a signal asks for an end. Runs that go on do not notice it.

        Raises StateGone where another daemon of the same directory must begin anew.
        """
        self.tick()
        notify("READY=1")
        while self._stop() is None:
            self._woken = self._times.pause(self.rest(), self.fds())
            self.tick()
        notify("STOPPING=1")

    def fds(self) -> list[int]:
        """Everything that may have news."""
        return [
            self._wishes.fd,
            self._alarm.fd,
            *self._watch.fds(),
            *self._desk.fds(),
            *self._ahead.fds(),
            *self._post.fds(),
        ]

    def rest(self) -> float:
        """Seconds until somebody has something to do."""
        now = self._times.moment()
        wanted = [
            TICK_S,
            watchdog_s() / 3,
            self._watch.wake_at() - now.boot,
            self._ahead.wake_within(now),
        ]
        if self._ledger.open():
            wanted.append(self._desk.wake_within())
        return max(_SHORTEST_S, min(wanted))

    def tick(self) -> None:
        """One look at everything. A part that fails is told of, and the others go on."""
        if not self._journal.is_there:
            raise StateGone(f"{self._state_dir} was removed or renamed while runner serve ran")
        now, self._failed = self._times.moment(), False
        self._try("configuration", lambda: self._take_up(now))
        self._try("slots", lambda: self._slots(now))
        self._try("watch", lambda: self._watch.tick(self._woken, self._say_alive))
        self._try("looking ahead", lambda: self._look_ahead(now))
        self._try("alarm", lambda: self._mind_the_alarm(now))
        self._try("audit", lambda: self._audit(now))
        self._try("publishing", lambda: self._publish(now))
        self._try("errands", lambda: self._post.tick(now))
        if self._aloud.is_lost and not self._failed:
            self._try("journal", self._found_again)
        self._say_alive()
        notify(f"STATUS={self.status()}")

    def _say_alive(self) -> None:
        """Feed systemd's watchdog, unless the scheduler's thread stands still and is not replaced."""
        if self._times.moment().steady - self._beat_at < _DEAF_AFTER_S:
            notify("WATCHDOG=1")

    def _try(self, name: str, act: Callable[[], None]) -> None:
        try:
            act()
        except JournalError as error:
            self._failed = True
            log.warning("the journal cannot be used", part=name, error=str(error))
            self._aloud.say(self.standing(), error, self._live.settings.alerts.channel)
        except Exception as error:
            log.exception("a fault of the runner", part=name)
            try:
                first = f"{self.standing()} · a fault in runner serve ({name})"
                said = f"{type(error).__name__}: {error}"
                self._incidents.open(f"bug:{name}", first, [said, "please report it"])
            except JournalError:
                return

    def _found_again(self) -> None:
        """Nothing has failed in this tick; whether the journal takes it is the proof."""
        first = f"{self.standing()} · runner serve can write its journal again"
        self._incidents.note("journal:lost", first, ["what production did meanwhile is told now"])
        self._aloud.works_again()

    # The parts

    def _take_up(self, now: Moment) -> None:
        """An edit of runner.toml, or of a job; a broken one is told of and changes nothing."""
        self._wishes.seen()
        asked, self._wishes.reload = self._wishes.reload, False
        if asked:
            notify("RELOADING=1", f"MONOTONIC_USEC={int(now.steady * 1_000_000)}")
        if self._live.changed(self._incidents, asked=asked):
            self._follow()
        if asked:
            notify("READY=1")

    def _follow(self) -> None:
        settings = self._live.settings
        self._rows = rows(settings)
        self._desk.follow(settings, self._rows)
        self._watch.follow(settings)
        jobs = dict.fromkeys(row.job for row in self._rows)
        files = [self._live.path, *(Path(settings.jobs_dir) / f"{job}.toml" for job in jobs)]
        self._ahead.follow(settings, self._rows, files)
        self._reconciler.follow(self._rows, self._times.moment())
        self._set_alarm()
        self._published = 0.0

    def _set_alarm(self) -> None:
        after: dict[str, After] = {row.name: row.cron.after for row in self._rows}
        for planned in self._ledger.planned():
            after[f"{planned.job} at {planned.at}"] = _once(planned.at)
        self._alarm.set(after)

    def _slots(self, now: Moment) -> None:
        self._alarm.dropped()
        claimed = self._reconciler.due(now)
        gap = self._reconciler.gap
        if gap is not None:
            log.warning("time was lost", said=gap.said)
            self._journal.event("serve", "gap", said=gap.said)
            self._beat_at = now.steady  # the alarm stood still with us, and comes round again
            self._set_alarm()
        self._desk.missed(claimed)
        self._desk.tick(now, self._reconciler.slept)
        if claimed:
            self._published = min(self._published, now.boot + _PUBLISH_SOON_S)

    def _look_ahead(self, now: Moment) -> None:
        for change in (one for one in self._ahead.changed(now) if not one.blind):
            for job in dict.fromkeys(row.job for row in self._rows):
                file = Path(self._live.settings.jobs_dir) / f"{job}.toml"
                if Path(change.path) in {file, *file.parents}:
                    self._ahead.wish(job, f"{Path(change.path).name} {change.what}")
        self._ahead.due(now)
        # a run that was just started does not have the box yet, and will have it in an instant
        busy = any(one.state in AT_WORK for one in self._ledger.open())
        if self._ahead.tick(now, busy=busy or is_held(self._live.settings)):
            self._published = 0.0

    def _mind_the_alarm(self, now: Moment) -> None:
        """The scheduler's thread must come round; where it does not it is replaced, and told."""
        for problem in self._alarm.problems():
            self._incidents.note(f"alarm:{problem}", f"{self.standing()} · {problem}")
        beats = self._alarm.beats
        if beats != self._beats and self._alarm.alive:
            self._beats, self._beat_at = beats, now.steady
        elif not self._alarm.alive or now.steady - self._beat_at >= _DEAF_AFTER_S:
            said = "the scheduler's thread had died; it was replaced, and no slot is lost"
            self._incidents.note("alarm:died", f"{self.standing()} · {said}")
            self._alarm.revive()
            self._beat_at = now.steady

    def _audit(self, now: Moment) -> None:
        """Once a day: every slot of the last 48 h has its row, or a person hears of it."""
        local = now.at.astimezone(self._live.settings.zone)
        day = (local - timedelta(hours=AUDIT_AT)).date().isoformat()
        if self._ledger.fact("audited") == day:
            return
        found = self._reconciler.audit(now)
        self._ledger.remember(audited=day)
        self._desk.missed(found)
        if left := list(release_unused(self._ledger, self._live.settings)):
            first = f"{self.standing()} · pins that nobody needs could not be released"
            self._incidents.note("pins:unused", first, left)

    def _publish(self, now: Moment) -> None:
        """What other users may see: coming fires, and what they need."""
        self._shown.ended()
        if now.boot < self._published:
            return
        self._published = now.boot + _PUBLISH_EVERY_S
        settings, config = self._live.settings, self._live.path
        reserved.publish(settings, self._ledger, self._state_dir, now.at, config=config)
        # beside us, since a server that hangs is asked patiently; it publishes what it finds
        self._shown.start("status", ["status", "--json"], within=_STATUS_WITHIN_S)
        self._post.show_status()

    # In words

    def standing(self) -> str:
        """How production is, for the first line of whatever is told."""
        known = self._watch.last
        if not self._live.settings.production:
            return "NO PRODUCTION on this box"
        down = [name for name, seen in known.items() if not seen.up]
        if down:
            return f"DOWN: {', '.join(down)}"
        return "SERVING" if known else "serve"

    def status(self) -> str:
        """One line for `systemctl status`."""
        soon, following = "nothing is scheduled", self._reconciler.soonest()
        if following is not None:
            at, job = following
            soon = f"next {job} at {at.astimezone(self._live.settings.zone):%Y-%m-%d %H:%M}"
        return f"{self.standing()} · {soon}"

    def close(self) -> None:
        """Let go of everything; runs go on."""
        self._alarm.close()
        self._watch.close()
        self._journal.shut()
        os.close(self._lock)


def _once(at: int) -> After:
    def after(moment: datetime) -> datetime | None:
        when = datetime.fromtimestamp(at, moment.tzinfo)
        return when if when > moment else None

    return after
