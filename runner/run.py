"""One run, told in order. Read this page first.

Look before touching: locks, an old debt, preflight ring by ring, what production is and how it
comes back. Only then comes the `Night`: the guardian is armed, production stopped, the candidate
measured, production restored. Last the outcome is written down, the debt closed, a person told.
"""

import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jobs.errors import ConfigError
from jobs.job import Job
from jobs.load import load_job
from preflight import rings
from preflight.box import Box
from preflight.linux import proc
from preflight.rings import Pass
from preflight.verdict import State, accept
from runner import closing, production
from runner.files import make_state_dir
from runner.gpu_memory import residency
from runner.journal import Journal, JournalError
from runner.measure import Inputs, read_inputs
from runner.night import Night
from runner.obligation import Obligation
from runner.outcome import Outcome
from runner.plan import Plan, box_of, make_plan, observed
from runner.production import Found, StopRefused
from runner.progress import Progress, Unwatched
from runner.recovery import lock, recipe
from runner.recovery.notify import notify
from runner.recovery.recover import quietly, settle
from runner.recovery.unit import in_a_run
from runner.result import Draft, Ending
from runner.schedule.ledger import Ledger
from runner.schedule.slots import Slot
from runner.settings import Settings
from runner.stopping import StopFlag
from runner.tools import Tools, refuse
from runner.until import Clock, RealClock, Stopped

Json = dict[str, Any]


def run(
    name: str,
    settings: Settings,
    *,
    overrides: Mapping[str, str] | None = None,
    trigger: str = "manual",
    progress: Progress | None = None,
    clock: Clock | None = None,
    stop: StopFlag | None = None,
    box: Box | None = None,
) -> Json:
    """Run one job and give back its result object.

    Raises ConfigError for a job that cannot be read and JournalError or OSError for a state
    directory that cannot be used; then nothing was touched.
    """
    job = load_job(Path(settings.jobs_dir), name, overrides=overrides or {})
    state_dir = Path(settings.state_dir)
    make_state_dir(state_dir)
    with Journal.open(state_dir, zone=settings.zone) as journal, box_of(settings, box) as there:
        tools = Tools(
            settings,
            journal,
            there,
            clock or RealClock(),
            progress or Unwatched(),
            stop or StopFlag(),
        )
        return Run(job, tools, trigger).told()


