"""Asks a server whether it serves, and whether it is the one we know. It starts and stops nothing.

The questions are plain JSON, made by the server's kind and kept in the recipe:

    {"base": "http://127.0.0.1:8080", "api_key": {"file": "/…"} | {"env": "NAME"} | null,
     "health": "/health",
     "identity": [{"name": "context", "path": "/props", "at": ["…", "n_ctx"],
                   "want": 200000, "how": "at_least" | "equals" | "record"}],
     "completion": {"path": "/completion", "body": {…}, "counted": ["timings", "predicted_n"],
                    "text": ["content"]},
     "greedy": {the same shape}}
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

_LARGEST_ANSWER = 8 << 20

Json = dict[str, Any]


class _Bounded(socket.socket):
    """A socket whose whole life has a deadline: a server that drips bytes cannot hold us."""

    ends = 0.0

    def _left(self) -> float:
        left = self.ends - time.monotonic()
        if left <= 0:
            raise TimeoutError("the answer took too long")
        return left

    def recv_into(self, *args: Any, **kwargs: Any) -> int:
        """As socket.recv_into, within what is left of the deadline."""
        self.settimeout(self._left())
        return super().recv_into(*args, **kwargs)

    def sendall(self, *args: Any, **kwargs: Any) -> None:
        """As socket.sendall, within what is left of the deadline."""
        self.settimeout(self._left())
        super().sendall(*args, **kwargs)


class _Connection(http.client.HTTPConnection):
    """One request, one connection, one deadline; no proxy from the environment is ever asked."""

    within = 1.0

    def connect(self) -> None:
        """Connect within the deadline."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        bounded = _Bounded(family, socket.SOCK_STREAM)
        bounded.ends = time.monotonic() + self.within
        bounded.settimeout(self.within)
        try:
            bounded.connect((self.host, self.port))
        except OSError:
            bounded.close()
            raise
        self.sock = bounded


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: the status, and the body as JSON (None when it is none)."""

    status: int
    said: Any
    text: str


def fetch(
    url: str, *, within: float, body: Json | None = None, key: str | None = None
) -> Answer | str:
    """GET, or POST when there is a body; the answer, or why there is none."""
    parts = urlsplit(url)
    try:
        connection = _Connection(parts.hostname or "", parts.port or 80)
    except ValueError as error:
        return f"{url}: {error}"
    connection.within = within
    headers = {"Connection": "close"} | ({"Authorization": f"Bearer {key}"} if key else {})
    sent = None
    if body is not None:
        sent = json.dumps(body).encode()
        headers["Content-Type"] = "application/json"
    try:
        connection.request("GET" if body is None else "POST", parts.path or "/", sent, headers)
        response = connection.getresponse()
        text = response.read(_LARGEST_ANSWER).decode("utf-8", "replace")
        status = response.status
    except (OSError, http.client.HTTPException) as error:
        return f"{parts.path or '/'}: {str(error) or type(error).__name__}"
    except ValueError:  # its own text would show the key
        return f"{parts.path or '/'}: the API key cannot be sent"
    finally:
        connection.close()
    try:
        return Answer(status, json.loads(text), text)
    except ValueError:
        return Answer(status, None, text)


def dig(said: Any, at: Sequence[str | int]) -> Any:
    """The value at a path of keys and indexes; None when there is none."""
    for step in at:
        try:
            said = said[step]
        except (LookupError, TypeError):
            return None
    return said


def api_key(probe: Mapping[str, Any]) -> str | None:
    """The key a probe names, read anew each time; None when it names none or it cannot be read."""
    named = probe.get("api_key") or {}
    if path := named.get("file"):
        places = [Path(path)]
        if own := os.environ.get("CREDENTIALS_DIRECTORY"):
            # a systemd credential lies elsewhere for each unit, and goes with the unit that had it
            places.append(Path(own) / places[0].name)
        return next((key for place in places if (key := _first_key(place))), None)
    if name := named.get("env"):
        return os.environ.get(name)
    return None


def _first_key(path: Path) -> str | None:
    """The first key in a file: a server's own key file has one a line, and remarks."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return None
    keys = (line.strip() for line in lines)
    return next((key for key in keys if key and not key.startswith("#")), None)


