"""What a person is told about a run, as plain text. Pure; knows no channel and no box.

First line: is production serving now. Then what happened, what it means, and the one command to
run next. A phone shows the first line only, so nothing that matters stands lower alone.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from preflight.wording import short_path
from runner import words
from runner.outcome import Outcome
from runner.report.headline import details, headline, not_serving
from runner.secrets import redact

Json = Mapping[str, Any]

_MOST_CHECKS = 12
_MOST_REMEDIES = 3
_PATH_ROOM = 60
_IN_PASSING = "seen in passing: "


def alert_text(result: Json) -> str:
    """The whole text of the alert about a finished run, secrets hidden, nothing to move a cursor."""
    lines = [str(result.get("headline") or headline(result)), *_story(result)]
    lines.append(f"runner show {result.get('run')}")
    return redact("\n".join(words.shown(line) for line in lines if line))


def alert_body(result: Json) -> dict[str, Any]:
    """The alert as the outbox holds it."""
    text = alert_text(result)
    return {
        "first_line": text.partition("\n")[0],
        "text": text,
        "at": result.get("ended"),
        "kind": str(result.get("outcome")),
    }


def _story(result: Json) -> Iterator[str]:
    """What happened, by outcome."""
    production = result.get("production") or {}
    if why := result.get("why"):
        yield str(why)
    match result.get("outcome"):
        case Outcome.REFUSED | Outcome.SKIPPED:
            yield from _refused(result)
        case Outcome.REFUTED:
            yield from _claims(result)
        case Outcome.PRODUCTION_DOWN:
            yield from _down(production)
        case Outcome.PROVEN:
            yield " · ".join(details(result))
        case _:
            pass
    yield from (str(note) for note in result.get("notes") or [])
    yield from _notes(production)
    yield from _accepted(result)
    if production.get("state") == "down-before":
        yield "it was down before us; nothing was started, it may be down on purpose"


def _refused(result: Json) -> Iterator[str]:
    """Every check that refused, what was seen in passing, and what to do about the first few."""
    bad = [
        check for check in result.get("checks") or [] if _refuses(check) or seen_in_passing(check)
    ]
    for check in bad[:_MOST_CHECKS]:
        yield _found(check)
    if len(bad) > _MOST_CHECKS:
        yield f"and {len(bad) - _MOST_CHECKS} more"
    if result.get("outcome") == Outcome.REFUSED and result.get("again_until"):
        yield f"Looking again until {result['again_until']}"
    remedies = dict.fromkeys(str(check["remedy"]) for check in bad if check.get("remedy"))
    if remedies:
        yield f"To fix: {'; '.join(list(remedies)[:_MOST_REMEDIES])}"


def _refuses(check: Json) -> bool:
    return check["state"] == "fail" or (check["state"] == "unknown" and not _accepting(check))


def seen_in_passing(check: Json) -> str:
    """What a check saw without looking, since a smaller ring had refused; empty if nothing."""
    if check["state"] != "skipped":
        return ""
    return str(check.get("found")).partition(_IN_PASSING)[2]


def _found(check: Json) -> str:
    subject = " ".join(
        short_path(word, _PATH_ROOM) if word.startswith("/") else word
        for word in str(check.get("subject")).split(" ")
    )
    unknown = "not known: " if check["state"] == "unknown" else ""
    said = f"{subject}: {unknown}{seen_in_passing(check) or check.get('found')}"
    return f"{said} [{check['who']}]" if check.get("who") else said


def _claims(result: Json) -> Iterator[str]:
    for claim in result.get("claims") or []:
        if claim.get("state") != "proven":
            yield (
                f"{claim.get('kind')} {claim.get('state')}: "
                f"wanted {claim.get('wanted')}, found {claim.get('found')}"
            )


def _down(production: Json) -> Iterator[str]:
    """Why each service is down, which others serve, and what to do."""
    services = production.get("services") or []
    for one in services:
        if one.get("state") == "down":
            tries = one.get("tries")
            tried = f" · {tries} {'try' if tries == 1 else 'tries'}" if tries else ""
            yield f"{one.get('name')}: {one.get('why') or not_serving(production)}{tried}"
        elif one.get("state") == "degraded":
            yield f"{one.get('name')} serves, but not as before: {one.get('why') or '?'}"
    serving = [str(one.get("name")) for one in services if one.get("state") == "serving"]
    if serving:
        yield f"{', '.join(serving)} {'serves' if len(serving) == 1 else 'serve'}"
    if production.get("state") == "down":
        yield "no job fires until you act; on the box: runner recover"


def _notes(production: Json) -> Iterator[str]:
    for one in production.get("services") or []:
        for note in one.get("notes") or []:
            yield f"{one.get('name')}: {note}"


def _accepted(result: Json) -> Iterator[str]:
    """Unknowns that a job accepts are told every time, with the reason."""
    for check in result.get("checks") or []:
        if check["state"] == "unknown" and (reason := _accepting(check)):
            yield f"not known, and accepted: {check.get('subject')} ({reason})"


def _accepting(check: Json) -> str:
    said = (str(line) for line in check.get("evidence") or [])
    return next((line[len("accepted: ") :] for line in said if line.startswith("accepted: ")), "")
