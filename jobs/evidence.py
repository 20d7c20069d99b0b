"""What was seen, word for word, with where and when. Judges nothing."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

Value = float | int | bool | str | None


def now() -> str:
    """This moment as ISO 8601 with offset, for evidence and samples."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@dataclass(frozen=True, slots=True)
class Evidence:
    """One verbatim line, counter or answer.

    `kind` says what it is about (`n_ctx`, `metric.…`, `delta.…`, `log.…`), `source` where it was
    seen, `said` the words there, `value` the number or word in them, `at` when, `arm` on which
    server of the run.
    """

    kind: str
    source: str
    said: str
    value: Value = None
    at: str = ""
    arm: str = "candidate"

    def to_json(self) -> dict[str, Value]:
        """The evidence as plain JSON."""
        return {
            "kind": self.kind,
            "source": self.source,
            "said": self.said,
            "value": self.value,
            "at": self.at,
            "arm": self.arm,
        }


def of(evidence: Iterable[Evidence], kind: str, arm: str = "candidate") -> tuple[Evidence, ...]:
    """The evidence of one kind from one arm, in order."""
    return tuple(item for item in evidence if item.kind == kind and item.arm == arm)


def number(evidence: Iterable[Evidence], kind: str, arm: str = "candidate") -> float | None:
    """The last number of this kind; None when nobody gave one."""
    found = None
    for item in of(evidence, kind, arm):
        if isinstance(item.value, int | float) and not isinstance(item.value, bool):
            found = float(item.value)
    return found


_SAMPLE = re.compile(r"^(?P<name>[A-Za-z_:][A-Za-z0-9_:]*)(?P<labels>\{[^}]*\})?\s+(?P<value>\S+)")


def metrics(text: str, *, prefix: str, arm: str, at: str) -> tuple[Evidence, ...]:
    """The samples of a Prometheus text page whose names begin with `prefix`, a `metric.…` each.

    What is no finite number counts nothing, and is left out.
    """
    found = []
    for line in text.splitlines():
        match = _SAMPLE.match(line)
        if match is None or not match["name"].startswith(prefix):
            continue
        value = _finite(match["value"])
        if value is None:
            continue
        kind = f"metric.{match['name'].removeprefix(prefix)}{match['labels'] or ''}"
        found.append(Evidence(kind, "GET /metrics", line.strip(), value, at, arm))
    return tuple(found)


def _finite(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def metrics_delta(before: Sequence[Evidence], after: Sequence[Evidence]) -> tuple[Evidence, ...]:
    """How far each counter moved between two looks, a `delta.…` each.

    A counter that is absent in a first look that had others began at nought: servers leave out the
    positions nobody drafted yet. Without a first look there is no difference, and none is invented.
    """
    first = {(item.kind, item.arm): item for item in before if item.kind.startswith("metric.")}
    arms = {arm for _, arm in first}
    moved = []
    for item in after:
        if not item.kind.startswith("metric.") or item.arm not in arms:
            continue
        start = first.get((item.kind, item.arm))
        was = start.value if start else 0.0
        if isinstance(was, int | float) and isinstance(item.value, int | float):
            kind = f"delta.{item.kind.removeprefix('metric.')}"
            said = f"{item.said} (was {was:g})"
            moved.append(Evidence(kind, item.source, said, item.value - was, item.at, item.arm))
    return tuple(moved)


def latest(evidence: Iterable[Evidence]) -> Mapping[tuple[str, str], Evidence]:
    """The last piece of evidence of each kind and arm."""
    return {(item.kind, item.arm): item for item in evidence}
