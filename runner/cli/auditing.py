"""`runner audit`: whether every promise holds, by an independent look."""

from pathlib import Path
from typing import Any

import click

from runner import words
from runner.cli import options, out
from runner.outcome import Outcome, exit_code

Json = dict[str, Any]


@click.command()
@options.answers
def audit(config: str | None, *, as_json: bool) -> int:
    """Whether the promises hold: journal, state directory and the world, looked at independently.

    Exits with 0 when no promise is broken, 10 when production is not as promised, 70 otherwise.
    """
    from runner import who  # noqa: PLC0415 - the help needs none of it
    from runner.audit import audit as look  # noqa: PLC0415 - likewise

    place = options.place(config)
    who.become_owner(Path(place.state_dir))
    broken, unknown = look(place.state_dir)
    found = [{"promise": one.promise, "said": one.said} for one in broken]
    text = [f"{one.promise}: {words.shown(one.said)}" for one in broken]
    text += [f"not known: {words.shown(said)}" for said in unknown]
    said: Json = {"broken": found, "unknown": unknown}
    out.answer(said, text or ["every promise holds"], as_json=as_json)
    if any(one.promise in {"P1", "P2"} for one in broken):
        return exit_code(Outcome.PRODUCTION_DOWN)
    return exit_code(Outcome.BUG) if broken else 0
