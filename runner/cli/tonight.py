"""`runner run`, `check` and `cancel`: the verbs that act on the box, or look at all of it."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from runner import who
from runner.cli import options, out
from runner.cli.watching import watch
from runner.files import make_state_dir
from runner.journal_file import JournalError, whose
from runner.progress import Progress
from runner.report.page import page
from runner.report.plan import plan_lines

if TYPE_CHECKING:
    from runner.settings import Settings


@click.command()
@click.argument("job")
@click.option("--dry-run", is_flag=True, help="Print the plan: checks, exact commands, budgets.")
@click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change one key of the job for this run, such as candidate.context=100000.",
)
@click.option("--at", metavar="TIME", help="Run it then instead: 03:00, or 2026-12-24 03:00.")
@click.option("--trigger", default="manual", hidden=True)
@options.answers
def run(
    job: str,
    sets: tuple[str, ...],
    at: str | None,
    trigger: str,
    config: str | None,
    *,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Run JOB now: production down, candidate up, proof, production back."""
    overrides = overrides_of(sets)
    if at is not None:
        from runner.cli.scheduling import plan_run  # noqa: PLC0415 - only for a run of later

        return plan_run(job, at, config, overridden=bool(sets or dry_run), as_json=as_json)
    if not dry_run and (name := _through_unit(job, config, sets)):
        from runner.cli import through_unit  # noqa: PLC0415 - only on a box with units

        state_dir = Path(options.settings(config).state_dir)
        return through_unit.run(job, name, state_dir, as_json=as_json)
    settings = ready(config)
    if dry_run:
        from runner import look  # noqa: PLC0415 - after a broken config has been told

        plan = look.plan(job, settings, overrides=overrides)
        out.answer(plan, plan_lines(plan), as_json=as_json)
        return 0
    from runner.cli.as_unit import shown  # noqa: PLC0415 - likewise
    from runner.recovery.unit import UnitClock  # noqa: PLC0415 - likewise
    from runner.run import run as execute  # noqa: PLC0415 - likewise
    from runner.stopping import StopFlag  # noqa: PLC0415 - likewise

    stop = StopFlag()
    stop.install()
    state_dir = Path(settings.state_dir)
    with _watched(as_json=as_json) as progress, shown(job, state_dir, progress) as seen:
        result = execute(
            job,
            settings,
            overrides=overrides,
            trigger=trigger,
            progress=seen.progress,
            clock=UnitClock(stop),
            stop=stop,
        )
        seen.end(result)
    out.answer(result, ["", *page(result, out.coloured)], as_json=as_json)
    return int(result["exit_code"])


@click.command()
@click.argument("run_id", metavar="[RUN]", required=False)
@options.answers
def cancel(run_id: str | None, config: str | None, *, as_json: bool) -> int:
    """End a run orderly from elsewhere, production first; waits until it has ended."""
    ended = _cancelled_unit(config, run_id)
    if ended is None:
        settings = ready(config)
        from runner.cancel import cancel as end  # noqa: PLC0415 - only where it is ours to signal

        ended = end(settings, run_id)
    out.answer(ended, _cancelled(ended), as_json=as_json)
    return 0


def _through_unit(job: str, config: str | None, sets: tuple[str, ...]) -> str | None:
    """The unit that has to run this job for us, if one has to. Raises Failure."""
    state_dir = Path(options.settings(config).state_dir)
    if not _of_another(state_dir):
        return None
    from runner.cli.through_unit import unit_of  # noqa: PLC0415 - only for other users

    name = unit_of(job, state_dir)
    if name is None or not sets:
        return name
    if os.geteuid() == 0:
        return None  # root may become the owner, and take these along
    owner = who.named(who.owner_of(state_dir) or 0)
    raise out.Failure(
        "cannot be said to a unit, which knows its name only",
        where="--set",
        remedy=f"run this as {owner}, or write a job file of its own",
    )


def _cancelled_unit(config: str | None, run_id: str | None) -> dict[str, Any] | None:
    """What became of a run that is a unit, and was ended for somebody who may not signal it."""
    state_dir = Path(options.settings(config).state_dir)
    if os.geteuid() == 0 or not _of_another(state_dir):
        return None
    from runner.cli import through_unit  # noqa: PLC0415 - only for other users

    return through_unit.cancel(state_dir, run_id)


def _of_another(state_dir: Path) -> bool:
    owner = who.owner_of(state_dir)
    return owner is not None and owner != os.geteuid()


def ready(config: str | None) -> "Settings":
    """The settings, as the owner of the state directory, with logs on standard error."""
    settings = options.settings(config)
    state_dir = Path(settings.state_dir)
    who.become_owner(state_dir, config=options.config_path(config), sight=True)
    try:
        make_state_dir(state_dir)
    except OSError as error:
        raise JournalError(f"{state_dir}: {error.strerror}{whose(state_dir)}") from error
    from runner import logs  # noqa: PLC0415 - after a broken config has been told
    from runner.settings import secrets_of  # noqa: PLC0415 - likewise

    level = ("warning", "info", "debug")[min(options.verbosity(), 2)]
    logs.configure(level=level, zone=settings.zone, keep=secrets_of(settings))
    return settings


def overrides_of(sets: tuple[str, ...]) -> dict[str, str]:
    """`candidate.context=100000` as a key and its value."""
    found: dict[str, str] = {}
    for each in sets:
        key, equals, value = each.partition("=")
        if not equals or not key.strip():
            raise out.Failure(
                f"`{each}` is no KEY=VALUE",
                where="--set",
                remedy="write it as candidate.context=100000",
            )
        found[key.strip()] = value
    return found


@contextmanager
def _watched(*, as_json: bool) -> Iterator[Progress]:
    progress = watch(as_json=as_json)
    try:
        yield progress
    finally:
        progress.close()


def _cancelled(ended: Mapping[str, Any]) -> str:
    if ended.get("headline"):
        return str(ended["headline"])
    return f"run {ended.get('run')} has ended: {ended.get('outcome')}"
