"""Does production serve now, and is it what the config says? Asked by GET alone.

Nothing is generated: it may be busy with somebody's long prompt, which is no fault.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple

from preflight.box import NOKEY, TIMEOUT, Answer, Box
from preflight.check import Check, Deadline, Explained
from preflight.verdict import BlastRadius, State, Verdict
from preflight.wording import clipped

DOWN_BEFORE = "down before us"
"""In the evidence of `prod.identity` when production did not serve when we came."""

_TOLD = 3


class _Identity(NamedTuple):
    """What production says it is, what of that is not as configured, and what it does not say."""

    values: dict[str, object]
    wrong: list[str]
    untold: list[str]
    role: str = ""
    sleeping: bool = False


class ProductionServes(Check):
    """Production answers now, and is what the config says it is."""

    id: ClassVar[str] = "prod.identity"
    radius: ClassVar[BlastRadius] = BlastRadius.PRODUCTION
    cheap: ClassVar[bool] = True
    explains: ClassVar[tuple[Explained, ...]] = (
        Explained(
            "prod.identity",
            reads="GET /health, then each address that tells what it is (/props, /v1/models); "
            "nothing is generated, no sleeping server is woken, no router is made to load a model",
            passes="it serves, and model, context and slots are as configured; they are kept to be "
            "compared after the restore",
            warns="it sleeps until somebody asks",
            fails="nobody listens (down before us: nothing is started), it is not ready or not well, "
            "it is another model or smaller than configured, it is a router",
            unknown="it wants an API key, gives no answer in time, or does not tell a value that is "
            "expected",
            remedies=(
                "bring production up first",
                "name api_key for this service",
                "mend runner.toml, or production",
            ),
        ),
    )

    kind: Literal["serves"] = "serves"
    name: str
    base_url: str = ""
    probe: dict[str, Any]
    deadline_s: float = 15.0

    @property
    def subject(self) -> str:
        """The service with its address."""
        return f"{self.name} at {self._base}"

    @property
    def acceptable(self) -> bool:
        """Never: what production is has to be known, to be known again."""
        return False

    @property
    def _base(self) -> str:
        return (self.base_url or str(self.probe.get("base", ""))).rstrip("/")

    @property
    def _key(self) -> Mapping[str, str] | None:
        found = self.probe.get("api_key")
        return found if isinstance(found, dict) else None

    def look(self, box: Box) -> Verdict:
        """Health first, then each value of its identity. Nothing is generated: it may be busy."""
        time = Deadline(self.deadline_s)
        health = str(self.probe.get("health", "/health"))
        answer = box.ask(self._base + health, within=time.left(), key=self._key)
        if answer.fault:
            return self._unanswered(answer, health)
        if answer.status != 200:
            return self._unwell(answer, health)
        return self._judged(self._identity(box, time))

    def _judged(self, seen: _Identity) -> Verdict:
        """What it says it is, beside what it should be."""
        if seen.role == "router":
            return self._says(
                State.FAIL,
                "is a router that loads models for whoever asks: none of them is production",
                remedy="name the port of the server behind it, with a supervisor of its own",
            )
        evidence = tuple(f"{name}: {clipped(str(is_), 200)}" for name, is_ in seen.values.items())
        if seen.wrong:
            return self._says(
                State.FAIL,
                "; ".join(seen.wrong[:_TOLD]),
                remedy="mend runner.toml, or production",
                evidence=evidence,
            )
        if seen.untold:
            return self._says(
                State.UNKNOWN,
                "; ".join(seen.untold[:_TOLD]),
                remedy="see whether it needs an API key, or leave the expectation out",
                evidence=evidence,
            )
        said = ", ".join(f"{name} {clipped(str(is_), 40)}" for name, is_ in seen.values.items())
        if seen.sleeping:
            return self._says(
                State.WARN,
                f"serves, and sleeps: its model is not in memory until somebody asks ({said})",
                remedy="nothing: it was not woken; what it holds of the GPU now is not what it needs",
                evidence=evidence,
                seen=json.dumps(seen.values, sort_keys=True, default=str),
            )
        return self._says(
            State.PASS,
            f"serves ({said or 'healthy'})",
            evidence=evidence,
            seen=json.dumps(seen.values, sort_keys=True, default=str),
        )

    def _identity(self, box: Box, time: Deadline) -> _Identity:
        """Every value that the probe names, each address asked once."""
        seen = _Identity({}, [], [])
        answers: dict[str, Answer] = {}
        for row in self.probe.get("identity", ()):
            path = str(row.get("path", ""))
            if path not in answers:
                answers[path] = box.ask(self._base + path, within=time.left(), key=self._key)
            name = str(row.get("name", path))
            value = _at(answers[path], row.get("at", ()))
            if value is None:
                if row.get("how") != "record":
                    seen.untold.append(f"{name} is not told by GET {path} ({_said(answers[path])})")
                continue
            seen.values[name] = value
            if not _agrees(value, row):
                least = "at least " if row.get("how") == "at_least" else ""
                seen.wrong.append(f"{name} is {value}, config says {least}{row.get('want')}")
        props = next((one for path, one in answers.items() if path.endswith("/props")), None)
        if props is not None:
            role, sleeps = _at(props, ["role"]), _at(props, ["is_sleeping"])
            seen = seen._replace(role=str(role or ""), sleeping=sleeps is True)
        return seen

    def _says(self, state: State, found: str, **more: Any) -> Verdict:
        return self.says(state, found, wanted="a serving production as configured", **more)

    def _unanswered(self, answer: Answer, health: str) -> Verdict:
        if answer.fault == "ECONNREFUSED":
            return self._says(
                State.FAIL,
                "is down: nothing listens there",
                remedy="nothing was started: it may be down on purpose; bring it up first",
                evidence=(DOWN_BEFORE,),
            )
        if answer.fault == NOKEY:
            return self._says(State.UNKNOWN, answer.said, remedy="mend api_key of this service")
        word = "timeout" if answer.fault == TIMEOUT else answer.fault
        return self._says(
            State.UNKNOWN,
            f"does not answer: {answer.said} ({word})",
            remedy=f"try: curl {self._base}{health}",
        )

    def _unwell(self, answer: Answer, health: str) -> Verdict:
        if answer.status in (401, 403):
            return self._says(
                State.UNKNOWN,
                f"wants an API key for GET {health} ({answer.status})",
                remedy="name api_key for this service",
            )
        if answer.status == 503:
            return self._says(
                State.FAIL,
                f"is not ready: GET {health} says 503, {clipped(answer.body.strip(), 80)}",
                remedy="wait until it serves",
                evidence=(DOWN_BEFORE,),
            )
        return self._says(
            State.FAIL,
            f"is not well: GET {health} says {answer.status}",
            remedy=f"try: curl {self._base}{health}",
            evidence=(DOWN_BEFORE,) if answer.status >= 500 else (),
        )


def _at(answer: Answer, path: object) -> object | None:
    """The value at a path of keys and positions in a JSON answer; None when it is not there."""
    if answer.fault or answer.status != 200:
        return None
    try:
        value: Any = json.loads(answer.body)
        for step in path if isinstance(path, list | tuple) else (path,):
            value = value[step]
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        return None
    return None if value is None else value


def _agrees(value: object, row: Mapping[str, Any]) -> bool:
    want = row.get("want")
    match row.get("how"):
        case "equals":
            return bool(value == want)
        case "at_least":
            if not isinstance(value, int | float) or not isinstance(want, int | float):
                return False
            return value >= want
        case _:
            return True


def _said(answer: Answer) -> str:
    if answer.status in (401, 403):
        return f"{answer.status}: it wants an API key"
    return answer.said or answer.fault or f"status {answer.status}"