@dataclass(frozen=True, slots=True)
class Look:
    """What a server said of itself.

    `state` is "serving" (health, identity and a counted completion), "loading" (there, not ready),
    "silent" (nobody answers), "wrong" (it answers, but it is not what we know), "locked" (it asks
    for a key that we do not have here) or "mute" (healthy, but it completes nothing).
    """

    state: str
    why: str = ""
    identity: Json = field(default_factory=dict)

    @property
    def serving(self) -> bool:
        """Whether it does what it is there for."""
        return self.state == "serving"


def health(probe: Mapping[str, Any], *, within: float = 2.0) -> Look:
    """Only whether it answers and is not loading; wakes nothing, asks for no completion."""
    path = probe.get("health") or "/health"
    answer = fetch(probe["base"] + path, within=within, key=api_key(probe))
    if isinstance(answer, str):
        return Look("silent", answer)
    if answer.status == 200:
        return Look("serving")
    return _not_yet(path, answer) or Look("loading", f"{path} answers {answer.status}")


def _not_yet(path: str, answer: Answer) -> Look | None:
    """What an answer tells that is neither the one asked for nor a difference."""
    if answer.status in {401, 403}:
        return Look("locked", f"{path} answers {answer.status}: it asks for another key")
    if answer.status >= 500:  # also a proxy whose server is not up yet
        return Look("loading", f"{path} answers {answer.status}")
    return None


def _differs(how: str, want: Any, found: Any) -> bool:
    if how == "record" or want is None:
        return False
    if how == "at_least":
        return not isinstance(found, int | float) or found < want
    return bool(found != want)


def identity(probe: Mapping[str, Any], *, within: float = 5.0) -> Look:
    """Who it says it is: "serving" with its identity, or "wrong" naming what differs."""
    key, known = api_key(probe), Json()
    answers: dict[str, Answer | str] = {}
    for question in probe.get("identity", ()):
        path = question["path"]
        if path not in answers:
            answers[path] = fetch(probe["base"] + path, within=within, key=key)
        answer = answers[path]
        if isinstance(answer, str):
            return Look("silent", answer, known)
        if not_yet := _not_yet(path, answer):
            return Look(not_yet.state, not_yet.why, known)
        found = dig(answer.said, question["at"]) if answer.status == 200 else None
        name, how = question["name"], question.get("how", "record")
        if found is not None:
            known[name] = found
        if _differs(how, question.get("want"), found):
            said = found if answer.status == 200 else f"status {answer.status} from {path}"
            wanted = f"{'at least ' if how == 'at_least' else ''}{question['want']}"
            return Look("wrong", f"{name} is {said}, wanted {wanted}", known)
    return Look("serving", identity=known)


def complete(
    probe: Mapping[str, Any], *, within: float = 60.0, which: str = "completion"
) -> tuple[Look, str]:
    """One real answer: "serving" with its text, "loading", or "mute" with what came instead.

    A server may be healthy with no model loaded, so only a counted, non-empty answer counts.
    """
    asked = probe.get(which)
    if not asked:
        return Look("serving"), ""
    answer = fetch(
        probe["base"] + asked["path"], within=within, body=asked["body"], key=api_key(probe)
    )
    if isinstance(answer, str):
        return Look("mute", answer), ""
    if answer.status == 503 or answer.status in {401, 403}:
        return _not_yet(asked["path"], answer) or Look("loading"), ""
    if answer.status != 200:
        return Look("mute", f"{asked['path']} answers {answer.status}: {answer.text[:200]}"), ""
    counted = dig(answer.said, asked["counted"]) if asked.get("counted") else 1
    text = dig(answer.said, asked["text"]) if asked.get("text") else "-"
    if not counted or not text:
        return Look("mute", f"{asked['path']} answers 200 with nothing in it"), ""
    return Look("serving"), str(text)


def serving(probe: Mapping[str, Any], *, within: float = 60.0) -> Look:
    """Health, then identity, then a counted completion; the first that fails is the answer."""
    look = health(probe)
    if not look.serving:
        return look
    who = identity(probe)
    if not who.serving:
        return who
    did, _ = complete(probe, within=within)
    return Look(did.state, did.why, who.identity)
