"""Acts as a run: takes the locks, arms a guardian, stops production, brings up a candidate.

It does the steps of its plan in the order of a real run, says each that is done, and waits for the
next line on its standard input; so a test can kill or stop it at any of them. It uses what a real
run uses of the recovery, and nothing else.
"""

import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

from preflight.linux import proc
from runner.recovery import keeper, lock, recipe, state
from runner.recovery.drivers import driver
from runner.recovery.recipe import Owed
from runner.recovery.stop import Stop
from runner.until import RealClock

CLOCK = RealClock()


def say(word: str, *more: object) -> None:
    """Tell the test how far we are."""
    sys.stdout.write(" ".join([word, *map(str, more)]) + "\n")
    sys.stdout.flush()


class Acting:
    """One run of a plan."""

    def __init__(self, state_dir: Path, plan: dict[str, Any]) -> None:
        self.state_dir, self.plan = state_dir, plan
        self.owed = Owed.from_json(plan["owed"])
        self.memory = state.StateFile(state_dir)
        self.keeper: keeper.Keeper | None = None

    def armed(self) -> None:
        """The debt on disk, and the guardian that has acknowledged."""
        me = proc.ident(os.getpid())
        self.memory.begin(
            {
                "run": self.owed.run,
                "phase": "armed",
                "lock_name": self.owed.lock_name,
                "who": me and me.to_json(),
            }
        )
        recipe.write(self.state_dir, self.owed)
        if self.plan.get("guardian", True):
            self.keeper = keeper.summon(self.state_dir, self.owed.run, clock=CLOCK)
            self.memory.write(
                guardian=self.keeper.who.to_json(),
                candidate={"who": None, "cgroup": self.keeper.cgroup},
            )
            say("guardian", self.keeper.who.pid)

    def noted(self) -> None:
        """The stop as it is written down before it is asked for."""
        services = {}
        for one in self.owed.stopped:
            drive = driver(one)
            family = Stop(one, drive, CLOCK).family
            services[one.name] = {
                "stop_asked": True,
                "stopped": time.time(),
                "token": drive.standing().token,
                "family": [who.to_json() for who in family],
            }
        self.memory.write(phase="stopping", services=services)

    def asked(self) -> None:
        """The stop is asked for, and not waited for."""
        for one in self.owed.stopped:
            driver(one).stop()

    def stopped(self) -> None:
        """The stop with all its proofs."""
        for one in self.owed.stopped:
            halt = Stop(one, driver(one), CLOCK).run()
            say("halt", json.dumps([halt.finding, *halt.notes]))

    def candidate(self) -> None:
        """The candidate, started by the guardian."""
        assert self.keeper is not None
        who = self.keeper.spawn(
            self.plan["candidate"],
            environment=dict(os.environ) | {proc.TAG: self.owed.run},
            cwd="/",
            log=self.state_dir / "runs" / self.owed.run / "candidate.log",
        )
        assert isinstance(who, proc.Ident), who
        self.memory.note(
            phase="candidate", candidate={"who": who.to_json(), "cgroup": self.keeper.cgroup}
        )
        say("spawned", who.pid)

    def restoring(self) -> None:
        """Production comes back, and this run does it."""
        self.memory.note(phase="restoring")

    def leased(self) -> None:
        """The lease is over in a moment."""
        assert self.keeper is not None
        self.keeper.lease(CLOCK.now() + float(self.plan["lease"]))

    def closed(self) -> None:
        """The debt is paid."""
        recipe.close(self.state_dir, [])
        self.memory.note(phase="closed")

    def released(self) -> None:
        """The guardian may go."""
        assert self.keeper is not None
        say("left", *self.keeper.release())


def main() -> None:
    """Do the plan, a step a line."""
    acting = Acting(Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text()))
    owed, plan = acting.owed, acting.plan
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with contextlib.ExitStack() as held:
        if plan.get("lock", True):
            held.enter_context(
                lock.hold(acting.state_dir, run=owed.run, since="", name=owed.lock_name)
            )
        for step in plan["steps"]:
            getattr(acting, step)()
            say(step)
        sys.stdin.readline()


main()
