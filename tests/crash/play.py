"""Plays one case on a box: a run, blows, the guardian, the timer, and at last the look at what is left."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from preflight.linux import proc
from runner import logs
from runner.journal import JournalError
from runner.outcome import USAGE
from runner.recovery.command import main as recovery_verb
from runner.run import run
from runner.stopping import StopFlag
from runner.until import RealClock, TimedOut, rest
from tests.crash import acts, check, power, strace, trap
from tests.crash.box import JOB, Box
from tests.crash.cases import Blow, Case, Played

RUN_WITHIN = 45.0
GUARDIAN_WITHIN = 45.0
ROUNDS = 4
UNGUARDED_ROUNDS = 15
LATE = 297.0
"""By how much the clock of a run is late that is going to hang, so that its lease ends soon."""


class Behind(RealClock):
    """A clock that is late: to the guardian the run's lease ends so much earlier."""

    def now(self) -> float:
        """Seconds of CLOCK_BOOTTIME, less what it is late."""
        return super().now() - LATE


class Play:
    """One case on one box."""

    def __init__(self, box: Box, case: Case) -> None:
        self.box, self.case = box, case
        self.played = Played(case)
        self._step, self._followed, self._before = "", 0.0, set[int]()

    def whole(self) -> Played:
        """From a serving production to the verdict on what is left."""
        began = time.monotonic()
        try:
            self._play()
        except TimedOut as error:
            self.played.violations.append(f"hung: {error} while {self._step}")
        except Exception as error:  # noqa: BLE001 - a fault of the suite must be seen as one
            lines = traceback.format_exception(error)
            self.played.violations.append(f"the suite failed while {self._step}: {''.join(lines)}")
        finally:
            acts.undo_all(self.box)
        self.played.seconds = time.monotonic() - began
        return self.played

    def _play(self) -> None:
        box, case = self.box, self.case
        self._step = "setting up"
        if case.cut:
            self._power_cut()
            return
        box.shape_for(case)
        settings = box.write()
        box.fresh()
        self._before = box.start()
        self._step = "running"
        runs = self._start_runs(settings)
        self._follow(runs)
        self._step = "waiting for the guardian"
        timers = [start_recover(box) for _ in range(int(case.timers or 0))]
        word, began = acts.expects(case).told, time.monotonic()
        told_down = bool(word) and self._wait_until_told(word)
        took = time.monotonic() - began + self._followed
        if acts.expects(case).back_first and not self._is_back():
            self.played.violations.append("P1 production did not come back")
        if case.then and not self._wait_until_told(acts.expects(case).tells):
            self.played.violations.append("P5 nobody was told while nothing could be written down")
        acts.undo(box, case)
        self._wait_for_guardians()
        self._step = "recovering"
        for pid in timers:
            box.wait(pid, RUN_WITHIN)
        self._recover()
        self._step = "checking"
        facts = check.Facts(
            box,
            case,
            before=self._before,
            codes=[box.wait(pid, 5) for pid in runs],
            told_down=told_down,
            told_after=took,
        )
        self.played.violations += check.violations(facts)
        self.played.kills = facts.kills
        self.played.reaction, self.played.guarded = facts.reaction, facts.guarded
        self.played.outcome = facts.outcome
        self.played.missed = facts.missed

    def _power_cut(self) -> None:
        """The disk as it may be found, on a box that boots: what is owed comes back, nothing else."""
        box = self.box
        box.shape_for(self.case)
        box.fresh()
        self.played.violations += power.cut(box, self.case.cut)
        box.fresh_ledger()
        if not power.stop_asked(box.state):
            box.mark("ended by others")  # what the power took is not ours to start
        self._step = "recovering"
        self._recover()
        self._step = "checking"
        facts = check.Facts(box, self.case, before=set(), codes=[], told_down=False)
        self.played.violations += check.violations(facts)
        self.played.kills = 1
        self.played.outcome = facts.outcome

    # -- the run -----------------------------------------------------------------------------

    def _start_runs(self, settings: Any) -> list[int]:
        clock = Behind() if self.case.layer == "frozen" else None
        blow, guardian = self.case.blow("run"), self.case.blow("guardian")
        given = None
        if guardian is not None:
            given = spec(guardian, self.box)
        count = int(self.case.crowd or 1)
        return [
            start_run(
                self.box,
                settings,
                blow=blow,  # whoever comes to the place first
                guardian=given,
                clock=clock,
                inject=self.case.inject,
                env=self.case.env,
            )
            for _ in range(count)
        ]

    def _follow(self, runs: list[int]) -> None:
        """Until every run has ended; what the case does to the box is done when the first stands still."""
        waiting = bool(self.case.act) and self.case.blow("run") is not None
        guarded, began = acts.expects(self.case).guarded, time.monotonic()

        def over() -> bool | None:
            nonlocal waiting, began
            if waiting:
                found = proc.stat(runs[0])
                if found is not None and found.state == "T":
                    waiting, began = False, time.monotonic()
                    acts.act(self.box, self.case)
                    if self.case.then:
                        self.box.mark("then", who="run", blow=self.case.then)
                        os.kill(runs[0], signal.Signals[f"SIG{self.case.then}"])
                    if acts.goes_on(self.case):
                        os.kill(runs[0], signal.SIGCONT)
            if not waiting and not guarded:
                return True
            return True if all(pid in self.box.exits for pid in runs) else None

        self.box.soon(over, within=RUN_WITHIN, every=0.05)
        self._followed = time.monotonic() - began

    # -- afterwards --------------------------------------------------------------------------

    def _wait_until_told(self, word: str) -> bool:
        def told() -> bool | None:
            return True if word in self.box.told_text() else None

        try:
            return self.box.soon(told, within=25, every=0.1)
        except TimedOut:
            return False

    def _is_back(self) -> bool:
        try:
            self.box.soon(self.box.all_serving, within=25, every=0.1)
        except TimedOut:
            return False
        return True

    def _wait_for_guardians(self) -> None:
        """A guardian whose run has died restores, however long that takes here."""

        def gone() -> bool | None:
            return None if self.box.guardians() else True

        self.box.soon(gone, within=GUARDIAN_WITHIN, every=0.1)

    def _recover(self) -> None:
        """The timer, until nothing is owed; then once more, which must change nothing."""
        blow = self.case.blow("recover") or self.case.blow("guardian")
        patient = not acts.expects(self.case).guarded
        for _ in range(UNGUARDED_ROUNDS if patient else ROUNDS):
            pid = start_recover(self.box, blow=blow)
            code = self.box.wait(pid, RUN_WITHIN)
            blow = None
            if code == 0 and not (self.box.state / "recovery.json").exists():
                break
            if patient:  # the timer comes again; a lease may end meanwhile
                rest(1.0, clock=RealClock())
        self.box.mark("again")
        self.box.wait(start_recover(self.box), RUN_WITHIN)


