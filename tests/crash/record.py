"""Plays each part once without a blow and writes down every place that it passes."""

from __future__ import annotations

import json
import signal
from pathlib import Path

from preflight.linux import proc
from runner.recovery import world
from tests.crash.box import Box
from tests.crash.cases import Case
from tests.crash.play import start_recover, start_run

RECORDINGS = ("run", "task", "guardian", "guardian-idle", "recover")


def record(box: Box, name: str) -> dict[str, int]:
    """Place → how often it is passed, in the order of the first passing."""
    into = box.room / f"{name}.places"
    into.unlink(missing_ok=True)
    box.shape_for(Case("record", candidate="task:0.1" if name == "task" else "refuted"))
    settings = box.write()
    box.fresh()
    box.start()
    if name in ("run", "task"):
        box.wait(start_run(box, settings, into=into), 60)
    elif name == "guardian-idle":
        pid = start_run(box, settings, guardian={"into": str(into)})
        box.wait(pid, 60)
    else:
        _killed(box, settings, into, guardian=name == "guardian")
    box.soon(lambda: None if box.guardians() else True, within=60)
    places: dict[str, int] = json.loads(into.read_text())
    return places


def _killed(box: Box, settings: object, into: Path, *, guardian: bool) -> None:
    """The run is killed while its candidate is up; the guardian, or the timer, restores."""
    given = {"into": str(into)} if guardian else None
    pid = start_run(box, settings, guardian=given)
    down = lambda: True if proc.owners(box.ports["candidate"]) else None  # noqa: E731 - a question
    box.soon(down, within=60)
    victims = [pid] if guardian else [pid, *box.guardians()]
    for victim in victims:
        who = proc.ident(victim)
        if who is not None:
            world.send(who, signal.SIGKILL)
    box.wait(pid, 10)
    if not guardian:
        box.wait(start_recover(box, into=into), 60)
