"""`runner doctor`: which configuration is used, and what a run would stumble over. Changes nothing."""

import platform
from typing import Any

import click

from runner import __version__, where
from runner.cli import options, out
from runner.outcome import USAGE, Outcome, exit_code


@click.command()
@options.answers
def doctor(config: str | None, *, as_json: bool) -> int:
    """Which configuration is used, who it belongs to, and what is missing on this box."""
    from runner.report.health import examine  # noqa: PLC0415 - models only where they are needed

    found = where.find_config(config or options.before_the_verb())
    settings_path = found.path
    verdicts = examine(found)
    states = {verdict["state"] for verdict in verdicts}
    state = next((each for each in ("fail", "unknown", "warn") if each in states), "pass")
    answer: dict[str, Any] = {
        "version": __version__,
        "python": platform.python_version(),
        "config": str(settings_path) if settings_path else None,
        "looked": [
            {"rule": place.rule, "path": str(place.path), "there": place.there}
            for place in found.looked
        ],
        "state_dir": str(where.state_dir_of(settings_path)),
        "state": state,
        "checks": verdicts,
    }
    out.answer(answer, _lines(answer, verdicts), as_json=as_json)
    if any(each["state"] == "fail" and each["id"] == "self.config" for each in verdicts):
        return USAGE
    return exit_code(Outcome.REFUSED) if state == "fail" else 0


def _lines(answer: dict[str, Any], verdicts: list[dict[str, Any]]) -> list[str]:
    lines = [f"runner {answer['version']}, Python {answer['python']}", "", "configuration:"]
    for place in answer["looked"]:
        mark = "used" if place["there"] else "not there"
        lines.append(f"  {place['path']} ({place['rule']}): {mark}")
    lines += [f"state directory: {answer['state_dir']}", ""]
    return [*lines, *(out.coloured(each["state"], each["message"]) for each in verdicts)]
