"""A server with ways that no real one should have. Standard library only; it knows no test.

--linger S      after TERM go on answering for S seconds, then end
--hang PATH     accept a request for PATH, and never answer it
--drip PATH     answer PATH a byte at a time, for ever
--flap S        end with 1, S seconds after the first answer
--load S        answer 503 for S seconds
--context N     the context that it says it has
--mute          be healthy, and complete nothing
--leave         start a child that outlives it, as an engine does
--die S         end with 1, S seconds after the start
--stamp FILE    write down, in CLOCK_BOOTTIME, when it was ready, or about to die
--late          listen only after the load, as engines in Python do
"""

import argparse
import http.server
import json
import os
import signal
import subprocess
import threading
import time
from typing import Any


class Odd(http.server.ThreadingHTTPServer):
    """The server and its ways."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, given: argparse.Namespace) -> None:
        super().__init__(("127.0.0.1", given.port), Handler)
        self.given = given
        self.ready_at = time.monotonic() + given.load
        self.answered = threading.Event()


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers as llama-server would, where it answers at all."""

    server: Odd

    def log_message(self, *_: Any) -> None:
        """Say nothing: tests read the log."""

    def do_GET(self) -> None:
        """Health and identity."""
        self._odd_or({"default_generation_settings": {"n_ctx": self.server.given.context}})

    def do_POST(self) -> None:
        """A completion."""
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        word = "" if self.server.given.mute else "word"
        self._odd_or({"content": word, "timings": {"predicted_n": 4}})

    def _odd_or(self, said: dict[str, Any]) -> None:
        given = self.server.given
        if self.path == given.hang:
            threading.Event().wait()
        if self.path == given.drip:
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
            while True:
                self.wfile.write(b" ")
                self.wfile.flush()
                threading.Event().wait(0.2)
        if time.monotonic() < self.server.ready_at:
            self.send_error(503)
            return
        body = json.dumps(said | {"model_path": given.model}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.server.answered.set()


def stamp(path: str) -> None:
    """Write down what time it is, where that was asked for."""
    if path:
        with open(path, "w") as file:
            file.write(str(time.clock_gettime(time.CLOCK_BOOTTIME)))


def asked() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", default="")
    parser.add_argument("--context", type=int, default=4096)
    for name in ("linger", "load", "flap", "die"):
        parser.add_argument(f"--{name}", type=float, default=0.0)
    for name in ("hang", "drip", "stamp"):
        parser.add_argument(f"--{name}", default="")
    for name in ("mute", "leave", "late"):
        parser.add_argument(f"--{name}", action="store_true")
    return parser.parse_args()


def main() -> None:
    """Serve until told to end."""
    given = asked()
    ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    if given.leave:
        subprocess.Popen(["/bin/sleep", "120"])
    if given.late:
        ending.wait(given.load)
        given.load = 0.0
    server = Odd(given)
    threading.Thread(target=server.serve_forever, args=[0.02], daemon=True).start()
    if given.die:
        ending.wait(given.die)
        stamp(given.stamp)
        os._exit(1)
    if given.stamp:
        ending.wait(given.load)
        server.ready_at = 0.0
        stamp(given.stamp)
    if given.flap:
        while not server.answered.wait(0.05) and not ending.is_set():
            pass
        ending.wait(given.flap)
        os._exit(1)
    while not ending.wait(0.5):
        pass
    threading.Event().wait(given.linger)
    os._exit(0)


main()
