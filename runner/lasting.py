"""How long a night will be: the workload's size at the speeds of earlier runs. Pure; measures nothing.

What was never measured is not guessed: it is named, and the sum is then what is known to be needed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from jobs.corpus import CATEGORIES
from jobs.fields import in_words
from jobs.job import Job, Workload
from preflight.given import Given
from preflight.verdict import State

_ALMOST = 0.9
"""A night that needs more than this share of its budget is worth a warning."""
_LOOKED_AT = 20
"""So many earlier runs tell how fast things are."""

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Lasts:
    """The parts of a night in seconds, and what nobody can tell before a first run."""

    parts: tuple[tuple[str, float], ...]
    untold: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """All that is known to be needed."""
        return sum(seconds for _, seconds in self.parts)

    def words(self) -> str:
        """The parts for people."""
        told = [
            f"{name} {in_words(round(seconds))}" for name, seconds in self.parts if seconds >= 1
        ]
        return f" ({' + '.join(told)})" if told else ""


def earlier(history: Sequence[Json]) -> tuple[Json, ...]:
    """The measurements of earlier runs, newest first, as far as there are any."""
    found = (run.get("measurements") for run in history[:_LOOKED_AT])
    return tuple(one for one in found if isinstance(one, Mapping) and one)


def lasts(
    job: Job, contexts: Mapping[str, int | None], history: Sequence[Json], *, way_back: float
) -> Lasts:
    """From the first stop to serving again.

    `contexts` are the arms with the tokens that one request may use, `history` the results of
    earlier runs of this job, newest first, `way_back` what is kept for the restore, in seconds.
    """
    if job.candidate.is_task:
        return _task(history, way_back)
    runs = earlier(history)
    parts: list[tuple[str, float]] = []
    untold: list[str] = []
    for arm, context in contexts.items():
        load = _seconds(_ready(runs, arm))
        if load is None:
            untold.append(f"how long the {arm} loads")
        else:
            parts.append((f"{arm} loads", load))
        work = _work(job.workload, context, runs, arm)
        if work is None:
            untold.append(f"how fast the {arm} is")
        else:
            parts.append((f"{arm} measured", work))
    parts.append(("the way back", way_back))
    return Lasts(tuple(parts), tuple(untold))


def _task(history: Sequence[Json], way_back: float) -> Lasts:
    """A task tells nothing of its speed, so whole nights are taken: those in which it ended well."""
    ended = [run for run in history[:_LOOKED_AT] if run.get("outcome") in ("proven", "refuted")]
    downs = [(run.get("production") or {}).get("downtime_s") for run in ended]
    down = _seconds([float(one) for one in downs if isinstance(one, int | float)])
    if down is None:
        return Lasts((("the way back", way_back),), ("how long the task works",))
    return Lasts((("as in earlier nights", down),))


def _seconds(found: Sequence[float]) -> float | None:
    return median(found) if found else None


def _ready(runs: Sequence[Json], arm: str) -> list[float]:
    times = ((run.get(arm) or {}).get("ready_s") for run in runs)
    return [float(one) for one in times if isinstance(one, int | float)]


def _work(work: Workload, context: int | None, runs: Sequence[Json], arm: str) -> float | None:
    """Seconds that the requests of one arm take; None where a speed is not known."""
    groups = list(_groups(runs, arm)) or [
        group for run in runs for name in run for group in _groups((run,), name)
    ]
    prompts = _prompts(work, groups)
    if prompts is None:
        return None
    spent = 0.0
    for temperature in work.temperatures:
        speed = _speed(groups, "decoding_tps", temperature, None)
        if speed is None:
            return None
        replies = prompts * work.repeats
        if temperature == work.temperatures[0]:
            replies += work.warmups
        spent += replies * work.max_tokens / speed
    deep = _deep(work, context, groups)
    return None if deep is None else spent + deep


def _deep(work: Workload, context: int | None, groups: Sequence[Json]) -> float | None:
    spent = 0.0
    for fill in work.fill:
        reading = _speed(groups, "prompt_tps", None, fill)
        if reading is None or context is None:
            return None
        spent += fill * context / reading
        for temperature in work.temperatures:
            speed = _speed(groups, "decoding_tps", temperature, fill)
            if speed is None:
                return None
            spent += work.repeats_at_depth * work.max_tokens / speed
    return spent


def _groups(runs: Sequence[Json], arm: str) -> Iterator[Json]:
    for run in runs:
        yield from (run.get(arm) or {}).get("replies") or ()


def _speed(
    groups: Sequence[Json], key: str, temperature: float | None, fill: float | None
) -> float | None:
    """Tokens a second as the newest runs had them; at another temperature where it must be."""
    there = [group for group in groups if group.get("fill") == fill and group.get(key)]
    same = [group for group in there if temperature in (None, group.get("temperature"))]
    found = [float(group[key]) for group in (same or there)]
    return found[0] if found and found[0] > 0 else None


def _prompts(work: Workload, groups: Sequence[Json]) -> int | None:
    """How many prompts there are; those of a file as many as an earlier run measured."""
    if work.prompts.startswith("builtin:"):
        return len(CATEGORIES) if work.prompts == "builtin:mixed" else 1
    counts = [int(group["n"]) for group in groups if group.get("fill") is None and group.get("n")]
    return max(1, round(counts[0] / work.repeats)) if counts else None


def time_check(lasting: Lasts, budget: float, *, stops: bool) -> Given:
    """Whether the night is long enough: "needs about 31m of 40m"."""
    at_least = "at least" if lasting.untold else "about"
    needed, whole = in_words(max(1, round(lasting.seconds))), in_words(round(budget))
    found = f"needs {at_least} {needed} of {whole}{lasting.words()}"
    if lasting.untold:
        found += f"; a first run tells {' and '.join(lasting.untold)}"
    short = stops and lasting.seconds >= budget
    tight = stops and lasting.seconds >= _ALMOST * budget
    return Given(
        name="self.time",
        about="the night",
        state=State.FAIL if short else State.WARN if tight else State.PASS,
        found=found,
        wanted="production back within the downtime budget",
        remedy="raise downtime_budget, measure less, or lower ready_within of the services"
        if tight
        else "",
    )
