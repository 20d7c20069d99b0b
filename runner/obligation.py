"""Our debt of a serving production: from the recipe on disk to the service that answers again.

Opening it is four things in this order, each durable or acknowledged before the next: the recovery
file, the state, the guardian, and only then may anybody stop anything. It must not know jobs.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from preflight.linux import proc
from preflight.linux.proc import Ident
from runner.production import Found
from runner.recovery import account, recipe
from runner.recovery.attempt import Past, Residency, Served
from runner.recovery.keeper import Keeper, KeeperGone, summon
from runner.recovery.recipe import Owed
from runner.recovery.recover import end_leftovers
from runner.recovery.restore import Say, restore
from runner.recovery.state import StateFile
from runner.until import Clock

RESTORE_SLACK_S = 600.0

Json = dict[str, Any]


class NotArmed(Exception):
    """The way back could not be made safe, so nothing may be stopped."""


@dataclass
class Obligation:
    """One run's debt, its memory on disk, and the guardian that pays if we cannot."""

    state_dir: Path
    owed: Owed
    memory: StateFile
    keeper: Keeper
    clock: Clock
    restarted: list[str] = field(default_factory=list)

    @property
    def stopping(self) -> bool:
        """Whether anything was asked to stop: from then on production is owed."""
        return self.memory.said.get("phase") not in {"armed", None}

    def phase(self, name: str) -> None:
        """Note how far the run has come, so that a recovery can tell what was interrupted."""
        self.memory.note(phase=name)

    def lease(self, seconds: float) -> None:
        """From now on the run may take this long; then the guardian ends it and restores."""
        try:
            self.keeper.lease(self.clock.now() + seconds)
        except KeeperGone:
            self.rearm()

    def rearm(self) -> None:
        """A guardian that died is replaced; without one the run goes on to restore by itself."""
        try:
            self.keeper = summon(self.state_dir, self.owed.run, clock=self.clock)
        except (KeeperGone, OSError) as error:
            self.restarted.append(f"the guardian died and could not be replaced: {error}")
        else:
            self.memory.note(guardian=self.keeper.who.to_json())
            self.restarted.append("the guardian died and was replaced")

    def restore(
        self,
        *,
        last_good: dict[str, recipe.Recipe],
        stop: Callable[[], str | None],
        residency: Residency,
        say: Say,
    ) -> list[Served]:
        """Bring back what was stopped. Raises Stopped when the machine goes down."""
        patience = sum(one.patience for one in self.owed.stopped)
        self.phase("restoring")
        self.lease(4 * patience + RESTORE_SLACK_S)
        services: Json = dict(self.memory.said.get("services") or {})

        def note(name: str, who: Ident | None) -> None:
            services[name] = {
                **services.get(name, {}),
                "started": who.to_json() if who else None,
            }
            self.memory.note(services=services)

        return restore(
            self.owed.due(services),
            pasts={name: Past.from_json(said) for name, said in services.items()},
            last_good=last_good,
            clock=self.clock,
            stop=stop,
            residency=residency,
            note=note,
            say=say,
        )

    def stopped_at(self) -> dict[str, float]:
        """When each service was asked to stop, as CLOCK_BOOTTIME of this boot."""
        found = account.stops(self.memory.said, account.Scale.of(self.clock))
        return {name: at for name, at in found.items() if at is not None}

    def leftovers(self) -> list[str]:
        """End whatever still lives of the candidate, when the guardian no longer can."""
        return end_leftovers(self.owed, self.memory.said, self.clock)

    def close(self, served: Sequence[Served]) -> None:
        """Production serves: the debt is paid. Raises OSError when that cannot be written."""
        good = [one.recipe for one in served if one.recipe is not None and one.state == "serving"]
        recipe.close(self.state_dir, good)
        self.phase("closed")

    def release(self) -> tuple[int, ...]:
        """Let the guardian go, in order; the pids of candidates that keep it here."""
        try:
            return self.keeper.release()
        except KeeperGone:
            return ()


def open_obligation(
    state_dir: Path,
    found: Sequence[Found],
    *,
    run: str,
    job: str,
    since: str,
    lock_name: str,
    stops: Sequence[str],
    ends_at: float,
    tell: list[Json],
    timezone: str,
    trigger: str,
    clock: Clock,
) -> Obligation:
    """Write down what will be owed and arm the guardian; nothing is stopped yet. Raises NotArmed."""
    owed = Owed(
        run=run,
        job=job,
        boot=proc.boot_id(),
        since=since,
        lock_name=lock_name,
        services=[one.recipe for one in found],
        stops=list(stops),
        ends_at=ends_at,
        tell=tell,
        timezone=timezone,
        trigger=trigger,
    )
    me = proc.ident(os.getpid())
    try:
        memory = StateFile(state_dir)
        memory.begin(
            {
                "run": run,
                "phase": "armed",
                "who": me.to_json() if me else None,
                # for the day when the recovery file and its copy cannot be read
                "lock_name": lock_name,
                "job": job,
                "tell": tell,
                "timezone": timezone,
            }
        )
        recipe.write(state_dir, owed)
    except OSError as error:
        raise NotArmed(
            f"the way back cannot be written to {state_dir}: {error.strerror or error}"
        ) from error
    try:
        keeper = summon(state_dir, run, clock=clock)
        memory.write(
            guardian=keeper.who.to_json(), candidate={"who": None, "cgroup": keeper.cgroup}
        )
    except (KeeperGone, OSError) as error:
        recipe.close(state_dir, [])
        raise NotArmed(f"{error}") from error
    return Obligation(state_dir, owed, memory, keeper, clock)
