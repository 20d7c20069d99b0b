"""The stand-in's door: HTTP in, HTTP out; what is answered is `api`'s."""

import json
import select
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from typing import Any

from runner.demo.standin.api import Api
from runner.demo.standin.engine import Refused

_JSON = "application/json; charset=utf-8"


class Server(ThreadingHTTPServer):
    """Binds the port at once; raises OSError where somebody has it."""

    daemon_threads = True
    block_on_close = False  # `Api.busy` tells; a client that never leaves must stay visible
    request_queue_size = 64

    def __init__(self, api: Api) -> None:
        self.api = api
        super().__init__((api.flags.host, api.flags.port), Handler)


class Handler(BaseHTTPRequestHandler):
    """One connection, one request."""

    server: Server
    server_version = "llama.cpp (stand-in)"
    sys_version = ""

    def do_GET(self) -> None:
        """Ask the Api, and send what it says."""
        self._reply(lambda: self.server.api.get(self._path(), self._key(), self._query()))

    def do_POST(self) -> None:
        """Ask the Api, and send what it says, as a stream where it streams."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._reply(lambda: self.server.api.post(self._path(), self._key(), body, self._gone))

    def log_message(self, *_: Any) -> None:
        """Say nothing: llama-server logs no requests."""

    def _path(self) -> str:
        return self.path.partition("?")[0]

    def _query(self) -> str:
        return self.path.partition("?")[2]

    def _key(self) -> str | None:
        bearer = self.headers.get("Authorization", "").removeprefix("Bearer ")
        return bearer or self.headers.get("X-Api-Key")

    def _gone(self) -> bool:
        return bool(select.select([self.connection], [], [], 0)[0])

    def _reply(self, ask: Callable[[], Any]) -> None:
        self.server.api.enter(1)
        try:
            answer = ask()
            if isinstance(answer, Iterator):
                self._stream(answer)
            else:
                self._send(200, answer)
        except Refused as refusal:
            self._send(refusal.code, refusal.body)
        except ConnectionError:  # the client has left
            self.close_connection = True
        finally:
            self.server.api.enter(-1)

    def _send(self, code: int, answer: Any) -> None:
        text = isinstance(answer, str)
        content = answer.encode() if text else json.dumps(answer).encode()
        self.send_response(code)
        self.send_header("Content-Type", "text/plain; version=0.0.4" if text else _JSON)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _stream(self, events: Iterator[dict[str, Any]]) -> None:
        """Send events as they come; the end of the connection is the end of the answer."""
        first = next(events)  # a refusal must still become an error of its own
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for event in chain([first], events):
            self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
        self.close_connection = True
