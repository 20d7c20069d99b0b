"""`runner unpin`: let go of pins. The files at their own paths are nobody's to touch here."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from runner import who
from runner.cli import options, out
from runner.cli.pinning import rows_of
from runner.outcome import Outcome, exit_code

if TYPE_CHECKING:
    from runner.settings import Settings

Json = dict[str, Any]


@click.command()
@click.argument("job", required=False)
@click.option("--production", "services", is_flag=True, help="The pins of production.")
@click.option("--unused", is_flag=True, help="Those that no job and no service needs any more.")
@click.option("--all", "every", is_flag=True, help="All of them.")
@options.answers
def unpin(
    job: str | None,
    config: str | None,
    *,
    services: bool,
    unused: bool,
    every: bool,
    as_json: bool,
) -> int:
    """Let go of JOB's pins. The files at their own paths are not touched."""
    if sum((job is not None, services, unused, every)) != 1:
        raise out.Failure("name one JOB, --production, --unused or --all")
    settings = options.settings(config)
    from runner.schedule import pins  # noqa: PLC0415 - after a broken config has been told
    from runner.schedule.unused import is_unused  # noqa: PLC0415 - likewise

    def chosen(row: Json) -> bool:
        owner = str(row["owner"])
        if unused:
            return is_unused(owner, settings)
        return every or owner == f"job:{job}" or (services and owner.startswith("service:"))

    rows = [row for row in rows_of(settings, read_only=True) if chosen(row)]
    state_dir = Path(settings.state_dir)
    try:
        for row in rows:
            pins.release(row)
    except pins.CannotPin as error:
        raise out.Failure(
            error.message, code=exit_code(Outcome.REFUSED), remedy=error.remedy
        ) from error
    who.become_owner(state_dir, config=options.config_path(config))
    _forget(rows, settings)
    said = f"{len(rows)} pins released; the files at their own paths were not touched"
    out.answer({"released": rows}, said, as_json=as_json)
    return 0


def _forget(rows: list[Json], settings: "Settings") -> None:
    from runner.journal import Journal  # noqa: PLC0415 - after a broken config has been told
    from runner.schedule.ledger import Ledger  # noqa: PLC0415 - likewise

    with Journal.open(Path(settings.state_dir), zone=settings.zone) as journal:
        for row in rows:
            Ledger(journal).unpin(str(row["owner"]), str(row["path"]))
