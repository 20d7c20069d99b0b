"""A stand-in Bot API on loopback, as strict as the real one about texts, with replies to order.

`python tests/alerts/bot_api.py PORT FILE [REPLY]` serves until it is ended, prints its address,
and appends each request to FILE as a line of JSON. Port 0 takes a free one.
"""

import json
import ssl
import sys
import threading
import urllib.parse
from collections import deque
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

HTML = b"<html><head><title>Welcome</title></head><body>Please log in</body></html>"


@dataclass(frozen=True)
class Request:
    """One request as it came, and what was answered; 0 where nothing was."""

    method: str
    token: str
    data: dict[str, Any]
    status: int


@dataclass(frozen=True)
class Reply:
    """An answer: HTTP status and body."""

    status: int
    body: bytes

    @classmethod
    def error(cls, status: int, said: str, **parameters: int) -> Self:
        """A refusal in the words of the Bot API."""
        answer: dict[str, Any] = {"ok": False, "error_code": status, "description": said}
        if parameters:
            answer["parameters"] = parameters
        return cls(status, json.dumps(answer).encode())


REFUSALS = {
    "chat-not-found": Reply.error(400, "Bad Request: chat not found"),
    "unauthorized": Reply.error(401, "Unauthorized"),
    "blocked": Reply.error(403, "Forbidden: bot was blocked by the user"),
    "not-found": Reply.error(404, "Not Found"),
    "flood": Reply.error(429, "Too Many Requests: retry after 37", retry_after=37),
    "bad-gateway": Reply(502, b"<html>502 Bad Gateway</html>"),
    "portal": Reply(200, HTML),
    "empty-object": Reply(200, b"{}"),
    "ok-but-500": Reply(500, b'{"ok": true, "result": {"message_id": 1}}'),
}
"""Replies by name. Besides: ok, migrate (to NEW_CHAT), hang, drop and drip, which deliver nothing
or, in the case of hang and drip, take the message and never say so."""
NEW_CHAT = -1001999888777


class BotApi:
    """The server. `replies` are used up one a request, then `reply` answers for ever."""

    def __init__(
        self,
        port: int = 0,
        *,
        reply: str = "ok",
        record: Path | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.reply = reply
        self.replies: deque[str] = deque()
        self.requests: list[Request] = []
        self.texts: list[str] = []
        """What a person sees in the chat: also the messages whose answer never came."""
        self.closing = threading.Event()
        self._record = record
        self._server = ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        self._server.daemon_threads = True
        if tls:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        scheme = "https" if tls else "http"
        self.url = f"{scheme}://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()

    def serve(self) -> None:
        """Answer until the process ends."""
        self._server.serve_forever()

    def answer(self, method: str, token: str, data: dict[str, Any]) -> tuple[str, Reply]:
        """What to do with a request, by name, and what to answer."""
        name = self.replies.popleft() if self.replies else self.reply
        reply = self._reply(name, data)
        if reply.status == 200 and name in {"ok", "hang", "drip", "migrate"}:
            self.texts.append(str(data["text"]))
        request = Request(method, token, data, 0 if name in {"hang", "drop"} else reply.status)
        self.requests.append(request)
        if self._record:
            with self._record.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(request)) + "\n")
        return name, reply

    def _reply(self, name: str, data: dict[str, Any]) -> Reply:
        if name == "migrate" and int(data.get("chat_id", 0)) != NEW_CHAT:
            said = "Bad Request: group chat was upgraded to a supergroup chat"
            return Reply.error(400, said, migrate_to_chat_id=NEW_CHAT)
        if refusal := REFUSALS.get(name):
            return refusal
        if said := fault(data):
            return Reply.error(400, f"Bad Request: {said}")
        chat = {"id": NEW_CHAT if name == "migrate" else -1001, "type": "supergroup", "title": "t"}
        result = {"message_id": len(self.texts) + 1, "date": 0, "chat": chat, "text": data["text"]}
        return Reply(200, json.dumps({"ok": True, "result": result}).encode())


def fault(data: dict[str, Any]) -> str | None:
    """Why the real server would refuse this message, if it would."""
    text = str(data.get("text", ""))
    if not text.strip():
        return "message text is empty"
    if len(text.encode("utf-16-le")) // 2 > 4096:
        return "message is too long"
    if data.get("parse_mode") and any(text.count(mark) % 2 for mark in "_*`["):
        return "can't parse entities"
    return None


def _decoded(raw: bytes, kind: str) -> dict[str, Any]:
    """The library sends a form, recovery sends JSON."""
    if "json" in kind:
        return dict(json.loads(raw or b"{}"))
    return dict(urllib.parse.parse_qsl(raw.decode()))


def _handler(api: BotApi) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            data = _decoded(raw, self.headers.get("Content-Type", ""))
            path = urllib.parse.urlsplit(self.path).path
            token, _, method = path.partition("/bot")[2].rpartition("/")
            name, reply = api.answer(method, token, data)
            if name in {"hang", "drop"}:
                self.close_connection = True
                if name == "hang":
                    api.closing.wait()
                return
            self.send_response(reply.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(reply.body)))
            self.end_headers()
            if name == "drip":
                self._drip(reply.body)
            else:
                self.wfile.write(reply.body)

        def _drip(self, body: bytes) -> None:
            for byte in body:
                if api.closing.wait(0.1):
                    return
                try:
                    self.wfile.write(bytes([byte]))
                except OSError:
                    return

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
            """Say nothing: the tests print what they saw."""

    return Handler


def main(argv: list[str]) -> None:
    """Serve as the docstring of this file says."""
    reply = argv[2] if len(argv) > 2 else "ok"
    api = BotApi(int(argv[0]), record=Path(argv[1]), reply=reply)
    sys.stdout.write(f"{api.url}\n")
    sys.stdout.flush()
    api.serve()


if __name__ == "__main__":
    main(sys.argv[1:])
