"""The guardian: keeper of the candidate, and the one who restores when the run cannot.

It is a process of its own, in a session of its own, armed before anything is stopped. It is the
candidate's parent, so that whatever the candidate leaves behind becomes its child; and it watches
the run through a pidfd. It needs no installed package.
"""

from __future__ import annotations

import contextlib
import os
import signal
import traceback
from pathlib import Path
from types import FrameType
from typing import Any

from alerts.message import Alert
from preflight.linux import proc
from preflight.linux.proc import Ident
from runner.recovery import cgroups, recipe, state, tell, wire, words, world
from runner.recovery.account import Scale
from runner.recovery.notify import notify
from runner.recovery.recover import Recovered, recover
from runner.recovery.stop import describe
from runner.recovery.unit import UnitClock
from runner.until import Clock, TimedOut, rest, until

CLEAR_S = 20.0
TICK_S = 1.0
STOPPED_S = 5.0
"""A run that somebody has stopped (SIGSTOP) for this long while it should restore is ended."""
STOPPED_TOLD_S = 60.0
"""Before that it may go on until its lease ends, which can be long: so long, and a person is told."""
HELD_TOLD_S = 60.0
UNKILLABLE_TOLD_S = 30.0
LONGEST_BACK_OFF_S = 60.0
CANDIDATE_OOM = 300
"""The candidate offers itself to the OOM killer before production and before the runner."""

Json = dict[str, Any]


