"""What the stand-in server answers, path by path, in llama-server's shapes (b10434).

Standard library only. It knows HTTP; the answers are `standin_engine`'s.
"""

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from runner.demo.standin_engine import Engine, Flags, Refused, Reply

_JSON = "application/json; charset=utf-8"
_BUILD = "stand-in"
_PUBLIC = ("/health", "/v1/health", "/models", "/v1/models")
_OPENAI = ("/health", "/v1/models", "/v1/completions", "/v1/chat/completions")
_COMPLETIONS = ("/completion", "/completions", "/v1/completions", "/v1/chat/completions")


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

    def get(self, path: str, key: str | None) -> dict[str, Any] | list[Any] | str:
        """Answer a GET; text is meant as text."""
        self._admit(path, key)
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

    def post(self, path: str, key: str | None, body: dict[str, Any], sock: Any) -> dict[str, Any]:
        """Answer a POST; `sock` tells whether the client still waits."""
        self._admit(path, key)
        if path == "/tokenize":
            return {"tokens": self.engine.tokens(body["content"])}
        if path == "/detokenize":
            return {"content": self.engine.text(body["tokens"])}
        if path not in _COMPLETIONS:
            raise Refused(404, "not_found_error", "File Not Found")
        if self.flags.health_only:
            raise Refused(500, "server_error", "the stand-in was told to fail completions")
        prompt = body.get("prompt")
        if "messages" in body:
            prompt = "\n".join(str(message["content"]) for message in body["messages"])
        asked = body.get(
            "n_predict", body.get("max_completion_tokens", body.get("max_tokens", 128))
        )
        reply = self.engine.answer(
            self.engine.tokens(prompt),
            int(asked),
            greedy=float(body.get("temperature", 0.8)) == 0.0,
            reuse=bool(body.get("cache_prompt", True)),
            sock=sock,
        )
        if path in ("/completion", "/completions"):
            return self._completion(reply)
        return self._openai(reply, chat="messages" in body)

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


def server(api: Api) -> ThreadingHTTPServer:
    """Bind the port; raises OSError where somebody has it."""

    class Handler(BaseHTTPRequestHandler):
        server_version = "llama.cpp (stand-in)"
        sys_version = ""

        def do_GET(self) -> None:
            self._reply(lambda: api.get(self._path(), self._key()))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._reply(lambda: api.post(self._path(), self._key(), body, self.connection))

        def _path(self) -> str:
            return self.path.partition("?")[0]

        def _key(self) -> str | None:
            bearer = self.headers.get("Authorization", "").removeprefix("Bearer ")
            return bearer or self.headers.get("X-Api-Key")

        def _reply(self, answer: Any) -> None:
            api.enter(1)
            try:
                self._send(200, answer())
            except Refused as refusal:
                self._send(refusal.code, refusal.body)
            except ConnectionError:
                self.close_connection = True
            finally:
                api.enter(-1)

        def _send(self, code: int, answer: Any) -> None:
            text = isinstance(answer, str)
            content = answer.encode() if text else json.dumps(answer).encode()
            self.send_response(code)
            self.send_header("Content-Type", "text/plain; version=0.0.4" if text else _JSON)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """llama-server logs no requests."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 64
        block_on_close = False  # `busy` tells; a client that never leaves must stay visible

    return Server((api.flags.host, api.flags.port), Handler)
