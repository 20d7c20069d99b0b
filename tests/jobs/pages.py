"""A web server of a test: fixed pages, by path, on a port of the kernel's choice."""

import json
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

Page = tuple[int, str] | Callable[[Any], tuple[int, str]]


class Pages:
    """Serves `{"/path": (status, body)}`; a function is given the JSON body of the request."""

    def __init__(self, pages: Mapping[str, Page]) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(None)

            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                self._answer(json.loads(raw))

            def _answer(self, body: Any) -> None:
                outer.asked.append((self.path, body))
                outer.headers.append({name.lower(): value for name, value in self.headers.items()})
                page = pages.get(self.path, (404, "{}"))
                status, text = page(body) if callable(page) else page
                self.send_response(status)
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - theirs
                del format, args

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=[0.01], daemon=True)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def stream(*events: Mapping[str, Any]) -> str:
    """Events as a server sends them one by one."""
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events)
