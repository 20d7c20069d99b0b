"""`runner serve`: the daemon, under systemd, in a container or in the foreground."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from runner import who
from runner.cli import options, out
from runner.outcome import Outcome, exit_code

if TYPE_CHECKING:
    from runner.settings import Settings


@click.command()
@options.answers
def serve(config: str | None, *, as_json: bool) -> int:
    """Fire jobs by the clock, watch production, look ahead and tell. SIGHUP takes up edits."""
    path = options.config_path(config)
    settings = options.settings(config)
    who.become_owner(Path(settings.state_dir), config=path)
    from runner import logs  # noqa: PLC0415 - after a broken config has been told
    from runner.schedule.keep import keep_serving  # noqa: PLC0415 - likewise
    from runner.schedule.moments import RealTimes  # noqa: PLC0415 - likewise
    from runner.schedule.process import Taken, Wishes  # noqa: PLC0415 - likewise
    from runner.settings import secrets_of  # noqa: PLC0415 - likewise
    from runner.stopping import StopFlag  # noqa: PLC0415 - likewise

    level = ("warning", "info", "debug")[min(options.verbosity(), 2)]
    logs.configure(level=level, zone=settings.zone, keep=secrets_of(settings))
    stop, wishes = StopFlag(), Wishes()
    stop.install()
    wishes.install()
    out.warn(_beginning(path, settings))
    try:
        keep_serving(path, settings, times=RealTimes(), stop=stop, wishes=wishes)
    except Taken as taken:
        raise out.Failure(
            str(taken),
            code=exit_code(Outcome.SKIPPED),
            where=settings.state_dir,
            remedy="one is enough; see `runner status`",
        ) from taken
    out.answer(
        {"ended": stop()}, f"ended: {stop()}; runs that go on are not touched", as_json=as_json
    )
    return 0


def _beginning(path: Path, settings: "Settings") -> str:
    """What a person at a terminal reads, and the log of the unit keeps; whatever comes is told."""
    planned = len(settings.schedule)
    schedule = f"{planned} schedule{'s' * (planned != 1)}" if planned else "no schedule"
    services = ", ".join(one.name for one in settings.production) or "no production"
    return (
        f"serving {path}: {schedule}, watching {services}; Ctrl-C ends it, and no run that goes on"
    )
