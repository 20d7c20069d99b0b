"""What a job would do to this box, before anything is done: arms, checks, budgets. It only looks."""

import os
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.candidate import resolve
from jobs.fields import in_words
from jobs.job import Job
from jobs.machine import SEEN, Around, machine_checks
from jobs.needs import Known, checks_for
from preflight.box import Box
from preflight.check import Check, Explained
from preflight.given import Given
from preflight.linux.box import LinuxBox
from preflight.verdict import BlastRadius, State
from preflight.wording import tell_times_in
from runner import learned, recorded
from runner.journal import Journal
from runner.lasting import Lasts, lasts, time_check
from runner.measure import Arm
from runner.production import Found, survey
from runner.reach import reach
from runner.recovery import world
from runner.recovery.pins import is_gone
from runner.recovery.recipe import Recipe, last_good
from runner.schedule import pinned
from runner.schedule.ledger import Ledger
from runner.service import Service
from runner.settings import Settings

STOP_SLACK_S = 300.0
"""What the guardian grants beyond the timeout before it ends a run that hangs."""

EXPLAINED: tuple[tuple[Explained, BlastRadius, str], ...] = (
    (
        Explained(
            "self.time",
            reads="the workload's size, speeds and load times of this job's earlier runs, and what "
            "is kept for the way back (1.5 times the slowest load seen, until then ready_within)",
            passes="all that is known to be needed fits into downtime_budget",
            warns="it needs more than nine tenths of the budget",
            fails="it does not fit, so it would be cut before it has proven anything",
            remedies=(
                "raise downtime_budget",
                "measure less",
                "lower ready_within of the services",
            ),
        ),
        BlastRadius.SELF,
        "Whether the night is long enough.",
    ),
    (
        Explained(
            "self.alert",
            reads="the journal: when an alert last reached somebody; whether a person watches now",
            passes="a delivery was proven in the last 7 days, or a person watches",
            warns='nothing is proven, and [alerts] unproven_delivery = "accept"',
            fails="nobody would be told of a failure",
            remedies=("runner alerts test", 'unproven_delivery = "accept"'),
        ),
        BlastRadius.SELF,
        "Whether a person can be told of what goes wrong.",
    ),
)
"""The answers that are known without looking at the box, explained as the checks are."""

_FILES_WITHIN_S = 5.0

_EARLIER = 20
"""So many earlier runs of a job are asked for their speeds."""

_UNSEEN = "LLAMA_ARG_"
"""Variables that configure a llama-server where nobody looks for it."""

LEARNED = 1.5
"""A load that was seen may take half as long again, before the reserve is too small."""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Plan:
    """A job on this box, now. Times are seconds."""

    job: Job
    stops: tuple[str, ...]
    arms: tuple[Arm, ...]
    checks: tuple[Check, ...]
    budget: float
    reserve: float
    timeout: float
    slack: float = STOP_SLACK_S
    back_at: float | None = None
    """When production must serve again whatever the budget says, in seconds of the run's clock."""
    lasting: Lasts | None = None
    """How long it will take, as far as earlier runs tell."""
    notes: tuple[str, ...] = ()
    """What every report of this run says, such as that it uses pins."""

    @property
    def time_down(self) -> float:
        """How long after the first stop the candidate must be on its way out."""
        return self.budget - self.reserve

    def cut_at(self, stopped: float) -> float:
        """When the candidate must be on its way out, if the first stop is at `stopped`."""
        cut = stopped + self.time_down
        return cut if self.back_at is None else min(cut, self.back_at - self.reserve)

    @property
    def budget_words(self) -> str:
        """The downtime budget as a person wrote it."""
        return in_words(self.budget)

    @property
    def timeout_words(self) -> str:
        """The timeout as a person wrote it."""
        return in_words(self.timeout)


@contextmanager
def box_of(settings: Settings, given: Box | None) -> Iterator[Box]:
    """The machine, read as the settings say; its children end with the block."""
    tell_times_in(settings.zone)
    if given is not None:
        yield given
        return
    with LinuxBox(nvidia_smi=settings.gpu.nvidia_smi, reader=settings.gpu.reader) as there:
        yield there


