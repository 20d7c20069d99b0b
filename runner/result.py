"""The one object that a run becomes: what `--json`, result.json, alerts and `show` are made of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from jobs.evidence import of
from jobs.samples import Sample, decoding_tps, measured, prompt_tps
from preflight.check import Check
from preflight.verdict import State, Verdict
from runner import logs
from runner.measure import Measured, log_name
from runner.outcome import Outcome, exit_code
from runner.production import Found
from runner.recovery import account
from runner.recovery.account import Scale
from runner.recovery.attempt import Served
from runner.recovery.probe import Look

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ended and why, in one sentence; `by` is the signal of an interruption."""

    outcome: Outcome
    why: str = ""
    by: str = "INT"

    @property
    def code(self) -> int:
        """The exit code of the table."""
        return exit_code(self.outcome, self.by)


@dataclass
class Draft:
    """What is known of a run so far."""

    run: str
    job: str
    question: str
    trigger: str
    started: str
    directory: Path
    services: int = 0
    """How many services the configuration names, also where none was looked at."""
    found: Sequence[Found] = ()
    checks: Sequence[Check] = ()
    """What was asked before the stop; its files are recorded when the run has proven its claims."""
    verdicts: list[Verdict] = field(default_factory=list)
    measured: Measured = field(default_factory=Measured)
    claims: list[Json] = field(default_factory=list)
    served: list[Served] | None = None
    stopped_at: Mapping[str, float] = field(default_factory=dict)
    """Service → when it was asked to stop, as CLOCK_BOOTTIME."""
    notes: list[str] = field(default_factory=list)
    down_before: bool = False
    slot: str | None = None
    """When it was due by its schedule; None for a run that nobody scheduled."""
    again_until: str | None = None


def production(draft: Draft, scale: Scale) -> Json:
    """What became of production: restored services as they serve now, others as they were found."""
    served = {one.name: one for one in draft.served or ()}
    services: list[Json] = []
    for found in draft.found:
        name = found.service.name
        stopped = draft.stopped_at.get(name)
        stands = served.get(name) or _untouched(found)
        services.append(
            account.service(
                found.recipe, stands, stopped=stopped, scale=scale, untouched=stopped is None
            )
        )
    said = account.production(services)
    return said | {"state": "unknown"} if draft.services and not services else said


def _untouched(found: Found) -> Served:
    look: Look = found.look
    if look.serving:
        return Served(found.service.name, "serving", "same", after=dict(look.identity))
    return Served(found.service.name, "down-before", why=look.why)


def to_json(draft: Draft, ending: Ending, scale: Scale) -> Json:
    """The whole object; its headline and its alert are the report's to write."""
    contended = _contended(draft) if draft.measured.samples else []
    return {
        "run": draft.run,
        "job": draft.job,
        "question": draft.question,
        "outcome": str(ending.outcome),
        "exit_code": ending.code,
        "headline": "",
        "why": ending.why,
        "trigger": draft.trigger,
        "slot": draft.slot,
        "again_until": draft.again_until,
        "started": draft.started,
        "ended": scale.iso(scale.now),
        "production": production(draft, scale),
        "checks": [verdict.to_json() for verdict in draft.verdicts],
        "claims": draft.claims,
        "measurements": measurements(draft.measured, contended=bool(contended)),
        "notes": [*draft.measured.notes, *draft.notes, *contended, *_lost()],
        "log_lost": logs.lost(),
        "artifacts": artifacts(draft),
    }


def _contended(draft: Draft) -> list[str]:
    """Somebody else kept the machine busy when it was looked at: numbers scatter then."""
    return [
        f"measured on a contended machine: {one.found}"
        for one in draft.verdicts
        if one.id == "host.load" and one.state is State.WARN
    ]


def _lost() -> list[str]:
    """A full disk or a closed terminal behind standard error, which nobody would notice there."""
    return [f"{count} log lines could not be written"] if (count := logs.lost()) else []


def artifacts(draft: Draft) -> Json:
    """Where to look next; only files that are there."""
    named = {
        "dir": draft.directory,
        "candidate_log": draft.directory / log_name("candidate"),
        "baseline_log": draft.directory / log_name("baseline"),
        "evidence": draft.directory / "evidence.jsonl",
        "samples": draft.directory / "samples.jsonl",
        "result": draft.directory / "result.json",
    }
    return {name: str(path) for name, path in named.items() if path.exists() or name == "result"}


def measurements(measured_: Measured, *, contended: bool = False) -> Json:
    """Medians by arm and temperature, recomputed from raw counts; None where nothing counts."""
    arms = list(dict.fromkeys(sample.arm for sample in measured_.samples))
    return {
        arm: {
            "ready_s": measured_.ready_s.get(arm),
            "build": _build(measured_, arm),
            "contended": contended,
            "replies": [_group(group) for group in _groups(measured(measured_.samples, arm))],
        }
        for arm in arms
    }


def _build(measured_: Measured, arm: str) -> str | None:
    """The build that really ran, as the server said it of itself."""
    said = [one.value for one in of(measured_.evidence, "build", arm)]
    return str(said[-1]) if said and said[-1] else None


def _groups(samples: Sequence[Sample]) -> list[list[Sample]]:
    """Replies that may be compared: the same temperature, the same fill."""
    groups: dict[tuple[float | None, float], list[Sample]] = {}
    for sample in samples:
        groups.setdefault((sample.fill, sample.temperature), []).append(sample)
    return list(groups.values())


def _group(samples: Sequence[Sample]) -> Json:
    decoding = [rate for sample in samples if (rate := decoding_tps(sample)) is not None]
    prompt = [rate for sample in samples if (rate := prompt_tps(sample)) is not None]
    drafted = sum(sample.drafted or 0 for sample in samples)
    accepted = sum(sample.accepted or 0 for sample in samples)
    return {
        "temperature": samples[0].temperature,
        "fill": samples[0].fill,
        "filled_tokens": max((sample.filled or 0 for sample in samples), default=0),
        "n": len(samples),
        "decoding_tps": round(median(decoding), 2) if decoding else None,
        "prompt_tps": round(median(prompt), 2) if prompt else None,
        "drafted": drafted,
        "accepted": accepted,
        "acceptance": round(accepted / drafted, 4) if drafted else None,
    }
