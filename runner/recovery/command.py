"""The verbs that must work when nothing else does: recover, guardian, status.

Standard library only. Everything a person reads of them is written here.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import traceback
from collections.abc import Sequence
from datetime import tzinfo
from pathlib import Path
from typing import Any, NoReturn

from runner import where
from runner.outcome import USAGE, Outcome, exit_code
from runner.recovery import recipe, recover, status, words
from runner.recovery.drivers import driver
from runner.recovery.guardian import guard
from runner.until import RealClock
from runner.words import clock, day_and_clock, duration, shown

Json = dict[str, Any]

_DOWN = exit_code(Outcome.PRODUCTION_DOWN)


def tell(text: str, *, error: bool = False) -> None:
    """Print a line. Never raises: who reads it, or a disk that takes it, decides nothing here.

    Above all no restore may end because `runner recover | head` has read enough.
    """
    stream = sys.stderr if error else sys.stdout
    with contextlib.suppress(OSError, ValueError, AttributeError):  # None where it was closed
        try:
            stream.write(f"{text}\n")
        except UnicodeEncodeError:  # a locale without UTF-8
            stream.write(f"{text.encode('ascii', 'backslashreplace').decode()}\n")
        stream.flush()


class _Wrong(Exception):
    """A command line that cannot be understood, in a sentence."""


class _Parser(argparse.ArgumentParser):
    """One that leaves it to us how a mistake is told."""

    def error(self, message: str) -> NoReturn:
        """Raises instead of printing."""
        raise _Wrong(message)


def _parser(verb: str, purpose: str) -> argparse.ArgumentParser:
    parser = _Parser(prog=f"runner {verb}", description=purpose)
    parser.add_argument("--config", help="the runner.toml to find the state directory in")
    parser.add_argument("--state-dir", type=Path, help="the state directory itself")
    return parser


def _state_dir(given: argparse.Namespace) -> Path:
    if given.state_dir is not None:
        return Path(given.state_dir)
    return where.state_dir_of(where.find_config(given.config).meant)


def _fail(message: str, *, as_json: bool, where: str = "", remedy: str = "") -> int:
    if as_json:
        error = {"code": USAGE, "where": where, "message": message, "remedy": remedy}
        tell(json.dumps({"error": error}))
    else:
        said = f"{where or 'runner'}: {message}" + (f" → {remedy}" if remedy else "")
        tell(said, error=True)
    return USAGE


def guardian_main(argv: Sequence[str]) -> int:
    """`runner guardian RUN`: started by a run, never by a person."""
    parser = _parser("guardian", "Keep a run's candidate, and restore production if the run dies.")
    parser.add_argument("run")
    given = parser.parse_args(argv)
    try:
        guard(_state_dir(given), given.run)
    except (OSError, ValueError) as error:
        return _fail(str(error), as_json=False)
    return 0


def recover_main(argv: Sequence[str]) -> int:
    """`runner recover`: bring production back if a dead run owes it."""
    parser = _parser("recover", "Bring production back if a dead run owes it; else only look.")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quiet", action="store_true", help="say nothing when nothing is owed")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be done")
    given = parser.parse_args(argv)
    state_dir = _state_dir(given)
    note = _elsewhere(given, state_dir)
    if note and not given.json:
        tell(f"runner: {note}", error=True)
    if given.dry_run:
        return _would(state_dir, as_json=given.json)

    def say(event: str, **detail: object) -> None:
        if not (given.json or given.quiet):
            tell(f"recover: {shown(words.heard(event, detail))}", error=True)

    try:
        done = recover.recover(state_dir, clock=RealClock(), say=say)
    except OSError as error:
        return _fail(f"{state_dir} cannot be used: {error.strerror}", as_json=given.json)
    except Exception as error:  # noqa: BLE001 - it has been told; what is owed is owed as before
        traceback.print_exc()
        done = recover.Recovered("owed", f"recovery failed: {type(error).__name__}: {error}")
    if given.json:
        said = {"state": done.state, "said": done.said, "run": done.run, "note": note}
        tell(json.dumps(said | {"production": done.production or None}))
    elif not (given.quiet and done.state == "nothing"):
        tell(shown(done.said))
    return _DOWN if done.state == "owed" or done.production.get("state") == "degraded" else 0


def _elsewhere(given: argparse.Namespace, state_dir: Path) -> str:
    """That a configuration was named which is not there, and so what was looked at instead."""
    found = where.find_config(given.config)
    if given.state_dir is not None or found.path is not None or len(found.looked) != 1:
        return ""
    return f"{found.paths}: {found.missing}; the state directory looked at is {state_dir}"


def _would(state_dir: Path, *, as_json: bool) -> int:
    try:
        owed = recipe.read(state_dir)
    except recipe.Unreadable as error:
        return _fail(str(error), as_json=as_json)
    steps = [_step(one) for one in (owed.stopped if owed else [])]
    if as_json:
        tell(json.dumps({"owed": owed.run if owed else None, "would": steps}))
    else:
        tell(f"run {owed.run} owes production" if owed else "nothing is owed")
        for step in steps:
            tell(f"  {shown(step)}")
    return 0


def _step(one: recipe.Recipe) -> str:
    try:
        return (
            f"{one.name} is {driver(one).standing().state}; if it does not serve, start it by"
            f" {one.supervisor['kind']}: {_how(one)}"
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:  # of another version
        return f"{one.name}: its recipe cannot be followed: {error!r}"


def _how(one: recipe.Recipe) -> str:
    supervisor = one.supervisor
    if supervisor["kind"] == "systemd":
        return f"systemctl start {supervisor['unit']}"
    argv = supervisor.get("argv") or supervisor.get("start") or []
    return " ".join(map(str, argv))


def status_main(argv: Sequence[str]) -> int:
    """`runner status`: is production serving now, and what stands open."""
    parser = _parser("status", "Whether production serves now, and what stands open.")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args(argv)
    state_dir = _state_dir(given)
    if state_dir.is_dir() and not os.access(state_dir, os.R_OK):
        told = status.published(state_dir)
        if told is None:
            message = f"{state_dir} may not be read by you, and nothing is published there"
            return _fail(message, as_json=given.json)
        said = told
    else:
        said = status.status(state_dir)
        status.show(state_dir, said)
    if given.json:
        tell(json.dumps(said))
    else:
        _show(said, _zone(given))
    return _DOWN if status.is_down(said) else 0


def _show_runs(said: Json, zone: tzinfo) -> None:
    """What ran last, and what is next."""
    if (last := said["last"]) is not None:
        tell(f"Last run: {shown(last['run'])}: {shown(last['headline'] or 'open')}")
    if (coming := said.get("next")) is not None:
        tell(f"Next: {shown(coming['job'])} at {day_and_clock(coming['at'], zone)}")


def _zone(given: argparse.Namespace) -> tzinfo:
    """The timezone of all times shown, as the configuration says it."""
    path = where.find_config(given.config).path
    try:
        return where.timezone(where.read(path) if path else None)
    except (OSError, ValueError):
        return where.timezone()


def _show(said: Json, zone: tzinfo) -> None:
    whole = said["production"]
    word = {"serving": "SERVING", "degraded": "DEGRADED", "down": "DOWN"}.get(whole["state"])
    since = f" since {day_and_clock(whole.get('since'), zone)}" if whole.get("since") else ""
    tell(
        f"Production: {word}{since}"
        if word
        else "Production: nothing is known yet; see: runner check"
    )
    for one in whole["services"]:
        model = one["said"].get("model_path") or one["said"].get("model_id") or ""
        pids = ", ".join(map(str, one["pids"]))
        tell(
            f"  {shown(one['name'])}: {one['state']} {shown(model)} {'pid ' + pids if pids else ''}"
        )
        if one["why"]:
            tell(f"    {shown(one['why'])}")
    if (owed := said["obligation"]) is not None:
        tell(f"Owed: run {shown(owed['run'])} took production down ({shown(owed['phase'])})")
        if said["run"] is None:
            tell("  nobody is restoring it now; on the box: runner recover")
    if (run := said["run"]) is not None:
        tell(f"Running: {shown(run['run'])}, pid {run['pid']}, since {clock(run['since'], zone)}")
    if (drained := said["drained"]) is not None:
        tell(f"Drained since {day_and_clock(drained['since'], zone)}: {shown(drained['reason'])}")
    unsent = said["outbox"]
    if unsent["unsent"]:
        tell(f"Alerts not delivered: {unsent['unsent']}, the oldest {duration(unsent['oldest_s'])}")
    _show_runs(said, zone)
    if said["note"]:
        tell(f"Note: {shown(said['note'])}")


VERBS = {
    "recover": recover_main,
    "restore": recover_main,
    "guardian": guardian_main,
    "status": status_main,
}


def main(verb: str, argv: Sequence[str]) -> int:
    """Run one of VERBS; the exit code of the table in `runner.outcome`."""
    try:
        return VERBS[verb](argv)
    except _Wrong as wrong:
        name = f"runner {verb}"
        return _fail(
            str(wrong), as_json="--json" in argv, where=name, remedy=f"see `{name} --help`"
        )
