"""`runner reservations` and `runner may-i`: what coming runs need, for everybody on the box."""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from runner import where, who
from runner.cli import options, out
from runner.schedule import may

_NO = 1


@click.command()
@click.option("--motd", is_flag=True, help="One line for the message of the day.")
@options.answers
def reservations(config: str | None, *, motd: bool, as_json: bool) -> int:
    """What coming runs need: paths, ports, GPU, units, when, and whom to ask."""
    if motd and as_json:
        raise out.Failure(
            "--motd does not go with --json", where="runner reservations", remedy="give one"
        )
    state_dir = _state_dir(config)
    said = None if motd else _made(config, state_dir)
    said = said or may.published(state_dir)
    if motd:
        line = may.motd(said or {})
        if line:
            out.say(line)
        return 0
    if said is None:
        raise out.Failure(
            "nothing is published about what runs need",
            where=str(state_dir / "public"),
            remedy="start `runner serve`, or ask the owner of the box",
        )
    lines = [*may.in_words(said), *_also(said)]
    out.answer(said, lines or ["nothing is reserved"], as_json=as_json)
    return 0


def _also(said: dict[str, Any]) -> list[str]:
    lines = []
    for one in said.get("production") or ():
        unit = f", {one['unit']}" if one.get("unit") else ""
        lines.append(f"always  {one['name']} (production)  port {one['port']}{unit}")
    if said.get("contact"):
        lines.append(f"ask {said['contact']}")
    return lines


def _made(config: str | None, state_dir: Path) -> dict[str, Any] | None:
    """Anew, and published, where the state directory is ours; else None."""
    if os.geteuid() != 0 and who.owner_of(state_dir) not in {None, os.geteuid()}:
        return None
    settings = options.settings(config)
    who.become_owner(state_dir, config=options.config_path(config))
    from runner import look  # noqa: PLC0415 - only for the owner
    from runner.journal import Journal  # noqa: PLC0415 - likewise
    from runner.schedule import early, reserved  # noqa: PLC0415 - likewise
    from runner.schedule.held import is_held  # noqa: PLC0415 - likewise
    from runner.schedule.ledger import Ledger  # noqa: PLC0415 - likewise

    now = datetime.now(UTC)
    with Journal.open(state_dir, zone=settings.zone) as journal:
        ledger = Ledger(journal)
        held = is_held(settings)  # what is known from before tells more than a look would now
        for job in dict.fromkeys(one.job for one in settings.schedule if not held):
            try:
                early.keep(look.check(job, settings), ledger, now, settings)
            except Exception as error:  # noqa: BLE001 - what one job needs may not be known; the others are
                out.warn(f"runner: {job}: {error}")
        path = options.config_path(config)
        reserved.publish(settings, ledger, state_dir, now, config=path)
        return reserved.reservations(settings, ledger, now, state_dir, config=path)


def _state_dir(config: str | None) -> Path:
    """Where it is published; whoever may not read the configuration is sent to its usual place."""
    return where.state_dir_of(where.find_config(config or options.before_the_verb()).path)


@click.group("may-i")
def may_i() -> None:
    """Ask before you delete a file, use a port or stop a unit: exit 0 is yes, 1 is no."""


@may_i.command()
@click.argument("path")
@options.answers
def delete(path: str, config: str | None, *, as_json: bool) -> int:
    """Whether PATH, and what lies in it, may be deleted."""
    _named(path)
    said = may.published(_state_dir(config))
    return _say(may.delete(path, said, datetime.now(UTC)), as_json=as_json)


@may_i.command()
@click.argument("port", type=click.IntRange(1, 65535))
@options.answers
def use(port: int, config: str | None, *, as_json: bool) -> int:
    """Whether PORT may be used."""
    said = may.published(_state_dir(config))
    return _say(may.use(port, said, datetime.now(UTC)), as_json=as_json)


@may_i.command()
@click.argument("unit")
@options.answers
def stop(unit: str, config: str | None, *, as_json: bool) -> int:
    """Whether the systemd UNIT may be stopped."""
    _named(unit)
    said = may.published(_state_dir(config))
    return _say(may.stop(unit, said, datetime.now(UTC)), as_json=as_json)


def _named(what: str) -> None:
    """Raises Failure for an empty name, such as a variable that a script has not set."""
    if not what.strip():
        raise out.Failure("nothing is named", where="runner may-i", remedy="name a path or a unit")


def _say(answer: may.Answer, *, as_json: bool) -> int:
    out.answer(answer.to_json(), answer.said, as_json=as_json)
    return 0 if answer.yes else _NO
