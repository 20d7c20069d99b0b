"""The run's side of its guardian: summon it, and have it keep the candidate."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from preflight.linux import proc
from preflight.linux.proc import Ident
from runner import credentials
from runner.recovery import unit, wire, world
from runner.until import Clock, Hopeless, TimedOut, until
from runner.words import last_line

READY_WITHIN_S = 15.0
ANSWER_WITHIN_S = 10.0

Json = dict[str, Any]


class KeeperGone(Exception):
    """The guardian has died, or does not answer."""


@dataclass(frozen=True, slots=True)
class Kept:
    """How the candidate stands: its live pids, and its exit code once it has one."""

    left: tuple[int, ...]
    exit: int | None


class Keeper:
    """A guardian that has acknowledged."""

    def __init__(self, lines: wire.Lines, who: Ident, cgroup: str | None) -> None:
        self._lines, self.who, self.cgroup = lines, who, cgroup

    def _ask(self, **asked: object) -> Json:
        try:
            self._lines.send(asked)
            said = self._lines.receive()
        except (OSError, ValueError) as error:
            self._lines.close()  # an answer that comes late must not be taken for the next one
            if not self.alive:
                raise self._gone() from error
            raise KeeperGone(
                f"the guardian (pid {self.who.pid}) does not answer: {error}"
            ) from error
        if said is None:
            self._lines.close()
            raise self._gone()
        return said

    def _gone(self) -> KeeperGone:
        return KeeperGone(f"the guardian (pid {self.who.pid}) is gone")

    def spawn(
        self, argv: Sequence[str], *, environment: Mapping[str, str], cwd: str | None, log: Path
    ) -> Ident | str:
        """Start the candidate; who it is, or why it did not start. Raises KeeperGone."""
        said = self._ask(do="spawn", argv=list(argv), env=dict(environment), cwd=cwd, log=str(log))
        who = Ident.from_json(said.get("who")) if said.get("ok") else None
        return who if who is not None else str(said.get("why") or "it did not start")

    def look(self) -> Kept:
        """What lives of the candidate. Raises KeeperGone."""
        said = self._ask(do="look")
        return Kept(tuple(said.get("left") or ()), said.get("exit"))

    def exit(self) -> int | None:
        """The candidate's exit code once it has one, without a look at what else lives of it.

        Raises KeeperGone.
        """
        said = self._ask(do="exit").get("exit")
        return said if isinstance(said, int) else None

    def term(self) -> None:
        """Ask the candidate to end. Raises KeeperGone."""
        self._ask(do="term")

    def kill(self) -> None:
        """Kill all of the candidate. Raises KeeperGone."""
        self._ask(do="kill")

    def lease(self, ends_at: float | None) -> None:
        """Be ended when CLOCK_BOOTTIME passes this. Raises KeeperGone."""
        self._ask(do="lease", ends_at=ends_at)

    def release(self) -> tuple[int, ...]:
        """Hand over in order: the guardian leaves, unless candidates live. Raises KeeperGone."""
        said = self._ask(do="release")
        left = tuple(said.get("left") or ())
        if not left:
            self.close()
        return left

    def close(self) -> None:
        """Ask nothing more. The guardian goes on guarding, unless it was released."""
        self._lines.close()

    @property
    def alive(self) -> bool:
        """Whether the guardian lives."""
        return proc.alive(self.who)


def summon(state_dir: Path, run: str, *, clock: Clock) -> Keeper:
    """Start the guardian of a run and wait for its acknowledgement. Raises KeeperGone.

    The obligation and the state must be on disk already: it refuses to guard nothing. A run that
    is a unit of systemd's has its guardian be one too: a child would die with the run.
    """
    name = unit.guardian_of(run)
    if unit.in_a_run() and unit.loaded(name):
        return _summon_unit(state_dir, run, name, clock)
    return _summon_child(state_dir, run, clock)


def _summon_unit(state_dir: Path, run: str, name: str, clock: Clock) -> Keeper:
    """Its start is its acknowledgement: systemd waits until it says that it is ready."""
    try:
        unit.start(name)
    except unit.Refused as error:
        raise KeeperGone(f"{name} did not start: {error}") from error
    try:
        return until(
            lambda: _answering(state_dir / "runs" / run), within=ANSWER_WITHIN_S, clock=clock
        )
    except TimedOut as error:
        raise KeeperGone(f"{name} has started and does not answer") from error


def _summon_child(state_dir: Path, run: str, clock: Clock) -> Keeper:
    """A process in a session of its own, which outlives the run."""
    directory = state_dir / "runs" / run
    child = world.spawn(
        [
            sys.executable,
            "-I",
            "-m",
            "runner.recovery",
            "guardian",
            "--state-dir",
            str(state_dir),
            run,
        ],
        environment=world.scrubbed(os.environ) | _secrets(),
        cwd="/",
        log=directory / "guardian.log",
    )

    def died() -> str | None:
        if child.poll() is None:
            return None
        log = directory / "guardian.log"
        why = last_line(log.read_text(encoding="utf-8", errors="replace"))
        return f"it ended with exit code {child.returncode}: {why or 'it said nothing'} ({log})"

    try:
        return until(
            lambda: _answering(directory),
            within=READY_WITHIN_S,
            clock=clock,
            every=0.005,
            hopeless=died,
        )
    except (TimedOut, Hopeless, OSError) as error:
        child.kill()
        child.wait()
        raise KeeperGone(f"the guardian did not acknowledge: {error}") from error
    finally:
        child.returncode = child.returncode or 0  # nobody here waits for it: it outlives the run


def _secrets() -> dict[str, str]:
    """Where the credentials lie: the guardian may have to tell a person too."""
    room = os.environ.get(credentials.VARIABLE)
    return {credentials.VARIABLE: room} if room else {}


def _answering(directory: Path) -> Keeper | None:
    """The guardian that listens in a run's directory, once it says who it is."""
    try:
        lines = wire.Lines(wire.connect(directory, ANSWER_WITHIN_S))
    except OSError:
        return None
    try:
        lines.send({"do": "hello"})
        said = lines.receive() or {}
    except (OSError, ValueError):
        said = {}
    who = Ident.from_json(said.get("who"))
    if who is None:
        lines.close()
        return None
    return Keeper(lines, who, said.get("cgroup"))
