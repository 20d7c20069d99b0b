"""Looking without acting: `runner check` and `runner run --dry-run`. Nothing is locked or stopped."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from jobs.errors import ConfigError, Problem, render
from jobs.load import load_job
from jobs.machine import Around, box_checks, owner_of, stop_checks
from preflight import rings
from preflight.box import Box
from preflight.check import Check
from preflight.host.room import StateDir
from preflight.models.shard_names import shard_name
from preflight.ports.owner import PortOwner
from preflight.production.back import way_back
from preflight.production.serves import ProductionServes
from preflight.rings import Looked
from preflight.verdict import State, Verdict
from runner import beginning, recorded
from runner import plan as plans
from runner.files import make_state_dir
from runner.journal import Journal
from runner.measure import read_inputs
from runner.plan import Plan, alert_check, around, box_of, make_plan, observed
from runner.production import Found
from runner.progress import Progress, Unwatched
from runner.schedule import pinned
from runner.schedule.needs import needs as needs_of
from runner.settings import Settings

Json = dict[str, Any]

_PINNABLE = ("weights", "draft", "mmproj")
_WORST_FIRST = (State.FAIL, State.UNKNOWN, State.WARN, State.PASS)


@contextmanager
def _journal(settings: Settings) -> Iterator[Journal]:
    state_dir = Path(settings.state_dir)
    make_state_dir(state_dir)
    with Journal.open(state_dir, zone=settings.zone) as journal:
        yield journal


def plan(
    name: str, settings: Settings, *, overrides: Mapping[str, str] | None = None, live: bool = True
) -> Json:
    """What `runner run` would do now, as one object. Raises ConfigError, JournalError, OSError."""
    job = load_job(Path(settings.jobs_dir), name, overrides=overrides or {})
    with _journal(settings) as journal:
        found = observed(settings, journal)
        made = make_plan(job, settings, found, journal=journal, live=live)
        return plans.to_json(made, found)


def check(
    name: str | None,
    settings: Settings,
    *,
    overrides: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    box: Box | None = None,
    record: bool = False,
) -> Json:
    """Look whether a job could run now, or without one whether production could be restored.

    With `record` the files of a job that could run are recorded, for later looks to compare with.
    Raises ConfigError, JournalError, OSError.
    """
    watching = progress or Unwatched()
    made: Plan | None = None
    job = load_job(Path(settings.jobs_dir), name, overrides=overrides or {}) if name else None
    with _journal(settings) as journal, box_of(settings, box) as there:
        found = observed(settings, journal, there)
        needs: float | None = None
        wanted: Json | None = None
        if job is not None:
            made = make_plan(job, settings, found, journal=journal, live=watching.live)
            checks: tuple[Check, ...] = recorded.anew(made.checks) if record else made.checks
            needs = round(made.lasting.seconds / 60, 1) if made.lasting else None
            recipes = [one.recipe.to_json() for one in found]
            wanted = needs_of(
                made.checks, recipes, takes_s=made.timeout, named=made.job.needs.files
            )
        else:
            known = around(found, journal)
            checks = (
                StateDir(path=settings.state_dir),
                alert_check(settings, journal, live=watching.live),
                *box_checks([one.recipe.to_json() for one in found], known),
                *(check for one in found for check in _of_production(one, known, found)),
            )
        looked = rings.look(
            (*beginning.checks(settings, journal), *checks),
            there,
            accept=job.accept if job else {},
            on_verdict=watching.verdict,
        )
        verdicts = [*looked.verdicts, *_inputs(made, looked)]
        kept: Json | None = None
        if record and name is not None and not any(one.refuses for one in verdicts):
            made_of = recorded.keep(
                Path(settings.state_dir), name, checks, verdicts, there, proven=False
            )
            kept = recorded.summary(made_of) if made_of is not None else None
    return {
        "job": name,
        "state": _state(verdicts),
        "checks": [verdict.to_json() for verdict in verdicts],
        "needs_minutes": needs,
        "needs": wanted,
        "recorded": kept,
        "standing": _standing(found),
        "production_files": {one.service.name: _kept_files(one) for one in found},
    }


def check_all(
    settings: Settings, *, progress: Progress | None = None, box: Box | None = None
) -> Json:
    """Look at production, and whether every scheduled job could run now; one answer for all.

    A job that cannot even be read is one of the answers. Raises JournalError, OSError.
    """
    watching = progress or Unwatched()
    with box_of(settings, box) as there:
        watching.phase("production")
        found = check(None, settings, progress=watching, box=there)
        jobs: list[Json] = []
        for name in dict.fromkeys(row.job for row in settings.schedule):
            watching.phase(name)
            try:
                jobs.append(check(name, settings, progress=watching, box=there))
            except ConfigError as error:
                verdict = _unreadable(name, error)
                watching.verdict(verdict)
                checks = [verdict.to_json()]
                jobs.append({"job": name, "state": "fail", "checks": checks, "needs_minutes": None})
    states = [found["state"], *(one["state"] for one in jobs)]
    worst = next((str(state) for state in _WORST_FIRST if state in states), found["state"])
    return {**found, "state": worst, "jobs": jobs}


def _unreadable(name: str, error: ConfigError) -> Verdict:
    """A mistake in a job's file, as an answer among the others."""
    return Verdict(
        id="self.config",
        state=State.FAIL,
        subject=f"job {name}",
        wanted="a job file without mistakes",
        found="; ".join(_without_remedy(problem) for problem in error.problems),
        remedy=error.problems[0].remedy or "mend its file",
    )


