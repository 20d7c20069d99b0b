"""The guardian: keeper of the candidate, and the one who restores when the run cannot.

It is a process of its own, in a session of its own, armed before anything is stopped. It is the
candidate's parent, so that whatever the candidate leaves behind becomes its child; and it watches
the run through a pidfd. It needs no installed package.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import FrameType
from typing import Any

from preflight import proc
from preflight.proc import Ident
from runner.recovery import recipe, state, wire, world
from runner.recovery.notify import notify
from runner.recovery.recover import Recovered, recover
from runner.recovery.unit import UnitClock
from runner.until import Clock, TimedOut, rest, until

CLEAR_S = 20.0
TICK_S = 1.0
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
        self._state_dir, self._run, self._clock = state_dir, run, clock
        self._ends_at = owed.ends_at
        self._who = Ident.from_json(known.get("who"))
        self._pidfd = world.open_pidfd(self._who) if self._who else None
        self._candidate: Ident | None = None
        self._exits: dict[int, int] = {}
        self._released = False
        world.become_subreaper()
        self._home = world.make_cgroup(f"runner-{run}")
        self._listener = wire.listen(state_dir / "runs" / run)
        self._lines: wire.Lines | None = None

    # What the run may ask

    def _answer(self, asked: Json) -> Json:
        answers = {
            "hello": self._hello,
            "spawn": self._spawn,
            "look": self._look,
            "term": self._term,
            "kill": self._kill,
            "lease": self._lease,
            "release": self._release,
        }
        answer = answers.get(str(asked.get("do")))
        if answer is None:
            return {"ok": False, "why": f"a guardian knows no {asked.get('do')!r}"}
        return answer(asked)

    def _hello(self, _: Json) -> Json:
        who = proc.ident(os.getpid())
        home = str(self._home) if self._home else None
        return {"ok": True, "who": who.to_json() if who else None, "cgroup": home}

    def _term(self, _: Json) -> Json:
        who = self._candidate
        return {"ok": who is not None and world.send(who, signal.SIGTERM)}

    def _lease(self, asked: Json) -> Json:
        self._ends_at = asked.get("ends_at")
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
        self._candidate = proc.ident(child.pid)
        child.returncode = 0  # reaped by us, with everything else that becomes our child
        if self._candidate is None:
            self._exits |= world.reap()
            return {"ok": False, "why": f"it ended at once, exit code {self._exits.get(child.pid)}"}
        return {"ok": True, "who": self._candidate.to_json()}

    def _left(self) -> set[int]:
        """Every live process of the candidate: our descendants, its cgroup, its tag."""
        self._exits |= world.reap()
        members = proc.descendants(os.getpid()) | proc.tagged(self._run)
        if self._home is not None:
            members |= world.cgroup_members(self._home)
        return members - {os.getpid()}

    def _look(self, _: Json) -> Json:
        left = self._left()
        pid = self._candidate.pid if self._candidate else 0
        return {"ok": True, "left": sorted(left), "exit": self._exits.get(pid)}

    def _kill(self, _: Json | None = None) -> Json:
        if self._home is not None:
            world.kill_cgroup(self._home)
        world.send_all(self._left(), signal.SIGKILL)
        return {"ok": True}

    # The watch

    def guard(self) -> Recovered | None:
        """Watch until released (None), or until the run has died and production is back."""
        notify("READY=1", f"STATUS=guarding {self._run}")
        while not self._released:
            fds = [self._listener.fileno()]
            if self._lines is not None:
                fds.append(self._lines.connection.fileno())
            if self._pidfd is not None:
                fds.append(self._pidfd)
            news = self._clock.pause(TICK_S, fds)
            notify("WATCHDOG=1")
            if self._pidfd is None or self._pidfd in news:
                return self._take_over()
            if self._ends_at is not None and self._clock.now() >= self._ends_at:
                self._end_the_run()
            elif self._going_down():
                self._clear()  # hold nothing up: the boot restores
                break
            else:
                self._serve(news)
        self._tidy()
        return None

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

    def _end_the_run(self) -> None:
        """The run is past its lease: it hangs. Its pidfd tells when it is gone."""
        if self._who is not None:
            world.send(self._who, signal.SIGKILL)
        self._ends_at = None

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
        self._clear()
        self._tidy()
        while True:
            done = recover(self._state_dir, clock=self._clock, rounds=None)
            if done.state != "held":
                return done
            rest(TICK_S, clock=self._clock)

    def _tidy(self) -> None:
        if self._home is not None:
            world.remove_cgroup(self._home)
        self._listener.close()
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
