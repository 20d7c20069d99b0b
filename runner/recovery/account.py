"""What became of production, as the JSON that results, alerts and status share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from preflight.linux import proc
from runner.recovery.attempt import Served
from runner.recovery.recipe import Owed, Recipe
from runner.until import Clock
from runner.words import iso, parsed

Json = dict[str, Any]

_WORST_FIRST = ("down", "degraded", "down-before", "serving", "none")
_LEAST_SAME_FIRST = ("different", "unknown", "same")


@dataclass(frozen=True, slots=True)
class Scale:
    """How moments of CLOCK_BOOTTIME read on a wall clock in the configured time zone."""

    now: float
    wall: datetime
    zone: tzinfo = UTC

    @classmethod
    def of(cls, clock: Clock, timezone: str = "UTC") -> Scale:
        """The scale at this moment; an unknown zone is read as UTC rather than not at all."""
        try:
            zone: tzinfo = ZoneInfo(timezone)
        except Exception:  # noqa: BLE001 - no zone data, a broken package of it: told in UTC, but told
            zone = UTC
        return cls(clock.now(), clock.wall(), zone)

    def iso(self, moment: float | None) -> str | None:
        """ISO 8601 with offset."""
        if moment is None:
            return None
        return iso(self.wall + timedelta(seconds=moment - self.now), self.zone)


def stops(known: Json, scale: Scale) -> dict[str, float | None]:
    """When each service was asked to stop, as CLOCK_BOOTTIME of this boot."""
    said = known.get("services") or {}
    return {name: stopped(one, scale) for name, one in said.items()}


def stopped(said: Json, scale: Scale) -> float | None:
    """When a service was asked to stop, by what `recovery.state` says of it; None if it was not.

    It is noted by both clocks: CLOCK_BOOTTIME, which no person and no time server sets, and seconds
    since 1970, which still mean something after a reboot.
    """
    at, moment = said.get("stopped"), said.get("stopped_moment")
    if isinstance(moment, int | float) and said.get("boot") == proc.boot_id():
        return moment
    return scale.now - (scale.wall.timestamp() - at) if at is not None else None


def worst(states: Iterable[str], order: Sequence[str]) -> str:
    """The first of `order` that occurs; the last one when none does."""
    occurring = set(states)
    return next((state for state in order if state in occurring), order[-1])


def service(
    recipe: Recipe, served: Served, *, stopped: float | None, scale: Scale, untouched: bool = False
) -> Json:
    """One service: how it stands now, and who it was and is."""
    at = None if untouched else served.at
    return {
        "name": recipe.name,
        "state": served.state,
        "identity": served.identity,
        "stopped_at": scale.iso(stopped),
        "serving_at": scale.iso(at),
        "downtime_s": round(at - stopped, 3) if at is not None and stopped is not None else None,
        "identity_before": {**(recipe.identity.get("said") or {}), "pids": _pids(recipe)},
        "identity_after": served.after,
        "load_s": round(served.load, 3) if served.load is not None else None,
        "tries": served.tries,
        "why": served.why,
        "notes": list(served.notes),
    }


def _pids(recipe: Recipe) -> list[int]:
    pid = (recipe.identity.get("who") or {}).get("pid")
    return [pid] if isinstance(pid, int) else []


def production(services: list[Json]) -> Json:
    """All services, with the worst of them on top and the longest downtime."""
    if not services:
        return {"state": "none", "identity": "unknown", "services": []} | dict.fromkeys(
            ("stopped_at", "serving_at", "downtime_s")
        )
    stops = sorted(said["stopped_at"] for said in services if said["stopped_at"])
    # where nobody knows who was stopped, all of them may have been
    backs = [said["serving_at"] for said in services if said["stopped_at"] or not stops]
    downs = [said["downtime_s"] for said in services if said["stopped_at"]]
    return {
        "state": worst((said["state"] for said in services), _WORST_FIRST),
        "identity": worst((said["identity"] for said in services), _LEAST_SAME_FIRST),
        "stopped_at": stops[0] if stops else None,
        "serving_at": max(backs) if backs and all(backs) else None,
        "downtime_s": max(downs) if downs and None not in downs else None,
        "services": services,
    }


def down_for(whole: Json, scale: Scale) -> float:
    """Seconds since production was stopped; 0 where it was not."""
    at = whole.get("stopped_at")
    return (scale.wall - parsed(at)).total_seconds() if at else 0.0


def restored(
    owed: Owed, served: Sequence[Served], stops: dict[str, float | None], scale: Scale
) -> Json:
    """The account of an obligation after a restore; `stops` says when each service was stopped."""
    by_name = {recipe.name: recipe for recipe in owed.services}
    return production(
        [
            service(by_name[one.name], one, stopped=stops.get(one.name), scale=scale)
            for one in served
        ]
    )
