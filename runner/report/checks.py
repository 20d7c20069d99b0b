"""What `runner explain` and docs/reference/checks.md say, made from the checks themselves."""

from collections.abc import Iterator
from typing import Any, get_args

from preflight.check import Check, Explained
from preflight.rings import AnyCheck
from preflight.verdict import BlastRadius
from preflight.wording import seconds
from runner.beginning import EXPLAINED as BEGINNING
from runner.plan import EXPLAINED as GIVEN

Json = dict[str, Any]

_GATE = Explained(
    "gate.recheck",
    reads="the cheap checks again, right before the first stop, each within 2 s",
    passes="nothing has changed since it was checked",
    fails="a check refuses now, or its facts are other ones, even if they are in order again: "
    "somebody is at work on this box",
    remedies=("run it again; if it refuses again, see who is working on this box",),
)


def kinds() -> tuple[type[Check], ...]:
    """Every kind of check there is, by the table of the rings."""
    return get_args(get_args(AnyCheck)[0])


def explanations() -> list[Json]:
    """Every id that a verdict can carry, in the order of the rings; plain JSON."""
    found: dict[str, Json] = {}
    for kind in sorted(kinds(), key=lambda kind: kind.radius):
        for one in kind.explains:
            found.setdefault(one.id, _of_kind(kind, one))
    for one, radius, about in (*BEGINNING, *GIVEN):
        found[one.id] = _plain(one, radius, about)
    found[_GATE.id] = _plain(_GATE, BlastRadius.PRODUCTION, "the last look before the stop")
    order = [radius.name.lower() for radius in BlastRadius]
    return sorted(found.values(), key=lambda one: order.index(one["ring"].split(" ")[-1]))


def _of_kind(kind: type[Check], one: Explained) -> Json:
    deadline = kind.model_fields["deadline_s"].default
    about = one.about or (kind.__doc__ or "").strip().splitlines()[0]
    said = _plain(one, kind.radius, about)
    never = kind.acceptable is not Check.acceptable and not _may_be_accepted(kind)
    return said | {
        "gate": kind.cheap,
        "deadline": seconds(deadline),
        "acceptable": not never,
    }


def _may_be_accepted(kind: type[Check]) -> bool:
    """Whether some of this kind may be accepted: those that are the job's own."""
    return "owner" in kind.model_fields


def _plain(one: Explained, radius: BlastRadius, about: str) -> Json:
    return {
        "id": one.id,
        "about": about,
        "ring": f"{radius.value} {radius.name.lower()}",
        "gate": False,
        "deadline": "none, it is known already",
        "reads": one.reads,
        "rules": dict(_rules(one)),
        "remedies": list(one.remedies),
        "acceptable": True,
    }


def _rules(one: Explained) -> Iterator[tuple[str, str]]:
    for state, rule in (
        ("pass", one.passes),
        ("warn", one.warns),
        ("fail", one.fails),
        ("unknown", one.unknown),
        ("skipped", one.skipped),
    ):
        if rule:
            yield state, rule
