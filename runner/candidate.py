"""What a job brings up: started under the keeper, watched while it loads, ended with proof.

It must not know claims or production. A candidate that is up has shown it four ways: a process of
ours owns the socket, its health, its model and context as asked, and a counted completion.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.servers.base import Command
from preflight.linux import proc
from preflight.linux.proc import Ident
from runner.recovery import probe, world
from runner.recovery.drivers.process import SERVICE
from runner.recovery.keeper import Keeper, KeeperGone, Kept
from runner.recovery.probe import Look
from runner.recovery.progress import LogWatch, Progress
from runner.secrets import holds
from runner.until import Clock, Hopeless, Stopped, TimedOut, until

POLL_S = 0.015
FIRST_TERM_S = 10.0
SECOND_TERM_S = 5.0
KILL_S = 10.0
NO_PROGRESS_S = 300.0
_HEAD_OF_LOG = 4 << 20

Nothing = Callable[[], str | None]


class CandidateFailed(Exception):
    """The candidate could not run; the reason is the first decisive line it wrote."""


def usual(environment: Mapping[str, str]) -> dict[str, str]:
    """What a candidate inherits from whoever runs us: no secret of ours, and nothing that would
    configure its server unseen.
    """
    return {
        name: value
        for name, value in world.scrubbed(environment).items()
        if not name.startswith("LLAMA_ARG_") and not holds(f"{name}={value}")
    }


@dataclass(frozen=True, slots=True)
class Ended:
    """How a candidate ended: its exit code where it has one, and what a person should know."""

    exit: int | None
    took: float
    notes: tuple[str, ...] = ()
    left: tuple[int, ...] = ()


class Candidate:
    """One candidate of one run, kept by the guardian."""

    def __init__(
        self,
        command: Command,
        *,
        run: str,
        keeper: Keeper,
        clock: Clock,
        log: Path,
        fatal: Sequence[str] = (),
        secrets: Mapping[str, str] | None = None,
    ) -> None:
        """`fatal` are patterns of log lines after which waiting is pointless."""
        self._command, self._run, self._keeper, self._clock = command, run, keeper, clock
        self._log, self._lines = log, LogWatch(log, fatal)
        self._secrets = dict(secrets or {})
        self._pidfd: int | None = None
        self._progress = Progress(clock)
        self._next_look = 0.0
        self.who: Ident | None = None

    def start(self) -> None:
        """Have the keeper start it, tagged with the run. Raises CandidateFailed, KeeperGone."""
        environment = usual(os.environ) | dict(self._command.env) | self._secrets
        environment.pop(SERVICE, None)  # production's own, where the command is made from its
        started = self._keeper.spawn(
            self._command.argv,
            environment=environment | {proc.TAG: self._run},
            cwd=self._command.cwd,
            log=self._log,
        )
        if isinstance(started, str):
            raise CandidateFailed(f"{self._command.argv[0]} did not start: {started}")
        self.who = started
        self._pidfd = world.open_pidfd(started)

    @property
    def wake(self) -> list[int]:
        """Descriptors with news when it ends."""
        return [self._pidfd] if self._pidfd is not None else []

    def log_text(self) -> str:
        """Its log so far, at most the first 4 MiB: what went wrong first stands there."""
        try:
            with self._log.open("rb") as file:
                return file.read(_HEAD_OF_LOG).decode("utf-8", "replace")
        except OSError:
            return ""

    def died(self) -> str | None:
        """Why it is over, or None while it lives. The first fatal line tells; the last may not."""
        if self.who is not None and proc.alive(self.who):
            return None
        try:
            code = self._keeper.exit()
        except KeeperGone as gone:
            return str(gone)
        said = self._lines.end() or self._lines.last_line
        how = f"exit code {code}" if code is None or code >= 0 else f"signal {-code}"
        return f"ended ({how})" + (f": {said}" if said else "")

    def hopeless(self) -> str | None:
        """Why it will never be ready: it died, wrote a fatal line, or nothing moves any more."""
        if reason := self.died():
            return reason
        if self._clock.now() < self._next_look:
            return None
        self._next_look = self._clock.now() + 0.2
        if fatal := self._lines.look():
            return fatal
        size = self._log.stat().st_size if self._log.exists() else 0
        pids = {self.who.pid} if self.who else set()
        stalled = self._progress.stalled(pids, size)
        return f"nothing moved for {stalled:.0f} s" if stalled > NO_PROGRESS_S else None

    def owns(self, port: int) -> bool:
        """Whether a process of this candidate listens there: an answer alone may be a stranger's."""
        if self.who is not None and proc.owners(port, among=[self.who.pid]):
            return True  # as nearly always; who else there is takes a look at every process
        return bool(proc.owners(port, among=self._keeper.look().left))

    def ready(
        self, asked: Mapping[str, Any], port: int, *, within: float, stop: Nothing, watch: Nothing
    ) -> Look:
        """Wait until it serves as asked; the identity it gave. Raises CandidateFailed, Stopped."""

        def serves() -> Look | None:
            if not probe.health(asked, within=2).serving or not self.owns(port):
                return None
            look = probe.serving(asked)
            if look.state in {"wrong", "locked"}:
                raise CandidateFailed(f"it answers, but {look.why}")
            return look if look.serving else None

        try:
            return until(
                serves,
                within=within,
                clock=self._clock,
                every=POLL_S,
                hopeless=lambda: self.hopeless() or watch(),
                stop=stop,
                wake=self.wake,
            )
        except Hopeless as error:
            raise CandidateFailed(error.reason) from error
        except TimedOut as error:
            look = probe.serving(asked, within=5)
            raise CandidateFailed(
                f"not ready within {within:g} s: {look.why or look.state}"
            ) from error

    def finished(self, *, within: float, stop: Nothing, watch: Nothing) -> int:
        """Wait until a task ends by itself; its exit code. Raises CandidateFailed, Stopped."""

        def over() -> int | None:
            if self.who is not None and proc.alive(self.who):
                return None
            return self._keeper.exit()

        try:
            return until(
                over,
                within=within,
                clock=self._clock,
                every=0.2,
                hopeless=watch,
                stop=stop,
                wake=self.wake,
            )
        except Hopeless as error:
            raise CandidateFailed(error.reason) from error
        except TimedOut as error:
            raise CandidateFailed(f"the task did not end within {within:g} s") from error

    def end(self) -> Ended:
        """TERM, TERM, KILL, until nothing of it lives. Raises KeeperGone."""
        try:
            return self._end()
        finally:
            if self._pidfd is not None:
                os.close(self._pidfd)
                self._pidfd = None

    def _end(self) -> Ended:
        began, notes = self._clock.now(), list[str]()
        if self.who is not None:
            for within, words in (
                (FIRST_TERM_S, f"still there {FIRST_TERM_S:g} s after TERM; signalled again"),
                (SECOND_TERM_S, "ignored two TERMs; killed"),
            ):
                self._keeper.term()
                if self._emptied(within):
                    break
                notes.append(f"candidate: {words}")
        kept = self._keeper.look()
        if kept.left:
            if self.who is not None and not proc.alive(self.who):
                pids = ", ".join(map(str, kept.left))
                notes.append(f"candidate: left pid {pids} behind; killed")
            kept = self._killed()
        return Ended(kept.exit, self._clock.now() - began, tuple(notes), kept.left)

    def _killed(self) -> Kept:
        """Kill until nothing of it lives: a death takes a moment, and a fork bomb more than one."""

        def gone() -> Kept | None:
            kept = self._keeper.look()
            if not kept.left:
                return kept
            self._keeper.kill()
            return None

        try:
            return until(gone, within=KILL_S, clock=self._clock, every=POLL_S)
        except TimedOut:
            return self._keeper.look()

    def _emptied(self, within: float) -> bool:
        """Whether its first process went in time; what that left behind is killed, not waited for."""

        def gone() -> bool | None:
            return None if self.who is not None and proc.alive(self.who) else True

        try:
            return until(gone, within=within, clock=self._clock, every=POLL_S, wake=self.wake)
        except (TimedOut, Stopped):
            return False
