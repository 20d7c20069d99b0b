"""`runner history` and `runner show`: what the journal remembers. They read, and start nothing."""

import os
from typing import Any

import click

from runner import public, who, words
from runner.cli import options, out
from runner.report.page import page

DEFAULT_LIMIT = 50
MOST = 1_000_000


@click.command()
@click.argument("job", required=False)
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1, MOST),
    default=DEFAULT_LIMIT,
    show_default=True,
    help="How many runs at most.",
)
@options.answers
def history(job: str | None, limit: int, config: str | None, *, as_json: bool) -> int:
    """The runs so far, newest first; of one job where JOB is given."""
    place = options.place(config)
    runs = _runs(place, job, limit)
    rows = [_row(run) for run in runs]
    text = out.columns(rows, ["started", "run", "job", "outcome", "down", "what"])
    none = f"no run of `{job}` yet" if job else "no run yet"
    if job and not runs and not (place.jobs_dir / f"{job}.toml").exists():
        none = f"no run of `{job}`, and no such job: runner list shows the jobs there are"
    out.answer({"runs": runs}, text or [words.shown(none)], as_json=as_json)
    return 0


@click.command()
@click.argument("run", required=False)
@click.option("-a", "--all", "whole", is_flag=True, help="Passed checks and all evidence too.")
@options.answers
def show(run: str | None, config: str | None, *, whole: bool, as_json: bool) -> int:
    """One run, the latest where RUN is not given: checks, claims with evidence, production."""
    found = run_of(options.place(config), run)
    out.answer(found, page(found, out.coloured, whole=whole), as_json=as_json)
    return 0


def _runs(place: options.Place, job: str | None, limit: int) -> list[dict[str, Any]]:
    """The latest runs; what is shown to everybody where the journal is somebody else's."""
    if (shown := for_everybody(place)) is None:
        with place.journal() as journal:
            return journal.history(job, limit)
    return [run for run in shown if job in {None, run.get("job")}][:limit]


def for_everybody(place: options.Place) -> list[dict[str, Any]] | None:
    """The runs as other users see them; None for those who may read the journal."""
    owner = who.owner_of(place.state_dir)
    if os.geteuid() in {0, owner} or owner is None:
        return None
    return public.history(place.state_dir)


def run_of(place: options.Place, run: str | None) -> dict[str, Any]:
    """The run asked for, or the latest. Raises Failure where there is none."""
    if (shown := for_everybody(place)) is None:
        with place.journal() as journal:
            found = journal.run(run)
    else:
        found = next((one for one in shown if run in {None, one.get("run")}), None)
    if found is None:
        what = f"no run is called `{run}`" if run else "there is no run yet"
        raise out.Failure(what, where=str(place.state_dir), remedy="see `runner history`")
    return found


def _row(run: dict[str, Any]) -> list[str]:
    production = run.get("production") or {}
    down = production.get("downtime_s")
    return [
        words.day_and_clock(run.get("started")),
        str(run.get("run")),
        str(run.get("job")),
        str(run.get("outcome") or "running"),
        "-" if down is None else words.duration(down),
        str(run.get("headline") or ""),
    ]