def spec(blow: Blow, box: Box) -> dict[str, Any]:
    """A trap as a guardian finds it in its environment."""
    return {"at": blow.at, "blow": blow.what, "who": blow.who, "ledger": str(box.ledger)}


def fork(act: Callable[[], int], log: Path) -> int:
    """Run `act` in a process of its own, in a session of its own; its pid."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setsid()
        fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(fd, 1)
        os.dup2(fd, 2)
        code = act()
    except BaseException:  # noqa: BLE001 - a fork must never return into its parent's code
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def start_run(
    box: Box,
    settings: Any,
    *,
    blow: Blow | None = None,
    guardian: dict[str, Any] | None = None,
    clock: Any = None,
    into: Path | None = None,
    inject: str = "",
    env: str = "",
    marks: Path | None = None,
    calls: Path | None = None,
) -> int:
    """The real run, in a process of its own. With `into` its places are recorded there, with
    `calls` its system calls, and in `marks` what it takes for durable.
    """
    gate = os.pipe()

    def act() -> int:
        os.close(gate[1])
        os.read(gate[0], 1)  # until whoever wants to watch has come
        os.close(gate[0])
        if guardian is not None:
            os.environ[trap.VARIABLE] = json.dumps(guardian)
        _mislead(env)
        logs.configure(level="info")
        sys.executable = str(box.shim)
        stop = StopFlag()
        stop.install()
        with trap.watching(blow, "run", box.ledger, into, marks):
            try:
                return int(run(JOB, settings, clock=clock, stop=stop)["exit_code"])
            except (JournalError, OSError):
                traceback.print_exc()
                return USAGE  # as on the command line: it could not begin, and touched nothing

    pid = fork(act, box.room / "run.log")
    os.close(gate[0])
    try:
        if inject:
            strace.inject(box, pid, inject)
        if calls:
            strace.record(box, pid, calls)
    finally:
        os.close(gate[1])
    return pid


def _mislead(env: str) -> None:
    """A proxy that takes everything and answers nothing of ours; a log that cannot be written."""
    if env == "proxy":
        nowhere = "http://127.0.0.1:9"
        os.environ.update(dict.fromkeys(("HTTP_PROXY", "http_proxy", "ALL_PROXY"), nowhere))
    elif env == "full-log":
        os.dup2(os.open("/dev/full", os.O_WRONLY), 2)


def start_recover(box: Box, *, blow: Blow | None = None, into: Path | None = None) -> int:
    """`runner recover`, as the timer starts it."""

    def act() -> int:
        with trap.watching(blow, "recover", box.ledger, into):
            return recovery_verb("recover", ["--state-dir", str(box.state), "--json"])

    return fork(act, box.room / "recover.log")
