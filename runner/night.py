"""The part of a run in which production is down: armed, stopped, measured, restored.

Nothing on this page may end without the restore: `_production_down` cannot raise, and what comes
next is always `_restore`. Reading and judging wait until production is back.
"""

from collections.abc import Sequence
from contextlib import suppress

from alerts.table import channels_to_specs
from preflight import rings
from preflight.gpu.budget import GpuBudget
from preflight.rings import Pass
from runner import production
from runner.candidate import CandidateFailed
from runner.gpu_memory import residency
from runner.journal import JournalError
from runner.measure import Bench, Inputs, measure, read_logs
from runner.obligation import NotArmed, Obligation, open_obligation
from runner.outcome import Outcome
from runner.placement import Placement, expected
from runner.plan import Plan
from runner.production import Found, StopFailed, StopRefused
from runner.recovery import recipe, words
from runner.recovery.keeper import KeeperGone
from runner.result import Draft, Ending
from runner.schedule import pinned
from runner.tools import Tools, machine_goes_down, refuse
from runner.until import Stopped


class Night:
    """One run from the arming of its guardian to the last proof that production is back."""

    def __init__(
        self,
        plan: Plan,
        passed: Pass,
        found: Sequence[Found],
        *,
        inputs: Inputs,
        draft: Draft,
        tools: Tools,
    ) -> None:
        self._plan, self._passed, self._found, self._inputs = plan, passed, found, inputs
        self._draft, self._tools, self._clock = draft, tools, tools.clock
        self._began = tools.clock.now()
        self._cut_at: float | None = None
        self._placement = Placement({}, tools.box)
        self.obligation: Obligation | None = None

    def told(self) -> Ending:
        """In order. Never raises: whatever goes wrong, production comes next."""
        self._tools.progress.phase("arming the guardian")
        try:
            obligation = self._arm()
        except NotArmed as error:
            return refuse(self._draft, "prod.restore", "the way back", str(error))
        self.obligation = obligation
        ending = self._production_down(obligation)
        if ending is not None and not obligation.stopping:
            with suppress(
                OSError
            ):  # a disk that refuses: the guardian tells that nothing was stopped
                obligation.close(())
            return ending
        with self._tools.journal.hurried():
            down = self._restore(obligation)
        # production is back, or a guardian is at it: now there is time to read and to judge
        judged = self._judge()
        if down and ending and ending.why:
            self._draft.notes.append(ending.why)  # what went wrong first
        return down or ending or judged

    def _arm(self) -> Obligation:
        settings = self._tools.settings
        return open_obligation(
            self._tools.state_dir,
            self._found,
            run=self._draft.run,
            job=self._draft.job,
            since=self._draft.started,
            lock_name=settings.lock_name,
            stops=self._plan.stops,
            ends_at=self._began + self._plan.timeout + self._plan.slack,
            tell=channels_to_specs(settings.alerts.channel),
            timezone=settings.timezone,
            trigger=self._draft.trigger,
            clock=self._clock,
        )

    def _production_down(self, obligation: Obligation) -> Ending | None:
        """From the gate to the candidate's end; None when all was measured that was to be."""
        ending: Ending | None
        try:
            ending = self._from_the_gate(obligation)
        except StopRefused as error:
            ending = refuse(self._draft, "gate.recheck", "production", str(error))
        except (StopFailed, CandidateFailed, KeeperGone) as error:
            ending = Ending(Outcome.BROKEN, str(error))
        except JournalError as error:
            ending = Ending(Outcome.BROKEN, f"the journal cannot be written: {error}")
        except Stopped as stopped:
            ending = self._tools.interrupted(stopped)
        except Exception as error:  # noqa: BLE001 - a bug of ours: production first, then say so
            ending = self._tools.bug(self._draft, error)
        return ending

    def _from_the_gate(self, obligation: Obligation) -> Ending | None:
        least = expected(self._plan.checks, self._tools.box)
        self._placement = Placement(least, self._tools.box)
        self._put_back()
        gate = rings.gate(self._passed, self._tools.box, self._clock.now)
        if isinstance(gate, tuple):
            self._draft.verdicts.extend(gate)
            return Ending(Outcome.REFUSED, "something changed since it was checked")
        stops = self._plan.stops
        stopped = [one for one in self._found if one.service.name in stops]
        self._event(
            "stopping",
            services=list(stops),
            gate_age_s=round(self._clock.now() - gate.ended_at, 3),
            guardian=obligation.keeper.who.to_json(),
        )
        self._tools.progress.phase("stopping production")
        self._cut_at = self._plan.cut_at(self._clock.now()) if stopped else None
        halts = production.stop(
            stopped,
            gate=gate,
            keeper=obligation.keeper,
            memory=obligation.memory,
            clock=self._clock,
            box=self._tools.box,
            say=self._tools.progress.note,
            budgets=[check for check in self._plan.checks if isinstance(check, GpuBudget)],
        )
        self._draft.notes.extend(note for halt in halts.values() for note in halt.notes)
        self._event("stopped", took={name: halt.took for name, halt in halts.items()})
        self._measure(stopped, obligation)
        return None

    def _put_back(self) -> None:
        """Production's files whose bytes are kept lie at their paths before it is stopped.

        Raises StopRefused.
        """
        try:
            done = pinned.put_back(self._found)
        except OSError as error:
            remedy = "sudo runner pin --put-back"
            why = f"a pinned file of production cannot be put back: {error} → {remedy}"
            raise StopRefused(why) from error
        self._draft.notes.extend(done)

    def _measure(self, stopped: Sequence[Found], obligation: Obligation) -> None:
        """The candidate's time on the box."""

        def watch(ours: set[int]) -> str | None:
            if not obligation.keeper.alive:
                return "the guardian has died"
            return production.revived(stopped, ours)

        bench = Bench(
            run=self._draft.run,
            inputs=self._inputs,
            directory=self._draft.directory,
            obligation=obligation,
            clock=self._clock,
            progress=self._tools.progress,
            stop=lambda: self._tools.stop() or self._time_is_up(),
            watch=watch,
            placement=self._placement,
        )
        measure(self._plan.arms, self._plan.job.workload, bench, self._draft.measured)

    def _time_is_up(self) -> str | None:
        """Why production must come back now, whatever the candidate is doing."""
        now = self._clock.now()
        if self._cut_at is not None and now >= self._cut_at:
            return f"cut: the rest of the {self._plan.budget_words} of downtime is for the way back"
        if now >= self._began + self._plan.timeout:
            return f"cut: the run's timeout of {self._plan.timeout_words} is over"
        return None

    def _judge(self) -> Ending:
        """Every claim, from the evidence and the samples of this run alone."""
        measured, claims = self._draft.measured, self._plan.job.claims
        try:
            read_logs(self._plan.arms, self._draft.directory, measured)
            self._draft.claims = [
                claim.judge(measured.evidence, measured.samples).to_json() for claim in claims
            ]
        except Exception as error:  # noqa: BLE001 - production is back; say that the verdict is not
            return self._tools.bug(self._draft, error)
        proven = all(one["state"] == "proven" for one in self._draft.claims)
        return Ending(Outcome.PROVEN if proven else Outcome.REFUTED)

    def _restore(self, obligation: Obligation) -> Ending | None:
        """Production comes back; None when it serves as before. Only a shutdown may cut this."""
        self._draft.stopped_at = obligation.stopped_at()
        patience = sum(one.patience for one in obligation.owed.stopped)
        self._tools.progress.phase("restoring production", patience or None)
        with suppress(JournalError):
            self._event("restoring")
        try:
            if not obligation.keeper.alive:
                self._draft.notes.extend(obligation.leftovers())
                obligation.rearm()
            served = obligation.restore(
                last_good=recipe.last_good(self._tools.state_dir),
                stop=machine_goes_down,
                residency=residency(self._tools.box),
                say=self._say,
            )
        except Stopped as stopped:
            return Ending(Outcome.INTERRUPTED, f"{stopped.reason}; the boot restores", "TERM")
        except Exception as error:  # noqa: BLE001 - the guardian takes over when we end
            bug = self._tools.bug(self._draft, error)
            return Ending(Outcome.PRODUCTION_DOWN, f"the restore failed by {bug.why}")
        self._draft.served = served
        self._draft.notes.extend(obligation.restarted)
        for one in served:
            if one.load is not None and one.state != "down":
                with suppress(JournalError):
                    self._tools.journal.note_load(one.name, one.load)
        if all(one.state == "serving" for one in served):
            return None
        return Ending(Outcome.PRODUCTION_DOWN)

    def _event(self, name: str, **detail: object) -> None:
        self._tools.journal.event(self._draft.run, name, **detail)

    def _say(self, name: str, **detail: object) -> None:
        """What the restore tells while it goes on; a journal that fails does not stop it."""
        self._tools.progress.note(f"restore: {words.heard(name, detail)}")
        with suppress(JournalError):
            self._event(f"restore.{name}", **detail)
