"""What the stand-in answers, path by path, in llama-server's shapes (b10434)."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

from runner.demo.standin.engine import Ask, Engine, Read, Refused, Reply, Word
from runner.demo.standin.flags import Flags

_BUILD = "stand-in"
_PUBLIC = ("/health", "/v1/health", "/models", "/v1/models")
_OPENAI = ("/health", "/v1/models", "/v1/embeddings", "/v1/completions", "/v1/chat/completions")
_COMPLETIONS = ("/completion", "/completions", *_OPENAI[2:])


class Api:
    """The paths, and whether there is a model behind them yet."""

    def __init__(self, flags: Flags, engine: Engine) -> None:
        self.flags = flags
        self.engine = engine
        self.ready = False
        self._open = 0
        self._counting = threading.Lock()

    def busy(self) -> bool:
        """True while somebody waits for an answer."""
        return self._open > 0

    def enter(self, by: int) -> None:
        """Count a request in, or out."""
        with self._counting:
            self._open += by

    def get(self, path: str, key: str | None, query: str) -> dict[str, Any] | list[Any] | str:
        """Answer a GET; text is meant as text."""
        self._admit(path, key)
        if path == "/slots" and "fail_on_no_slot" in query and self.engine.processing:
            raise Refused(503, "unavailable_error", "no slot available")
        answers: dict[str, Callable[[], dict[str, Any] | list[Any] | str]] = {
            "/health": self._health,
            "/v1/health": self._health,
            "/props": self._props,
            "/slots": self._slots,
            "/metrics": self._metrics,
            "/models": self._models,
            "/v1/models": self._models,
        }
        if path not in answers:
            raise Refused(404, "not_found_error", "File Not Found")
        return answers[path]()

    def post(
        self, path: str, key: str | None, body: dict[str, Any], gone: Callable[[], bool]
    ) -> dict[str, Any] | Iterator[dict[str, Any]]:
        """Answer a POST, with an iterator where a stream was asked for.

        `gone` tells whether the client has left.
        """
        self._admit(path, key)
        if path == "/tokenize":
            return {"tokens": self.engine.tokens(body["content"])}
        if path == "/detokenize":
            return {"content": self.engine.text(body["tokens"])}
        if path not in _COMPLETIONS:
            raise Refused(404, "not_found_error", "File Not Found")
        if self.flags.health_only:
            raise Refused(500, "server_error", "the stand-in was told to fail completions")
        prompt = self.engine.tokens(_prompt(body))
        if path == "/v1/embeddings":
            return _embedding(len(prompt))
        asked = body.get(
            "n_predict", body.get("max_completion_tokens", body.get("max_tokens", 128))
        )
        greedy = float(body.get("temperature", 0.8)) == 0.0
        events = self.engine.answer(
            Ask(prompt, int(asked), greedy, bool(body.get("cache_prompt", True)), gone)
        )
        if path == "/completion" and body.get("stream"):
            return self._stream(events, progress=bool(body.get("return_progress")))
        reply = _last(events)
        if path in ("/completion", "/completions"):
            return self._completion(reply)
        return self._openai(reply, chat="messages" in body)

    def _stream(
        self, events: Iterator[Read | Word | Reply], *, progress: bool
    ) -> Iterator[dict[str, Any]]:
        """The events of a completion, as they come."""
        total = 0
        for event in events:
            common = {"index": 0, "stop": False, "id_slot": -1, "tokens_evaluated": total}
            match event:
                case Read():
                    total = event.total
                    if progress:
                        yield common | _progress(event)
                case Word(text, token, number):
                    yield common | {"content": text, "tokens": [token], "tokens_predicted": number}
                case Reply():
                    yield self._completion(event) | {"content": ""}

    def _admit(self, path: str, key: str | None) -> None:
        flags = self.flags
        if flags.openai_only and path not in _OPENAI:
            raise Refused(404, "not_found_error", "File Not Found")
        early = (flags.models_200_while_loading and path == "/v1/models") or flags.health_only
        if not (self.ready or early):
            raise Refused(503, "unavailable_error", "Loading model")
        if flags.api_key and path not in _PUBLIC and key != flags.api_key:
            raise Refused(401, "authentication_error", "Invalid API Key")

    def _health(self) -> dict[str, Any]:
        return {"status": "ok"}

    def _props(self) -> dict[str, Any]:
        flags = self.flags
        return {
            "default_generation_settings": {
                "params": {"speculative.types": "none"},  # as the real one, whatever really runs
                "n_ctx": flags.context,
            },
            "total_slots": flags.parallel,
            "model_alias": flags.alias or flags.served,
            "model_path": flags.served,
            "modalities": {"vision": False, "audio": False},
            "endpoint_slots": True,
            "endpoint_props": False,
            "endpoint_metrics": flags.metrics,
            "chat_template": "",
            "build_info": _BUILD,
            "is_sleeping": False,
        }

    def _slots(self) -> list[Any]:
        slot = {
            "n_ctx": self.flags.context,
            "speculative": self.flags.speculates,
            "is_processing": self.engine.processing,
        }
        idle = slot | {"is_processing": False}
        others = range(1, self.flags.parallel)
        return [{"id": 0, **slot}, *({"id": number, **idle} for number in others)]

    def _metrics(self) -> str:
        if not self.flags.metrics:
            missing = "This server does not support metrics endpoint. Start it with `--metrics`"
            raise Refused(501, "not_supported_error", missing)
        return self.engine.metrics()

    def _models(self) -> dict[str, Any]:
        name = self.flags.alias or self.flags.served
        model = {"id": name, "object": "model", "created": 0, "owned_by": "stand-in"}
        if self.ready and not self.flags.openai_only:
            model["meta"] = {"n_ctx": self.flags.context}
        return {"object": "list", "data": [model]}

    def _completion(self, reply: Reply) -> dict[str, Any]:
        return {
            "index": 0,
            "content": reply.text,
            "tokens": [],
            "id_slot": 0,
            "stop": True,
            "model": self.flags.served,
            "tokens_predicted": reply.timings["predicted_n"],
            "tokens_evaluated": reply.prompt_tokens,
            "truncated": False,
            "stop_type": "limit",
            "stopping_word": "",
            "timings": reply.timings,
        }

    def _openai(self, reply: Reply, *, chat: bool) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": 0, "finish_reason": "length"}
        if chat:
            choice["message"] = {"role": "assistant", "content": reply.text}
        else:
            choice |= {"text": reply.text, "logprobs": None}
        predicted = int(reply.timings["predicted_n"])
        answer: dict[str, Any] = {
            "choices": [choice],
            "created": 0,
            "model": self.flags.alias or self.flags.served,
            "object": "chat.completion" if chat else "text_completion",
            "usage": {
                "completion_tokens": predicted,
                "prompt_tokens": reply.prompt_tokens,
                "total_tokens": reply.prompt_tokens + predicted,
                "prompt_tokens_details": {"cached_tokens": int(reply.timings["cache_n"])},
            },
            "id": "chatcmpl-stand-in",
        }
        return answer if self.flags.openai_only else answer | {"timings": reply.timings}


def _progress(read: Read) -> dict[str, Any]:
    return {
        "content": "",
        "tokens": [0],
        "tokens_predicted": 0,
        "tokens_evaluated": read.total,
        "prompt_progress": {
            "total": read.total,
            "cache": read.cached,
            "processed": read.processed,
            "time_ms": read.ms,
        },
    }


def _prompt(body: dict[str, Any]) -> object:
    if "messages" in body:
        return "\n".join(str(message["content"]) for message in body["messages"])
    return body.get("prompt", body.get("input"))


def _last(events: Iterator[Read | Word | Reply]) -> Reply:
    *_, reply = events
    if not isinstance(reply, Reply):
        raise TypeError("an answer ends with its Reply")
    return reply


def _embedding(tokens: int) -> dict[str, Any]:
    vector = {"object": "embedding", "index": 0, "embedding": [0.6, 0.8]}
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "model": "stand-in", "data": [vector], "usage": usage}
