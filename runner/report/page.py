"""A run as text for a terminal: the headline, then what was looked at, claimed and measured."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from runner import words
from runner.report.alert import seen_in_passing

Json = Mapping[str, Any]
Paint = Callable[[str, str], str]

_QUIET = {"pass", "skipped"}


_TRIGGERS = {
    "manual": "by hand",
    "schedule": "by the schedule",
    "catch-up": "late, for a slot that the box slept through",
    "retry": "again, after a refusal",
}


def page(result: Json, paint: Paint, *, whole: bool = False) -> list[str]:
    """The lines of `runner show`. `paint(word, text)` colours a text as the word is coloured.

    `whole` lists the checks that passed and the evidence of every claim too.
    """
    lines = [paint(str(result.get("outcome")), words.shown(result.get("headline") or "")), ""]
    lines += _about(result)
    lines += _production(result.get("production") or {}, paint)
    lines += _checks(result.get("checks") or [], paint, whole=whole)
    lines += _claims(result.get("claims") or [], paint, whole=whole)
    lines += _measured(result.get("measurements") or {})
    lines += _artifacts(result.get("artifacts") or {})
    return lines


def _about(result: Json) -> list[str]:
    begun, ended = result.get("started"), result.get("ended")
    span = f"{words.day_and_clock(begun)} to {words.clock(ended)}" if ended else "still running"
    if begun and ended:
        took = (words.parsed(ended) - words.parsed(begun)).total_seconds()
        span += f" ({words.duration(took)})"
    return [
        f"run       {words.shown(result.get('run'))}",
        f"job       {words.shown(result.get('job'))}, started {_by(result)}",
        f"time      {span}",
        *(f"exit code {result['exit_code']}" for _ in range(result.get("exit_code") is not None)),
        *(f"why       {words.shown(result['why'])}" for _ in range(bool(result.get("why")))),
        *(f"note      {words.shown(note)}" for note in result.get("notes") or []),
    ]


def _by(result: Json) -> str:
    """Who started the run."""
    trigger = str(result.get("trigger"))
    return _TRIGGERS.get(trigger, f"by {words.shown(trigger)}")


def _production(production: Json, paint: Paint) -> list[str]:
    if not production:
        return []
    state = str(production.get("state"))
    said = f"{paint(state, state)}, identity {production.get('identity')}"
    if production.get("stopped_at"):
        said += (
            f", stopped {words.clock(production.get('stopped_at'))}"
            f", serving {words.clock(production.get('serving_at'))}"
            f", down {words.duration(production.get('downtime_s'))}"
        )
    lines = ["", f"production: {said}"]
    services = production.get("services") or []
    for one in services if len(services) > 1 else ():
        each = str(one.get("state"))
        lines.append(
            f"  {words.shown(one.get('name'))}: {paint(each, each)}, {one.get('identity')}"
        )
    for one in services:
        told = [one.get("why"), *(one.get("notes") or [])]
        lines += [f"  {words.shown(one.get('name'))}: {words.shown(note)}" for note in told if note]
    return lines


def _checks(checks: Sequence[Json], paint: Paint, *, whole: bool) -> list[str]:
    if not checks:
        return []
    count: dict[str, int] = {}
    for check in checks:
        count[str(check["state"])] = count.get(str(check["state"]), 0) + 1
    lines = ["", "checks: " + ", ".join(f"{n} {paint(state, state)}" for state, n in count.items())]
    lines += [
        f"  {paint(str(check['state']), check_line(check))}"
        for check in checks
        if whole or check["state"] not in _QUIET or seen_in_passing(check)
    ]
    return lines


def check_line(check: Json) -> str:
    """One verdict as one line."""
    message = check.get("message")
    if message:
        return words.shown(message)
    said = f"{str(check['state']).upper()} {check['id']}: {check.get('subject')}"
    return words.shown(f"{said} — {check.get('found')}, wanted {check.get('wanted')}")


def _claims(claims: Sequence[Json], paint: Paint, *, whole: bool) -> list[str]:
    lines = ["", "claims:"] if claims else []
    for claim in claims:
        state = str(claim.get("state"))
        kind = words.shown(claim.get("kind"))
        lines.append(f"  {paint(state, state)} {kind}: {words.shown(claim.get('said'))}")
        lines.append(
            f"      wanted {words.shown(claim.get('wanted'))}, found {words.shown(claim.get('found'))}"
        )
        evidence = claim.get("evidence") or []
        lines += [f"      {_evidence(each)}" for each in (evidence if whole else evidence[:3])]
        if not whole and len(evidence) > 3:
            lines.append(f"      and {len(evidence) - 3} more: runner show --all")
    return lines


def _evidence(evidence: Json) -> str:
    return words.shown(f"{evidence.get('source')}: {evidence.get('said')}")


def _measured(measurements: Json) -> list[str]:
    """One line an arm, one line for each group of replies that may be compared."""
    lines: list[str] = []
    for arm, said in measurements.items():
        if not isinstance(said, Mapping):
            continue
        ready, build = said.get("ready_s"), said.get("build")
        about = [
            *([f"build {words.shown(build)}"] if build else []),
            *([f"ready after {words.duration(ready)}"] if ready else []),
        ]
        lines.append(f"  {words.shown(arm)}" + (f": {', '.join(about)}" if about else ""))
        lines += [f"    {_replies(group)}" for group in said.get("replies") or []]
    return ["", "measured:", *lines] if lines else []


def _replies(group: Json) -> str:
    """`temperature 0, 5 % filled: decoding 834.4 tok/s, prompt 6,012 tok/s, acceptance 0.53 (of 9)`."""
    where = f"temperature {group.get('temperature'):g}"
    if group.get("fill"):
        where += f", {group['fill'] * 100:.0f} % filled ({group.get('filled_tokens'):,} tokens)"
    found = [
        f"{name} {group[key]:,.1f} tok/s"
        for name, key in (("decoding", "decoding_tps"), ("prompt", "prompt_tps"))
        if group.get(key) is not None
    ]
    if group.get("acceptance") is not None:
        found.append(f"acceptance {group['acceptance']:.2f}")
    return f"{where}: {', '.join(found) or 'nothing counted'} (of {group.get('n')})"


def _artifacts(artifacts: Json) -> list[str]:
    lines = [
        f"  {words.shown(name)}: {words.shown(path)}" for name, path in artifacts.items() if path
    ]
    return ["", "files:", *lines] if lines else []
