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
        parts.insert(1, f"{_names(production)} not as before")
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
        case "unknown":
            said = "NOT LOOKED AT"
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
    if result.get("outcome") == "refuted":
        bad = [
            f"{claim['kind']} {claim['state']}" for claim in claims if claim["state"] != "proven"
        ]
        return list(dict.fromkeys(bad))[:_MOST_BITS]
    if result.get("outcome") != "proven":
        return []
    bits = [bit for claim in claims for bit in [*_filled(claim), *_speeds(claim)]]
    return bits[:_MOST_BITS]


def details(result: Json) -> list[str]:
    """The second line of a proven run: what was counted."""
    bits = []
    for claim in result.get("claims") or []:
        numbers = claim.get("numbers") or {}
        if claim.get("kind") == "speculation" and numbers.get("acceptance") is not None:
            bits.append(f"acceptance {numbers['acceptance']:.2f}")
        if claim.get("kind") == "context" and numbers.get("filled"):
            bits.append(f"{numbers['filled']:,} tokens filled")
    return bits


def _filled(claim: Json) -> list[str]:
    """How much of the context was really used, where that is less than nearly all of it."""
    share = (claim.get("numbers") or {}).get("filled_share")
    if claim.get("kind") != "context" or share is None or share >= _FULL_ENOUGH:
        return []
    return [f"{share * 100:.0f} % of the context filled"]


def _speeds(claim: Json) -> list[str]:
    """`temp 0: +24 %`: the speed at each temperature, against the baseline where there is one."""
    if claim.get("kind") != "throughput":
        return []
    each = (claim.get("numbers") or {}).get("temperatures") or []
    return [f"temp {one['temperature']:g}: {_speed(one)}" for one in each if "temperature" in one]


def _speed(one: Json) -> str:
    against = one.get("comparison") or {}
    ratio = against.get("ratio_of_medians")
    if ratio is None:
        return f"{one['median']:.1f} tok/s" if one.get("median") is not None else "not measured"
    if against.get("verdict") in {"even", "parity"}:
        bound = against.get("bound")
        return f"even (±{bound * 100:.0f} %)" if bound else "even"
    return f"{round((ratio - 1) * 100):+d} %"


def not_serving(production: Json) -> str:
    """Which services do not start, in words."""
    services = production.get("services") or []
    many = sum(one.get("state") == "down" for one in services) > 1
    return f"{_names(production)} {'do' if many else 'does'} not start"


def _names(production: Json) -> str:
    """The services that are as production as a whole is."""
    services = production.get("services") or []
    names = [str(one.get("name")) for one in services if one.get("state") == production["state"]]
    return ", ".join(names) or "production"


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
