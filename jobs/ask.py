"""Sends one measured request and writes down what came back: one fresh connection, no retry.

It blocks until the reply is whole, the deadline is over, or the server is gone (a server that falls
silent half-way is given as long again); whoever wants to leave earlier ends the server. Nothing that
a server answers is a fault of ours: it becomes a sample that says what was wrong."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import httpx

from jobs import wire
from jobs.corpus import endless
from jobs.request import Request
from jobs.samples import Sample
from jobs.servers.base import Answer, Asked, Server

_BATCH = 128 * 1024  # characters for one call of /tokenize
_TOKENIZE_WITHIN = 120.0
_GUESS_CHARACTERS = 20_000
_SAFE = 0.97  # of the tokens asked for, where they can only be estimated
_KEPT_TEXT = 4000
_LARGEST = 256 << 20  # bytes of one reply; 100,000 tokens are about 20 MiB of events
_FEWEST_TOKENS = 1 / 64  # a character; who counts fewer does not count the prompt
_OVERSHOT = 16  # tokens by which a last draft may pass what was asked for


@dataclass
class _Reply:
    """A reply while it comes in."""

    events: list[Any]
    first_ms: float | None = None
    wrong: str = ""


class Asker:
    """One server that is measured: knows its long prompts, so that each is made only once."""

    def __init__(
        self,
        server: Server,
        base_url: str,
        *,
        api_key: str | None = None,
        told: Callable[[int, int], None] | None = None,
    ) -> None:
        self._server = server
        self._base = base_url
        self._key = api_key
        self._told = told
        self._long: dict[tuple[str, int], str | tuple[int, ...]] = {}

    def send(self, request: Request, *, deadline_s: float) -> Sample:
        """Send it; a failure is a sample that is not valid and says why."""
        began = time.monotonic()
        try:
            prompt = self._prompt(request)
        except ValueError as error:
            return Sample.of(request).invalid(str(error))
        asked = self._server.asked(
            prompt,
            temperature=request.temperature,
            max_tokens=request.max_tokens,
            seed=request.seed,
            cached=request.cached,
        )
        left = deadline_s - (time.monotonic() - began)
        sent = time.monotonic()
        reply = self._ask(asked, left)
        wall_ms = (time.monotonic() - sent) * 1000
        answer = self._server.answer(reply.events)
        depth = len(prompt) if not isinstance(prompt, str) else None
        sample = _filled_in(Sample.of(request), answer, depth)
        sample = replace(sample, wall_ms=wall_ms, ttft_ms=reply.first_ms)
        wrong = reply.wrong or _fault(sample, embedding=self._server.serves != "chat")
        return replace(sample, valid=not wrong, why=wrong)

    def _ask(self, asked: Asked, within_s: float) -> _Reply:
        reply = _Reply([])
        if within_s <= 0:
            reply.wrong = "no time left to ask"
            return reply
        began = time.monotonic()
        try:
            with (
                wire.client(self._key, within_s) as client,
                client.stream("POST", self._base + asked.path, json=asked.body) as response,
            ):
                lines = _lines(response, began + within_s)
                for event in self._events(response.status_code, lines, streams=asked.streams):
                    self._take(reply, event, time.monotonic() - began)
        except (httpx.TimeoutException, TimeoutError):
            reply.wrong = f"no whole answer within {within_s:.3g} s"
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, RecursionError) as error:
            reply.wrong = wire.why(error)
        return reply

    def _take(self, reply: _Reply, event: Any, spent: float) -> None:
        if isinstance(event, dict) and event.get("error"):  # some servers send a null with success
            reply.wrong = f"the server answered: {json.dumps(event['error'])[:300]}"
            return
        if progress := self._server.progress(event):
            if self._told:
                self._told(*progress)
            return
        reply.events.append(event)
        if reply.first_ms is None and isinstance(event, dict) and event.get("content"):
            reply.first_ms = spent * 1000

    def _events(self, status: int, lines: Iterator[str], *, streams: bool) -> Iterator[Any]:
        """The JSON objects of a reply; comments and empty lines of a stream are no events."""
        if status != 200 or not streams:
            body = "\n".join(lines)
            try:
                yield json.loads(body)
            except (ValueError, RecursionError):
                yield {"error": f"status {status}: {body[:200]}"}
            return
        for line in lines:
            if line.startswith(("data: {", "data:{")):
                yield json.loads(line[5:])
            elif line.startswith("error:"):
                yield {"error": line[6:].strip()}

    # -- long prompts ----------------------------------------------------------------------

    def _prompt(self, request: Request) -> str | tuple[int, ...]:
        if request.tokens is None:
            return request.text
        key = (request.nonce, request.tokens)
        if key not in self._long:
            make = self._ids if self._server.tokenizes else self._estimated
            self._long[key] = make(request.nonce, request.tokens)
        return self._long[key]

    def _ids(self, nonce: str, tokens: int) -> tuple[int, ...]:
        """Exactly so many token ids. What the model puts first, then the nonce, then real text."""
        ids: list[int] = []
        texts = endless(nonce)
        while len(ids) < tokens:
            batch = "" if ids else f"Run {nonce}.\n\n"
            while len(batch) < min(_BATCH, 8 * (tokens - len(ids)) + 64):
                batch += next(texts)
            found = self._tokenize(batch, first=not ids)
            if not found:
                raise ValueError("the server turns text into no tokens")
            ids += found
        return tuple(ids[:tokens])

    def _tokenize(self, text: str, *, first: bool) -> list[int]:
        reply = wire.post(
            self._base,
            self._server.tokenize_path,
            {"content": text, "add_special": first},
            api_key=self._key,
            within_s=_TOKENIZE_WITHIN,
        )
        said = reply.json()
        ids = said.get("tokens") if isinstance(said, dict) else None
        if not reply.ok or not isinstance(ids, list):
            raise ValueError(f"/tokenize: {reply.said()}")
        if not all(isinstance(token, int) for token in ids):
            raise ValueError("/tokenize: its tokens are no numbers")
        return ids

    def _estimated(self, nonce: str, tokens: int) -> str:
        """A text of nearly so many tokens, where a server only counts afterwards."""
        texts, text = endless(nonce), f"Run {nonce}.\n\n"
        while len(text) < _GUESS_CHARACTERS:
            text += next(texts)
        trial = text[: min(len(text), 2 * tokens)]
        asked = self._server.asked(trial, temperature=0.0, max_tokens=1, seed=1, cached=False)
        counted = self._server.answer(self._ask(asked, _TOKENIZE_WITHIN).events)
        if not counted.prompt_n:
            raise ValueError("the server does not count prompt tokens, so no prompt can fill it")
        told = counted.prompt_n + (counted.cache_n or 0)
        if told < _FEWEST_TOKENS * len(trial):
            raise ValueError(f"the server counts {told} tokens in {len(trial)} characters")
        wanted = int(tokens * _SAFE * len(trial) / told)
        while len(text) < wanted:
            text += next(texts)
        return text[:wanted]


def send(
    server: Server,
    base_url: str,
    request: Request,
    *,
    deadline_s: float,
    api_key: str | None = None,
) -> Sample:
    """Send one request to one server; for many, keep an Asker."""
    return Asker(server, base_url, api_key=api_key).send(request, deadline_s=deadline_s)


def _filled_in(sample: Sample, answer: Answer, depth: int | None) -> Sample:
    said = asdict(answer) | {"text": answer.text[:_KEPT_TEXT]}
    return replace(sample, depth=depth, **said)


def _lines(response: httpx.Response, ends: float) -> Iterator[str]:
    """The lines of a body as they come, whole ones; raises TimeoutError when the time is over.

    By line feeds alone: httpx splits at the Unicode line separators as well, which a model may write
    in the middle of a JSON text. A server that only pings is as late as one that is silent.
    """
    rest, size = bytearray(), 0
    for chunk in response.iter_bytes():
        if time.monotonic() > ends:
            raise TimeoutError
        size += len(chunk)
        if size > _LARGEST:
            raise ValueError(f"the answer is larger than {_LARGEST >> 20} MiB")
        *whole, last = chunk.split(b"\n")
        for part in whole:
            yield (bytes(rest) + part).decode("utf-8", "replace")
            rest.clear()
        rest += last
    yield rest.decode("utf-8", "replace")


def _fault(sample: Sample, *, embedding: bool) -> str:
    """Why a reply that came back whole still counts for nothing; empty when it counts."""
    if sample.truncated:
        return "the server truncated the prompt"
    if sample.depth is not None and sample.filled != sample.depth:
        return f"the server took {sample.filled} of {sample.depth} prompt tokens"
    if embedding:
        return "" if sample.text else "the answer is empty"
    if not sample.predicted_n:
        return "the server counted no tokens in its answer"
    if sample.predicted_n > sample.asked + _OVERSHOT:
        return f"the server counted {sample.predicted_n} tokens where {sample.asked} were asked for"
    return "" if sample.text else "the answer is empty"