def observed(settings: Settings, journal: Journal, box: Box | None = None) -> tuple[Found, ...]:
    """Every service of production as it is now."""
    found: list[Found] = []
    for service in settings.production:
        slowest = journal.slowest_load_seconds(service.name)
        seen = survey(service, slowest_load=slowest, box=box)
        if rows := Ledger(journal).pins(f"service:{service.name}"):
            before = last_good(Path(settings.state_dir)).get(service.name)
            gone = _gone([row["path"] for row in rows], box)
            seen = pinned.recipe_with(seen, rows, before=before, gone=gone)
        found.append(seen)
    return tuple(found)


def _gone(paths: Sequence[str], box: Box | None) -> set[str]:
    """Those that are not there; what does not answer is not gone."""
    if box is None:
        return {path for path in paths if is_gone(path)}
    facts = box.files(paths, within=_FILES_WITHIN_S)
    return {fact.path for fact in facts if fact.fault == "ENOENT"}


def reserve_for(recipes: Sequence[Recipe]) -> float:
    """Seconds to keep for the way back: learned, and until then what each service is granted."""
    return sum(
        LEARNED * one.slowest_load if one.slowest_load else one.ready_within for one in recipes
    )


def _free_port() -> int:
    with socket.socket() as asking:
        asking.bind(("127.0.0.1", 0))
        port: int = asking.getsockname()[1]
        return port


def make_plan(
    job: Job,
    settings: Settings,
    found: Sequence[Found],
    *,
    journal: Journal,
    live: bool,
    back_at: float | None = None,
    now: float = 0.0,
) -> Plan:
    """Resolve a job against production as it runs. Raises ConfigError naming the key to change."""
    pins = Ledger(journal).pins(f"job:{job.name}")
    kept = pinned.gone_of(found) | {row["path"]: row["pin"] for row in pins}
    job = pinned.job_with(job, kept)
    stops = job.stops if job.stops is not None else tuple(one.service.name for one in found)
    stopped = [one for one in found if one.service.name in stops]
    commands = {one.service.name: one.command for one in found}
    servers = {one.service.name: one.service for one in found}
    port = _free_port() if job.candidate.port in {"free", None} else None
    arms = []
    for name in job.arms:
        resolved = pinned.arm_with(resolve(job, commands, servers, port=port, arm=name), kept)
        arms.append(Arm(name, resolved.command, resolved.server))
    reserve = reserve_for([one.recipe for one in stopped])
    budget = float(job.downtime_budget)
    if back_at is not None:
        budget = min(budget, max(0.0, back_at - now))
    timeout = float(job.timeout) if job.timeout else budget + reserve
    lasting = lasts(
        job,
        {arm.name: arm.server.context if arm.server else None for arm in arms},
        journal.history(job.name, limit=_EARLIER),
        way_back=reserve,
    )
    known = _known(job.name, Path(settings.state_dir))
    checks = [
        time_check(lasting, budget, stops=bool(stopped)),
        alert_check(settings, journal, live=live),
        *checks_for(
            job,
            {arm.name: arm for arm in arms},
            [pinned.looked_at(one.recipe) for one in found],
            state_dir=settings.state_dir,
            known=known,
        ),
        *machine_checks(
            job,
            {arm.name: arm for arm in arms},
            [one.recipe.to_json() for one in found],
            around(found, journal, takes=timeout, before_back=budget - reserve),
            record=known.record,
        ),
        *pinned.checks(job.name, pins),
        *(check for one in stopped for check in _pins_of(one.service, journal)),
    ]
    return Plan(
        job=job,
        stops=tuple(stops),
        arms=tuple(arms),
        checks=tuple(checks),
        budget=budget,
        reserve=reserve,
        timeout=timeout,
        back_at=back_at,
        lasting=lasting,
        notes=tuple(pinned.notes(pins, found)),
    )


