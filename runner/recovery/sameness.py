"""Whether what serves now is what served before. It asks the server, and starts and stops nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runner.recovery import probe
from runner.recovery.recipe import Recipe

_SAME = ("model_path", "model_id", "context", "slots")


@dataclass(frozen=True, slots=True)
class Sameness:
    """`identity` is "same", "different" or "unknown"; `why` names what makes it a lesser one than
    before (empty when nothing does); `notes` are differences that a person may want to know.
    """

    identity: str
    why: str = ""
    notes: tuple[str, ...] = ()


def differences(known: Mapping[str, Any], found: Mapping[str, Any]) -> list[str] | None:
    """What makes it another server, each with both values; None when nothing is known of before."""
    compared = [name for name in _SAME if name in known]
    if not compared:
        return None
    return [
        f"{name} was {known[name]}, is {found.get(name)}"
        for name in compared
        if found.get(name) != known[name]
    ]


def compare(recipe: Recipe, look: probe.Look, gpu_mib: float | None) -> Sameness:
    """Compare the answers of now with those on record. `gpu_mib`: what its processes hold now."""
    before = recipe.identity
    known = before.get("said") or {}
    differs = differences(known, look.identity)
    why = list(differs or ())
    held = before.get("gpu_mib")
    if held and gpu_mib is not None and gpu_mib < held / 2:
        why.append(f"it holds {gpu_mib:.0f} MiB on the GPU, held {held:.0f}: back on the CPU?")
    notes = _greedy(recipe, before.get("greedy"))
    if known.get("build") and look.identity.get("build") != known["build"]:
        notes += (f"build was {known['build']}, is {look.identity.get('build')}",)
    identity = "different" if differs else "same" if differs is not None else "unknown"
    return Sameness(identity, "; ".join(why), notes)


def _greedy(recipe: Recipe, before: str | None) -> tuple[str, ...]:
    """The soft proof: near ties are real, so a different greedy answer is only worth a note."""
    if not before:
        return ()
    for _ in range(2):
        look, now = probe.complete(recipe.probe, which="greedy")
        if look.serving and now == before:
            return ()
    return (f"{recipe.name}: the greedy answer differs from the one before",)