class Guardian:
    """One guardian of one run."""

    def __init__(self, state_dir: Path, run: str, *, clock: Clock) -> None:
        """Arm: subreaper, cgroup, socket, pidfd. Raises OSError or ValueError."""
        owed = recipe.read(state_dir)
        known = state.read(state_dir)
        if owed is None or owed.run != run or known.get("run") != run:
            raise ValueError(f"nothing is recorded for run {run}; a guardian has nothing to guard")
        self._state_dir, self._run, self._clock, self._owed = state_dir, run, clock, owed
        self._ends_at = owed.ends_at
        self._killed_at: float | None = None
        self._stopped_since: float | None = None
        self._who = Ident.from_json(known.get("who"))
        self._pidfd = world.open_pidfd(self._who) if self._who else None
        self._candidate: Ident | None = None
        self._exits: dict[int, int] = {}
        self._released = False
        self._apart = tell.Apart()
        world.become_subreaper()
        self._home = cgroups.make(run)
        self._listener = wire.listen(state_dir / "runs" / run)
        self._lines: wire.Lines | None = None

    # What the run may ask

    def _answer(self, asked: Json) -> Json:
        answers = {
            "hello": self._hello,
            "spawn": self._spawn,
            "look": self._look,
            "exit": self._exit,
            "term": self._term,
            "kill": self._kill,
            "lease": self._lease,
            "release": self._release,
        }
        answer = answers.get(str(asked.get("do")))
        if answer is None:
            return {"ok": False, "why": f"a guardian knows no {asked.get('do')!r}"}
        try:
            return answer(asked)
        except Exception as error:  # noqa: BLE001 - nothing that is asked may end the guardian
            return {"ok": False, "why": f"{type(error).__name__}: {error}"}

    def _hello(self, _: Json) -> Json:
        who = proc.ident(os.getpid())
        home = str(self._home) if self._home else None
        return {"ok": True, "who": who.to_json() if who else None, "cgroup": home}

    def _term(self, _: Json) -> Json:
        who = self._candidate
        return {"ok": who is not None and world.send(who, signal.SIGTERM)}

    def _lease(self, asked: Json) -> Json:
        ends_at = asked.get("ends_at")
        self._ends_at = float(ends_at) if ends_at is not None else None
        return {"ok": True}

    def _release(self, _: Json) -> Json:
        left = self._left()
        self._released = not left
        return {"ok": not left, "left": sorted(left)}

    def _spawn(self, asked: Json) -> Json:
        try:
            child = world.spawn(
                asked["argv"],
                environment=asked["env"],
                cwd=asked.get("cwd"),
                log=Path(asked["log"]),
                prepare=world.bound_to_parent(self._home, CANDIDATE_OOM),
            )
        except OSError as error:
            return {
                "ok": False,
                "why": f"{error.strerror or error}: {error.filename or asked['argv'][0]}",
            }
        except Exception as error:  # noqa: BLE001 - subprocess reports a failed preparation this way
            return {"ok": False, "why": str(error)}
        child.returncode = 0  # reaped by us, with everything else that becomes our child
        # it may have ended already: not reaped yet, it is still there to be named
        found = proc.stat(child.pid)
        if found is None:
            return {"ok": False, "why": "it has vanished"}
        self._candidate = Ident(proc.boot_id(), child.pid, found.start)
        return {"ok": True, "who": self._candidate.to_json()}

    def _left(self) -> set[int]:
        """Every live process of the candidate: our descendants, its cgroup, its tag."""
        self._exits |= world.reap()
        members = proc.descendants(os.getpid()) | proc.tagged(self._run)
        if self._home is not None:
            members |= cgroups.members(self._home)
        return members - {os.getpid()}

    def _look(self, _: Json) -> Json:
        left = self._left()
        return {"ok": True, "left": sorted(left), "exit": self._exits.get(self._first())}

    def _exit(self, _: Json) -> Json:
        self._exits |= world.reap()
        return {"ok": True, "exit": self._exits.get(self._first())}

    def _first(self) -> int:
        return self._candidate.pid if self._candidate else 0

    def _kill(self, _: Json | None = None) -> Json:
        if self._home is not None:
            cgroups.kill(self._home)
        world.send_all(world.identified(self._left), signal.SIGKILL)
        return {"ok": True}

    # The watch

    def guard(self) -> Recovered | None:
        """Watch until released (None), or until the run has died and production is back."""
        notify("READY=1", f"STATUS=guarding {self._run}")
        while not self._released:
            news = self._clock.pause(TICK_S, self._sources())
            notify("WATCHDOG=1")
            if self._pidfd is None or self._pidfd in news:
                return self._take_over()
            if self._run_hangs():
                self._end_the_run()
            elif self._going_down():
                self._clear()  # hold nothing up: the boot restores
                break
            self._serve(news)
        self._tidy()
        return None

    def _sources(self) -> list[int]:
        fds = [self._listener.fileno()]
        if self._lines is not None:
            fds.append(self._lines.connection.fileno())
        if self._pidfd is not None:
            fds.append(self._pidfd)
        return fds

    def _serve(self, news: set[int]) -> None:
        if self._listener.fileno() in news:
            self._accept()
        elif self._lines is not None and self._lines.connection.fileno() in news:
            try:
                asked = self._lines.receive()
                if asked is not None:
                    self._lines.send(self._answer(asked))
                    return
            except (OSError, ValueError):
                pass
            self._lines.close()
            self._lines = None

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        if self._lines is not None:
            self._lines.close()
        connection.settimeout(TICK_S)
        self._lines = wire.Lines(connection)

    def _run_hangs(self) -> bool:
        """Past its lease, however it spends its time; or stopped by somebody while it restores."""
        now = self._clock.now()
        if self._ends_at is not None and now >= self._ends_at:
            return True
        if self._who is None or not world.is_stopped(self._who):
            self._stopped_since = None
            return False
        self._stopped_since = self._stopped_since or now
        stopped = now - self._stopped_since
        if stopped >= STOPPED_TOLD_S:
            left = self._ends_at - now if self._ends_at is not None else None
            self._say(words.stopped(self._owed, describe(self._who.pid), left, self._scale()))
        if stopped < STOPPED_S:
            return False
        return self._ends_at is None or state.read(self._state_dir).get("phase") == "restoring"

    def _end_the_run(self) -> None:
        """Its pidfd tells when it is gone. One that hangs in the kernel keeps the box: say so."""
        now = self._clock.now()
        if self._who is not None:
            world.send(self._who, signal.SIGKILL)
        if self._killed_at is None:
            self._killed_at = now
        elif now - self._killed_at >= UNKILLABLE_TOLD_S:
            who = describe(self._who.pid) if self._who else "an unknown pid"
            self._say(words.unkillable(self._owed, who, self._scale()))

    def _scale(self) -> Scale:
        return Scale.of(self._clock, self._owed.timezone)

    def _say(self, alert: Alert) -> None:
        self._apart.do(lambda: tell.post(self._state_dir, self._owed, alert, clock=self._clock))

    def _going_down(self) -> bool:
        return bool(_SIGNALS) and world.shutting_down()

    def _clear(self) -> None:
        """End the candidate, all of it, before production may come back."""

        def cleared() -> bool | None:
            if not self._left():
                return True
            self._kill()
            return None

        try:
            until(cleared, within=CLEAR_S, clock=self._clock, every=0.02)
        except TimedOut:
            return  # unkillable: recovery tells, and production needs the box all the same

    def _take_over(self) -> Recovered:
        """The run is dead: its candidate goes, production comes, however long that takes."""
        began, failures = self._clock.now(), 0
        notify("WATCHDOG_USEC=120000000", f"STATUS=restoring what {self._run} owes")
        self._clear()
        self._tidy()
        while True:
            notify("WATCHDOG=1")
            try:
                done = recover(
                    self._state_dir, clock=self._clock, rounds=None, remembered=self._owed
                )
            except Exception:  # noqa: BLE001 - whatever it is, production is still owed
                traceback.print_exc()
                failures += 1
                rest(min(2.0**failures, LONGEST_BACK_OFF_S), clock=self._clock)
                continue
            if done.state != "held":
                self._apart.finish()
                return done
            if self._clock.now() - began >= HELD_TOLD_S:
                self._say(words.held(self._owed, done.said, self._scale()))
            rest(TICK_S, clock=self._clock)

    def _tidy(self) -> None:
        """Take away what was made for the run; a disk that refuses keeps nobody from the restore."""
        if self._home is not None:
            cgroups.remove(self._home)
        self._listener.close()
        with contextlib.suppress(OSError):
            (self._state_dir / "runs" / self._run / wire.NAME).unlink(missing_ok=True)


_SIGNALS: list[int] = []


def _noted(number: int, _: FrameType | None) -> None:
    _SIGNALS.append(number)


def guard(state_dir: Path, run: str) -> Recovered | None:
    """Be the guardian of a run until it releases us. Raises OSError or ValueError.

    TERM, INT and HUP end nothing here: a terminal that closes or a signal to the group must not
    take away the one who restores. Only a machine that is going down is left alone.
    """
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _noted)
    return Guardian(state_dir, run, clock=UnitClock(lambda: _SIGNALS)).guard()
