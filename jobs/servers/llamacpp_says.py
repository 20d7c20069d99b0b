"""What llama-server says of itself: its pages, its replies. Knows no flags; judges nothing."""

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jobs import wire
from jobs.evidence import Evidence, Value, metrics, now
from jobs.servers.base import Answer

_LARGEST = 2**63
"""No count is larger; a float would overflow with it."""


def observe(
    base_url: str, api_key: str | None, *, deadline_s: float, arm: str
) -> tuple[Evidence, ...]:
    """`/props`, `/slots` and `/metrics`; a page that does not answer is said as `….absent`."""
    ends = time.monotonic() + deadline_s
    found: list[Evidence] = []
    for page, reads in (("/props", _props), ("/slots", _slots), ("/metrics", _metrics)):
        left = ends - time.monotonic()
        reply = wire.get(base_url, page, api_key=api_key, within_s=left)
        items = reads(reply, arm) if reply.ok else ()
        if not items:
            kind = f"{page[1:]}.absent"
            items = (Evidence(kind, f"GET {page}", reply.said(), None, now(), arm),)
        found += items
    return tuple(found)


def _props(reply: wire.Reply, arm: str) -> tuple[Evidence, ...]:
    said = reply.json()
    if not isinstance(said, dict):
        return ()
    settings = table(said.get("default_generation_settings"))
    known = {
        "n_ctx": count(settings.get("n_ctx")),
        "slots": count(said.get("total_slots")),
        "model_path": _text(said.get("model_path")),
        "build": _text(said.get("build_info")),
    }
    names = {"n_ctx": "default_generation_settings.n_ctx", "slots": "total_slots"}
    return tuple(
        _quote(kind, "GET /props", names.get(kind, kind), value, arm)
        for kind, value in known.items()
        if value is not None
    )


def _slots(reply: wire.Reply, arm: str) -> tuple[Evidence, ...]:
    said = reply.json()
    return tuple(
        _quote(f"slot.{key}", "GET /slots", f"slot {count(slot.get('id'))} {key}", value, arm)
        for slot in (said if isinstance(said, list) else ())
        if isinstance(slot, dict)
        for key, value in (
            ("n_ctx", count(slot.get("n_ctx"))),
            ("speculative", _switch(slot.get("speculative"))),
        )
        if value is not None
    )


def _metrics(reply: wire.Reply, arm: str) -> tuple[Evidence, ...]:
    return metrics(reply.text, prefix="llamacpp:", arm=arm, at=now())


def _quote(kind: str, source: str, name: str, value: Value, arm: str) -> Evidence:
    shown = str(value).lower() if isinstance(value, bool) else str(value)
    return Evidence(kind, source, f"{name} = {shown}", value, now(), arm)


def answer(events: Sequence[Any]) -> Answer:
    """The text of all events of a reply, and the timings of the last.

    `draft_n` is left out by the server when nothing was drafted, `prompt_n` does not count what the
    cache held (`cache_n`).
    """
    said = [event for event in events if isinstance(event, dict)]
    last = said[-1] if said else {}
    if "data" in last or "results" in last:
        usage = table(last.get("usage"))
        text = "vector" if last.get("data") or last.get("results") else ""
        return Answer(text=text, prompt_n=count(usage.get("prompt_tokens")), finish="stop")
    timings = table(last.get("timings"))
    return Answer(
        text=whole_text(str(event.get("content") or "") for event in said),
        prompt_n=count(timings.get("prompt_n")),
        prompt_ms=real_number(timings.get("prompt_ms")),
        cache_n=count(timings.get("cache_n")),
        predicted_n=count(timings.get("predicted_n")),
        predicted_ms=real_number(timings.get("predicted_ms")),
        drafted=count(timings.get("draft_n")),
        accepted=count(timings.get("draft_n_accepted")),
        finish={"limit": "length", "eos": "stop"}.get(str(last.get("stop_type")), ""),
        truncated=last.get("truncated") is True,
    )


def progress(event: Any) -> tuple[int, int] | None:
    """Prompt tokens done and in all, from the `prompt_progress` of a stream."""
    told = table(event.get("prompt_progress")) if isinstance(event, dict) else {}
    done, total = count(told.get("processed")), count(told.get("total"))
    return None if done is None or not total else (done, total)


def table(value: object) -> Mapping[str, Any]:
    """An object from JSON; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def whole_text(parts: Iterable[str]) -> str:
    """The parts of a text as one; a character that was cut in two by JSON escapes is whole again."""
    joined = "".join(parts)
    return joined.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def count(value: object) -> int | None:
    """A whole number from nought on, from JSON; None for anything else."""
    found = whole_number(value)
    return found if found is not None and found >= 0 else None


def whole_number(value: object) -> int | None:
    """A whole number from JSON or from a command line; None for anything else."""
    if isinstance(value, bool):
        return None
    try:
        found = int(value) if isinstance(value, int | float | str) else None
    except (ValueError, OverflowError):  # not a number, or infinite: Python's JSON knows both
        return None
    return found if found is not None and abs(found) < _LARGEST else None


def real_number(value: object) -> float | None:
    """A finite number from JSON; None for anything else."""
    if not isinstance(value, int | float) or isinstance(value, bool) or abs(value) >= _LARGEST:
        return None
    return float(value) if math.isfinite(value) else None


def _text(value: object) -> str | None:
    return whole_text(value) if isinstance(value, str) else None


def _switch(value: object) -> bool | None:
    return value if isinstance(value, bool) else None
