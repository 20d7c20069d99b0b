"""Brings services back, and proves that they are the ones that were there.

Level-triggered and idempotent: every step looks at the world first. A service that serves is never
touched, one that is on its way up is waited for, and only one that is not there is started, at
most one copy at a time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping

from preflight.linux.proc import Ident
from runner.recovery import world
from runner.recovery.attempt import Attempt, Past, Residency, Served
from runner.recovery.recipe import Recipe
from runner.until import Clock, Stopped, rest

Say = Callable[..., None]


def candidates(recipe: Recipe, last_good: Recipe | None) -> Iterator[Recipe]:
    """What to try, in order: the recipe, once more, the last that was seen serving, fallbacks."""
    yield recipe
    yield recipe
    if last_good is not None and last_good.supervisor != recipe.supervisor:
        yield dataclasses.replace(last_good, name=recipe.name)
    for said in recipe.fallbacks:
        try:
            other = Recipe.from_json(said)
        except (KeyError, TypeError):  # written by another version
            continue
        yield dataclasses.replace(other, name=recipe.name)


def restore(
    recipes: list[Recipe],
    *,
    pasts: Mapping[str, Past],
    last_good: Mapping[str, Recipe],
    clock: Clock,
    stop: Callable[[], str | None],
    residency: Residency,
    note: Callable[[str, Ident | None], None],
    say: Say,
) -> list[Served]:
    """One round over all services, in order: each serving as before, or down with every reason.

    A service that does not come does not keep the others down. `note(name, ident)` is told of every
    process started, before it is waited for. Raises Stopped when `stop` gives a reason (the
    machine is going down).
    """
    return [
        _restore_one(
            recipe,
            pasts.get(recipe.name, Past()),
            candidates(recipe, last_good.get(recipe.name)),
            clock=clock,
            stop=stop,
            residency=residency,
            note=note,
            say=say,
        )
        for recipe in recipes
    ]


def _restore_one(
    recipe: Recipe,
    past: Past,
    tried: Iterator[Recipe],
    *,
    clock: Clock,
    stop: Callable[[], str | None],
    residency: Residency,
    note: Callable[[str, Ident | None], None],
    say: Say,
) -> Served:
    reasons: list[str] = []
    for number, candidate in enumerate(tried, start=1):
        if reason := stop():
            raise Stopped(reason)
        if number > 1:
            rest(min(2.0 ** (number - 2), 8.0), clock=clock, stop=stop)
        say("starting", service=recipe.name, attempt=number)
        try:
            attempt = Attempt(
                candidate, past, clock=clock, stop=stop, residency=residency, strict=number == 1
            )
            served = attempt.run(lambda who: note(recipe.name, who))
        except Stopped:
            raise
        except Exception as error:  # noqa: BLE001 - a recipe that nobody can read keeps no other down
            why = f"its recipe cannot be followed: {type(error).__name__}: {error}"
            served = Served(recipe.name, "down", why=why, recipe=candidate)
        if served.state != "down":
            say("serving", service=recipe.name, state=served.state, load=served.load)
            if candidate.supervisor != recipe.supervisor:
                model = served.after.get("model_path") or served.after.get("model_id")
                what = f"another recipe ({model})" if model else "another recipe"
                other = f"started with {what}, since: {'; '.join(dict.fromkeys(reasons))}"
                served = dataclasses.replace(
                    served, state="degraded", identity="different", why=other
                )
            return dataclasses.replace(served, tries=number)
        say("failed", service=recipe.name, attempt=number, why=served.why)
        reasons.append(served.why)
        if served.stuck:
            break
    why = "; ".join(dict.fromkeys(reasons))
    return Served(recipe.name, "down", tries=len(reasons), why=why, recipe=recipe)


def residency_by_tool(pids: set[int]) -> float | None:
    """MiB of GPU memory these processes hold by nvidia-smi; None where it cannot tell."""
    code, said = world.quiet(
        ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"],
        within=10,
    )
    if code != 0:
        return None
    total, seen = 0.0, False
    for line in said.splitlines():
        pid, _, mib = (part.strip() for part in line.partition(","))
        if pid.isdigit() and int(pid) in pids:
            if not mib.replace(".", "", 1).isdigit():
                return None
            total, seen = total + float(mib), True
    return total if seen or not pids else 0.0