def around(
    found: Sequence[Found],
    journal: Journal,
    *,
    takes: float = 0.0,
    before_back: float | None = None,
) -> Around:
    """What this process knows beside the job: its environment, and what earlier runs have shown."""
    names = [one.service.name for one in found]
    stops = {name: journal.slowest_stop_seconds(name) for name in names}
    return Around(
        takes=takes,
        before_back=before_back,
        idle_within={one.service.name: float(one.service.idle_within) for one in found},
        slowest_stop={name: took for name, took in stops.items() if took is not None},
        inherited={name: os.environ[name] for name in SEEN if name in os.environ},
        in_slurm="SLURM_JOB_ID" in os.environ,
    )


def _pins_of(service: Service, journal: Journal) -> Iterable[Check]:
    rows = Ledger(journal).pins(f"service:{service.name}")
    return pinned.checks(f"production's {service.name}", rows, wanted=service.pin, back=True)


def _known(job: str, state_dir: Path) -> Known:
    """What earlier runs have left for this one, and what it would inherit from us."""
    inherited = world.scrubbed(os.environ)
    return Known(
        record=recorded.read(state_dir, job),
        learned=learned.read(state_dir),
        inherited={name: value for name, value in inherited.items() if name.startswith(_UNSEEN)},
    )


def alert_check(settings: Settings, journal: Journal, *, live: bool) -> Check:
    """Whether a person can be reached if this goes wrong: proven, waived, or a reason to refuse."""
    told = reach(journal, settings.alerts.channel, live=live)
    accepted = settings.alerts.unproven_delivery == "accept"
    state = State.PASS if told.proven else State.WARN if accepted else State.FAIL
    return Given(
        name="self.alert",
        about="the way to tell a person",
        state=state,
        found=told.said,
        wanted="a delivery that was proven in the last 7 days",
        remedy=""
        if told.proven or accepted
        else 'runner alerts test, or [alerts] unproven_delivery = "accept"',
    )


def to_json(plan: Plan, found: Sequence[Found]) -> Json:
    """The plan as `run --dry-run` prints it: every check, the exact commands, the budgets."""
    by_name: Mapping[str, Found] = {one.service.name: one for one in found}
    return {
        "job": plan.job.name,
        "question": plan.job.question,
        "checks": [{"id": check.reported, "subject": check.subject} for check in plan.checks],
        "stop": [_stop(by_name[name]) for name in reversed(plan.stops) if name in by_name],
        "arms": [
            {"name": arm.name, "command": list(arm.command.argv), "cwd": arm.command.cwd}
            for arm in plan.arms
        ],
        "start": [_start(by_name[name]) for name in plan.stops if name in by_name],
        "budgets": {
            "downtime_s": plan.budget,
            "kept_for_the_way_back_s": plan.reserve,
            "for_the_candidate_s": plan.time_down,
            "timeout_s": plan.timeout,
        },
        "notes": list(plan.notes),
        "claims": [{"kind": claim.kind, "wanted": claim.wanted} for claim in plan.job.claims],
    }


def _stop(found: Found) -> Json:
    supervisor = found.recipe.supervisor
    how: object
    match supervisor["kind"]:
        case "systemd":
            how = ["systemctl", "stop", supervisor["unit"]]
        case "command":
            how = list(supervisor["stop"])
        case _:
            pids = ", ".join(str(who.pid) for who in sorted(found.standing.heads, key=_pid))
            how = f"TERM, TERM, KILL to pid {pids or '(not running)'} and its family"
    return {"service": found.service.name, "by": supervisor["kind"], "how": how}


def _start(found: Found) -> Json:
    supervisor = found.recipe.supervisor
    how = {
        "systemd": ["systemctl", "start", str(supervisor.get("unit"))],
        "command": list(supervisor.get("start") or []),
        "process": list(supervisor.get("argv") or []),
    }[supervisor["kind"]]
    return {
        "service": found.service.name,
        "by": supervisor["kind"],
        "how": how,
        "within_s": found.recipe.patience,
    }


def _pid(who: Any) -> int:
    return int(who.pid)
