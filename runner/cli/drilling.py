"""`runner drill`: kill a real run on purpose, and tell how long production was away."""

import sys
from pathlib import Path
from typing import Any

import click

from runner import words
from runner.cli import options, out
from runner.cli.tonight import ready
from runner.outcome import Outcome, exit_code

Json = dict[str, Any]

_ASK = (
    "This runs {job} for real: production goes down, and the run is killed at a step drawn by "
    "chance.\nProduction is then away as long as it takes to load, perhaps longer. Go on?"
)


@click.command()
@click.argument("job")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--step", help="Kill at this step instead of one drawn by chance.")
@click.option("--die-at", "die_at", hidden=True)
@options.answers
def drill(
    job: str, step: str | None, die_at: str | None, config: str | None, *, yes: bool, as_json: bool
) -> int:
    """Kill a real run of JOB at a step drawn by chance; tell how long production was away.

    Exits with 0 when production is back and every promise holds, 3 when it did not serve to begin
    with, and otherwise as the run or as `runner audit` does.
    """
    settings = ready(config)
    from runner import drill as drills  # noqa: PLC0415 - after a broken config has been told

    if die_at is not None:  # started by the drill itself
        return drills.die_at(die_at, job, settings)
    if step is not None and step not in drills.STEPS:
        raise out.Failure(
            f"`{step}` is no step", where="--step", remedy=f"one of: {', '.join(drills.STEPS)}"
        )
    from jobs.load import load_job  # noqa: PLC0415 - likewise

    load_job(Path(settings.jobs_dir), job)
    if not yes and not _agreed(job, as_json=as_json):
        out.say("nothing was done")
        return exit_code(Outcome.SKIPPED)
    try:
        said = drills.drill(job, settings, options.config_path(config), step=step)
    except drills.NotServing as error:
        raise out.Failure(
            str(error),
            code=exit_code(Outcome.REFUSED),
            where="runner drill",
            remedy="a drill is for a production that serves; see `runner status`",
        ) from error
    out.answer(said, _shown(said), as_json=as_json)
    if any(one["promise"] in {"P1", "P2"} for one in said["broken"]):
        return exit_code(Outcome.PRODUCTION_DOWN)
    if said["broken"]:
        return exit_code(Outcome.BUG)
    return 0 if said["killed"] else int(said["exit_code"])


def _agreed(job: str, *, as_json: bool) -> bool:
    """Whether a person says yes. Raises Failure where there is none to ask."""
    try:
        if not as_json:
            return click.confirm(_ASK.format(job=words.shown(job)))
    except click.Abort:
        if sys.stdin is not None and sys.stdin.isatty():
            raise  # Ctrl-C
        out.say("")  # the question has no end of its line
    raise out.Failure(
        "a drill takes production down, and nobody was asked",
        where="runner drill",
        remedy="add --yes if you mean it",
    )


def _shown(said: Json) -> list[str]:
    if not said["killed"]:
        return [
            f"the run ended by itself ({said['outcome']}) before it came to the step: {said['step']}",
            "nothing was shown; fix what it says, or try another --step",
        ]
    lines = [
        f"killed at: {said['step']} (run {said['run']})",
        f"production was away for {said['outage_s']:g} s",
        f"it was back {said['back_after_kill_s'] or 0:g} s after the kill",
    ]
    if said["by_hand"]:
        lines.append("nobody restored it: the drill did. Look at the guardian's log of that run")
    lines += [f"{one['promise']}: {words.shown(one['said'])}" for one in said["broken"]]
    return lines if said["broken"] else [*lines, "every promise holds"]
