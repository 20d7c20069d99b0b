"""Somebody's proxy: it takes a port and says 200 to everything. Ends by itself."""

import http.server
import os
import signal
import sys
import threading


class Yes(http.server.BaseHTTPRequestHandler):
    """The same to every question."""

    def do_GET(self) -> None:
        """Yes."""
        body = b'{"status": "ok", "proxy": true, "data": []}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        """Yes, too."""
        self.do_GET()

    def log_message(self, *_: object) -> None:
        """Be quiet."""


threading.Timer(120, os._exit, (0,)).start()
signal.signal(signal.SIGTERM, lambda *_: os._exit(99))
host, port = sys.argv[sys.argv.index("--host") + 1], int(sys.argv[sys.argv.index("--port") + 1])
http.server.ThreadingHTTPServer((host, port), Yes).serve_forever()
