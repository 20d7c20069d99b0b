"""The first line, which is all a phone shows: is production serving now, then what became of the run."""

from collections.abc import Mapping
from typing import Any

from runner import words

Json = Mapping[str, Any]

LIMIT = 140
_MOST_BITS = 4
_FULL_ENOUGH = 0.9  # a context claim's own default; filled less is said in the first line


def headline(result: Json) -> str:
    """One line of at most 140 characters: production, job and outcome, what was found, downtime."""
    production = result.get("production") or {}
    if production.get("state") == "down":
        parts = [standing(production), not_serving(production)]
        return _fitting([*parts, _run(result)])
    parts = [standing(production), _run(result)]
    if production.get("state") == "degraded":
        parts.insert(1, not_serving(production))
    parts += findings(result)
    if production.get("stopped_at") and production.get("downtime_s") is not None:
        parts.append(f"down {words.duration(production['downtime_s'])}")
    return _fitting(parts)


def standing(production: Json) -> str:
    """What production does now, in capitals, and since when."""
    state = production.get("state")
    touched = production.get("stopped_at")
    match state:
        case "serving" if touched:
            said = f"SERVING since {words.clock(production.get('serving_at'))}"
        case "serving":
            said = "SERVING, never touched"
        case "degraded":
            said = f"DEGRADED since {words.clock(production.get('serving_at') or touched)}"
        case "down":
            said = f"DOWN since {words.clock(touched)}" if touched else "DOWN"
        case "down-before":
            said = "DOWN before us, never touched"
        case "none":
            said = "NO PRODUCTION on this box"
        case _:
            said = "UNKNOWN whether production serves"
    if production.get("identity") == "different" and state in {"serving", "degraded"}:
        said += ", but NOT THE SAME"
    return said


def findings(result: Json) -> list[str]:
    """The few facts about the run that belong into the first line."""
    claims = result.get("claims") or []
    found = [bit for claim in claims if (bit := _finding(claim))]
    if result.get("outcome") == "refuted":
        bad = [f"{claim['kind']} {claim['state']}" for claim in claims if _failed(claim)]
        return list(dict.fromkeys(bad))[:_MOST_BITS]
    return found[:_MOST_BITS] if result.get("outcome") == "proven" else []


def _finding(claim: Json) -> str:
    """What a proven claim adds to the first line; mostly nothing, since PROVEN says it."""
    short = claim.get("short")
    return str(short) if isinstance(short, str) else ""


def _failed(claim: Json) -> bool:
    return claim.get("state") != "proven"


def not_serving(production: Json) -> str:
    """Which services do not start, in words."""
    services = production.get("services") or []
    names = [str(s.get("name")) for s in services if s.get("state") not in {"serving", "none"}]
    if not names:
        return "production does not start"
    return f"{', '.join(names)} {'does' if len(names) == 1 else 'do'} not start"


def _run(result: Json) -> str:
    said = f"{result.get('job')} {str(result.get('outcome')).upper()}"
    if result.get("outcome") == "production down":
        return str(result.get("job"))
    if result.get("outcome") == "interrupted":
        by = {129: "HUP", 130: "INT", 143: "TERM", 137: "killed or rebooted"}
        return f"{said} ({by.get(int(result.get('exit_code') or 0), '?')})"
    return said


def _fitting(parts: list[str]) -> str:
    """The parts joined; later ones, which matter less, are left out where the line is too long."""
    line = words.shown(parts[0])
    for part in parts[1:]:
        longer = f"{line} · {words.shown(part)}"
        if len(longer) <= LIMIT:
            line = longer
    return line[:LIMIT]
