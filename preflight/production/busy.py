"""Is somebody being served just now? Asked so that no server wakes up and no router loads a model.

A sleeping llama-server loads its model again for GET /slots or /metrics (b10434), a router for any
question about a model; /health and /props wake nobody. Where a server does not tell, open
connections do: without any, nobody waits for an answer.
"""

from __future__ import annotations

import json
import re
from typing import Any, ClassVar, Literal, NamedTuple

from preflight.box import TIMEOUT, Answer, Box
from preflight.check import Deadline, Explained
from preflight.production.control import OfRecipe
from preflight.verdict import State, Verdict
from preflight.wording import seconds

_WORKING = re.compile(
    r"^(?:llamacpp:requests_(?:processing|deferred)|vllm:num_requests_(?:running|waiting)"
    r"|sglang:num_(?:running_reqs|queue_reqs))(?:\{[^}]*\})?\s+([0-9.eE+]+)",
    re.MULTILINE,
)
"""Requests at work or in line, as llama.cpp (README of its server), vLLM and SGLang count them."""
_ONE_S = 3.0
"""How long one question may take. A server that is busy enough answers none."""


class _Told(NamedTuple):
    """Requests at work; None where nobody tells, and then how that is known."""

    working: int | None
    said: str


class Busy(OfRecipe):
    """Nobody waits for an answer of this service."""

    id: ClassVar[str] = "prod.busy"
    explains: ClassVar[tuple[Explained, ...]] = (
        Explained(
            "prod.busy",
            reads="GET /props (asleep, router), then /slots or /metrics of a server that is awake; "
            "where it does not tell, open connections to its port",
            passes="no request is at work, it sleeps, or nobody is connected",
            warns="requests are at work, or connections are open and it does not tell: a run waits "
            "up to idle_within",
            fails="requests are still at work after idle_within",
            unknown="connections are still open after idle_within, and it does not tell whether "
            "anybody waits for an answer",
            remedies=(
                "raise idle_within, or ask its clients to pause",
                "start it with --slots or --metrics",
                "accept prod.busy with a reason, if the open connections are known to be idle",
            ),
        ),
    )

    kind: Literal["busy"] = "busy"
    within_s: float = 300.0
    """How long a run waits for requests in flight."""
    waited: bool = False
    """Whether that time is over."""
    deadline_s: float = 10.0

    @property
    def subject(self) -> str:
        """The service."""
        return f"requests to {self.service}"

    def look(self, box: Box) -> Verdict:
        """Ask what costs nothing first."""
        told = self._told(box, Deadline(self.deadline_s))
        wanted = "nobody who waits for an answer"
        if told.working == 0:
            return self.says(State.PASS, told.said, wanted=wanted)
        if not self.waited:
            found = f"{told.said}; a run waits up to {seconds(self.within_s)} for that"
            return self.says(State.WARN, found, wanted=wanted, remedy="nothing, or wait")
        found = f"{told.said}, after {seconds(self.within_s)}"
        if told.working is None:
            remedy = "start it with --slots or --metrics, or accept prod.busy with a reason"
            return self.says(State.UNKNOWN, found, wanted=wanted, remedy=remedy)
        remedy = "raise idle_within, or ask its clients to pause"
        return self.says(State.FAIL, found, wanted=wanted, remedy=remedy)

    def _told(self, box: Box, time: Deadline) -> _Told:
        """By its own word, else by who is connected."""
        prefix, asks = _prefix(self.recipe), True
        if prefix is not None:
            props = _json(self._ask(box, f"{prefix}/props", time))
            if isinstance(props, dict) and props.get("is_sleeping"):
                return _Told(0, "it sleeps")
            asks = isinstance(props, dict) and props.get("role") != "router"
        if asks:
            for path, count in (("/slots", _slots), ("/metrics", _metrics)):
                if path == "/slots" and prefix is None:
                    continue
                answer = self._ask(box, f"{prefix or ''}{path}", time)
                if answer.fault == TIMEOUT:
                    return _Told(1, f"it gives GET {path} no answer: it is busy")
                working = count(answer)
                if working is not None:
                    return _Told(working, _requests(working))
        return self._by_connections(box)

    def _ask(self, box: Box, path: str, time: Deadline) -> Answer:
        probe = self.recipe.get("probe")
        known: dict[str, Any] = probe if isinstance(probe, dict) else {}
        key = known.get("api_key")
        return box.ask(
            str(known.get("base", "")).rstrip("/") + path,
            within=min(_ONE_S, time.left()),
            key=key if isinstance(key, dict) else None,
        )

    def _by_connections(self, box: Box) -> _Told:
        port = self.recipe.get("port")
        count = box.connections(port) if isinstance(port, int) else None
        if count == 0:
            return _Told(0, "nobody is connected")
        if count is None:
            return _Told(None, "it does not tell whether it works, nor does the kernel")
        are = "1 connection is" if count == 1 else f"{count} connections are"
        return _Told(None, f"{are} open, and it does not tell whether anybody waits")


def asleep(recipe: dict[str, Any], box: Box) -> bool:
    """Whether a server has put its model away until somebody asks. Asking this does not wake it."""
    prefix = _prefix(recipe)
    if prefix is None:
        return False
    props = _json(Busy(recipe=recipe)._ask(box, f"{prefix}/props", Deadline(_ONE_S)))  # noqa: SLF001 - the same page
    return isinstance(props, dict) and bool(props.get("is_sleeping"))


def _prefix(recipe: dict[str, Any]) -> str | None:
    """What stands before /props in its addresses; None for a server without it."""
    probe = recipe.get("probe")
    rows = probe.get("identity", ()) if isinstance(probe, dict) else ()
    paths = (str(row.get("path", "")) for row in rows)
    return next((path.removesuffix("/props") for path in paths if path.endswith("/props")), None)


def _json(answer: Answer) -> object:
    if answer.fault or answer.status != 200:
        return None
    try:
        return json.loads(answer.body)
    except (ValueError, RecursionError):
        return None


def _slots(answer: Answer) -> int | None:
    said = _json(answer)
    if not isinstance(said, list):
        return None
    return sum(bool(slot.get("is_processing")) for slot in said if isinstance(slot, dict))


def _metrics(answer: Answer) -> int | None:
    """Requests at work and in line; None where none of the counters is there."""
    found = _WORKING.findall(answer.body) if answer.status == 200 and not answer.fault else []
    try:
        return round(sum(map(float, found))) if found else None
    except (ValueError, OverflowError):
        return None


def _requests(count: int) -> str:
    if count == 0:
        return "no request is at work"
    return "1 request is at work" if count == 1 else f"{count} requests are at work"