class Run:
    """One execution of one job."""

    def __init__(self, job: Job, tools: Tools, trigger: str) -> None:
        """Name the run; nothing is looked at yet. Raises OSError."""
        self._job, self._tools = job, tools
        run_id = _new_id(job.name, tools)
        self._slot = _slot_of(job.name, run_id, trigger, tools)
        directory = tools.state_dir / "runs" / run_id
        directory.mkdir(mode=0o700, parents=True)
        self._draft = Draft(
            run=run_id,
            job=job.name,
            question=job.question,
            trigger=self._slot.trigger if self._slot else trigger,
            started=tools.scale().iso(tools.clock.now()) or "",
            directory=directory,
            services=len(tools.settings.production),
            slot=self._slot.due if self._slot else None,
            again_until=_again_until(self._slot, tools),
        )
        self._obligation: Obligation | None = None

    def told(self) -> Json:
        """From the first lock to the delivery of the alert."""
        me = proc.ident(os.getpid())
        self._tools.journal.begin(
            self._draft.run,
            self._job.name,
            self._draft.trigger,
            me.to_json() if me else {},
            self._draft.started,
        )
        try:
            with lock.hold(
                self._tools.state_dir,
                run=self._draft.run,
                since=self._draft.started,
                name=self._tools.settings.lock_name,
            ):
                notify("READY=1")  # the box is ours: a service manager that started us may go on
                result = self._closed(self._under_lock())
        except lock.Busy as busy:
            result = self._closed(Ending(Outcome.SKIPPED, f"busy: {busy}"))
        self._tools.progress.phase("telling")
        closing.deliver(self._tools.journal, self._tools.settings)
        closing.remember(self._draft, result, self._tools.settings, self._tools.box)
        return result

    def _under_lock(self) -> Ending:
        """Everything that needs the box to ourselves; never raises."""
        try:
            self._pay_old_debt()
            self._ask_whether_drained()
            plan = self._look()
            passed = self._preflight(plan)
            inputs = self._read(plan)
            found = self._identify(plan)
        except _Over as over:
            return over.ending
        except Stopped as stopped:
            return self._tools.interrupted(stopped)
        except JournalError as error:
            return refuse(self._draft, "self.state", "the journal", str(error))
        except Exception as error:  # noqa: BLE001 - a bug of ours; nothing was touched yet
            return self._tools.bug(self._draft, error)
        night = Night(plan, passed, found, inputs=inputs, draft=self._draft, tools=self._tools)
        ending = night.told()
        self._obligation = night.obligation
        return ending

    def _pay_old_debt(self) -> None:
        """A dead run may still owe production: that comes before anything of ours."""
        try:
            owed = recipe.read(self._tools.state_dir)
        except recipe.Unreadable as error:
            raise _Over(Ending(Outcome.SKIPPED, f"{error}; see: runner recover")) from error
        if owed is None:
            return
        self._tools.progress.phase(f"recovering what run {owed.run} owes")
        # a recovery would take the locks that we hold, so it is done in its place
        done = settle(
            self._tools.state_dir,
            owed,
            clock=self._tools.clock,
            say=quietly,
            rounds=1,
            residency=residency(self._tools.box),
        )
        if done.state != "closed":
            why = f"run {owed.run} still owes production: {done.said}"
            raise _Over(Ending(Outcome.SKIPPED, why))
        self._draft.notes.append(f"first recovered what run {owed.run} owed: {done.said}")

    def _ask_whether_drained(self) -> None:
        if drained := self._tools.journal.drained():
            why = f"the box is drained since {drained['since']}: {drained['reason']}"
            raise _Over(Ending(Outcome.SKIPPED, why))

    def _look(self) -> Plan:
        """Production as it is, and what this job would do to it."""
        self._tools.progress.phase("looking at production")
        self._draft.found = observed(self._tools.settings, self._tools.journal, self._tools.box)
        try:
            plan = make_plan(
                self._job,
                self._tools.settings,
                self._draft.found,
                journal=self._tools.journal,
                live=self._tools.progress.live,
                back_at=self._back_at(),
                now=self._tools.clock.now(),
            )
        except ConfigError as error:
            raise _Over(self._unfit(error)) from error
        self._draft.notes += plan.notes
        self._draft.checks = plan.checks
        return plan

    def _unfit(self, error: ConfigError) -> Ending:
        """The job is written well, and does not fit production as it runs."""
        for one in error.problems:
            where = one.file if one.line is None else f"{one.file}:{one.line}"
            refuse(
                self._draft,
                "self.config",
                where or self._job.name,
                f"{one.key}: {one.message}" if one.key else one.message,
                wanted="a job that fits this box",
                remedy=one.remedy,
            )
        return Ending(Outcome.REFUSED)

    def _back_at(self) -> float | None:
        """When production must serve again, on our clock; None where the schedule does not say."""
        if self._slot is None or self._slot.back_by is None:
            return None
        left = self._slot.back_by - self._tools.clock.wall().timestamp()
        return self._tools.clock.now() + left

    def _preflight(self, plan: Plan) -> Pass:
        """Every check, ring by ring. Nothing is touched by looking."""
        self._tools.progress.phase("preflight")
        looked = rings.look(
            plan.checks,
            self._tools.box,
            accept=self._job.accept,
            on_verdict=self._tools.progress.verdict,
        )
        self._draft.verdicts = list(looked.verdicts)
        self._tools.journal.verdicts(
            self._draft.run, [verdict.to_json() for verdict in looked.verdicts]
        )
        if looked.passed is None:
            raise _Over(Ending(Outcome.REFUSED))
        return looked.passed

    def _read(self, plan: Plan) -> Inputs:
        """What the measuring needs; preflight has seen that its files are there."""
        try:
            return read_inputs(plan.arms, plan.job.workload)
        except (OSError, ValueError) as error:
            refusal = refuse(
                self._draft,
                "self.config",
                "what is measured",
                str(error),
                wanted="prompts and keys that can be used",
                remedy="mend what [workload] prompts or api_key names",
            )
            raise _Over(refusal) from error

    def _identify(self, plan: Plan) -> tuple[Found, ...]:
        """Wait until nobody is being served, then take down who production is."""
        known: list[Found] = []
        for found in self._draft.found:
            name, within = found.service.name, float(found.service.idle_within)
            if name not in plan.stops:
                known.append(found)
                continue
            self._tools.progress.phase(f"waiting until {name} is idle", within)
            self._idle(found)
            try:
                known.append(production.take_identity(found, self._tools.box))
            except StopRefused as error:
                raise _Over(refuse(self._draft, "prod.identity", name, str(error))) from error
        self._draft.found = tuple(known)
        return tuple(known)

    def _idle(self, found: Found) -> None:
        """Nobody waits for an answer, or a person has said that this may not be known."""
        tools = self._tools
        busy = production.wait_idle(found, tools.box, clock=tools.clock, stop=tools.stop)
        if busy is None:
            return
        reason = self._job.accept.get(busy.id)
        if busy.state is State.UNKNOWN and reason is not None:
            busy = accept(busy, reason)
        self._draft.verdicts.append(busy)
        if busy.refuses:
            raise _Over(Ending(Outcome.REFUSED))

    def _closed(self, ending: Ending) -> Json:
        # what nobody of ours touched may have gone since it was looked at
        touched = self._draft.stopped_at
        self._draft.found = [
            one if one.service.name in touched else production.as_it_is(one)
            for one in self._draft.found
        ]
        return closing.close(
            self._draft,
            ending,
            self._obligation,
            journal=self._tools.journal,
            settings=self._tools.settings,
            clock=self._tools.clock,
        )


class _Over(Exception):
    """The run ends here, and nothing was touched."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.why)
        self.ending = ending


def _slot_of(job: str, run: str, trigger: str, tools: Tools) -> Slot | None:
    """The slot that this run was started for, by the daemon or by systemd at its word."""
    if trigger == "manual" and not in_a_run():
        return None
    try:
        return Ledger(tools.journal).adopt(job, run)
    except JournalError:
        return None  # the run goes on without it, and its first write says what is wrong


def _again_until(slot: Slot | None, tools: Tools) -> str | None:
    """Until when a refused run is tried again by its schedule."""
    if slot is None:
        return None
    mine = (one for one in tools.settings.schedule if one.job == slot.job)
    return next((one.try_until for one in mine if one.try_until), None)


def _new_id(job: str, tools: Tools) -> str:
    """Sorts by time, names the job, and is unlike any other: 20261129-000000-200k-mtp-3f9a."""
    at = tools.clock.wall().astimezone(tools.settings.zone)
    return f"{at:%Y%m%d-%H%M%S}-{job}-{secrets.token_hex(2)}"