def _without_remedy(problem: Problem) -> str:
    return render(replace(problem, remedy=""))


def _standing(found: Sequence[Found]) -> str:
    """How production is, in a word for a first line."""
    if not found:
        return "NO PRODUCTION on this box"
    down = [one.service.name for one in found if not one.look.serving]
    return f"DOWN: {', '.join(down)}" if down else "SERVING"


def _of_production(found: Found, known: Around, beside: Sequence[Found]) -> tuple[Check, ...]:
    """Whether one service is itself, can be stopped, and could be started again."""
    recipe, looked_at = found.recipe.to_json(), pinned.looked_at(found.recipe)
    return (
        PortOwner(port=found.recipe.port, host=found.recipe.host, expect=owner_of(recipe)),
        ProductionServes(
            name=found.service.name,
            base_url=str(found.recipe.probe.get("base", "")),
            probe=found.recipe.probe,
        ),
        *way_back(looked_at),
        *stop_checks(recipe, known, beside=[one.recipe.to_json() for one in beside]),
    )


def _inputs(made: Plan | None, looked: Looked) -> Iterator[Verdict]:
    """What a run reads between preflight and the stop: prompts and keys that it could not use."""
    if made is None or looked.passed is None:
        return
    try:
        read_inputs(made.arms, made.job.workload)
    except (OSError, ValueError) as error:
        yield Verdict(
            id="self.config",
            state=State.FAIL,
            subject="what is measured",
            wanted="prompts and keys that can be used",
            found=str(error),
            remedy="mend what [workload] prompts or api_key names",
        )


def _state(verdicts: Iterable[Verdict]) -> str:
    """The worst answer: an unknown that was accepted counts as a warning."""
    states = {_counted(verdict) for verdict in verdicts}
    return str(next((state for state in _WORST_FIRST if state in states), State.PASS))


def _counted(verdict: Verdict) -> State:
    if verdict.state is State.UNKNOWN and not verdict.refuses:
        return State.WARN
    return verdict.state


def _kept_files(found: Found) -> list[str]:
    """The files of one service that can be pinned: all it was started from but its program."""
    inputs = found.recipe.inputs
    files: dict[str, None] = {}
    for item in inputs:
        if item.get("role") in _PINNABLE:
            shards = shard_name(str(item["path"]))
            files |= dict.fromkeys(shards.paths() if shards else (str(item["path"]),))
    return list(files)
