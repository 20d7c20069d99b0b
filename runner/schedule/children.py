"""Other commands of ours, as processes beside the daemon: looked after, never waited for.

Whatever may hang, need much memory or fail in a new way runs in one of these, so that the loop goes
on. What a child prints goes to a file.
"""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from preflight.linux import proc
from runner.recovery import world
from runner.until import Clock
from runner.words import last_line

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Done:
    """How a child ended: its exit code (None when it was ended for taking too long), its answer."""

    code: int | None
    answer: Json
    text: str

    @property
    def error(self) -> str:
        """Why it failed, in one sentence."""
        said = self.answer.get("error") or {}
        if said.get("message"):
            return ": ".join(part for part in (said.get("where"), said["message"]) if part)
        if self.code is None:
            return "it took too long and was ended"
        return f"exit code {self.code}: {last_line(self.text) or 'it said nothing'}"


class Child:
    """One command of ours that runs beside the daemon, in a session of its own."""

    def __init__(self, words: Sequence[str], out: Path, *, config: Path, ends_at: float) -> None:
        """Start `runner --config … WORDS`, its output to `out`. Raises OSError."""
        out.unlink(missing_ok=True)
        self._out, self._ends_at = out, ends_at
        self._process = world.spawn(
            [sys.executable, "-I", "-m", "runner", "--config", str(config), *words],
            # systemd's notices are for the daemon; its credentials are for whoever tells
            environment=world.scrubbed(os.environ) | _credentials(),
            cwd="/",
            log=out,
            sees=True,
        )
        who = proc.ident(self._process.pid)
        self.pidfd = world.open_pidfd(who) if who else None

    def done(self, clock: Clock) -> Done | None:
        """How it ended; None while it goes on. Past its deadline it is ended."""
        code = self._process.poll()
        late = code is None and clock.now() >= self._ends_at
        if code is None and not late:
            return None
        if late:
            members = (proc.ident(pid) for pid in proc.family(self._process.pid))
            world.send_all((who for who in members if who is not None), signal.SIGKILL)
            self._process.kill()
            self._process.wait()
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None
        text = self._said()
        self._out.unlink(missing_ok=True)
        return Done(None if late else code, _answer(text), text)

    def _said(self) -> str:
        try:
            return self._out.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""


@dataclass
class Children:
    """The children of one kind, by name: at most one of each name."""

    config: Callable[[], Path]
    room: Path
    clock: Clock
    running: dict[str, Child] = field(default_factory=dict)

    def start(self, name: str, words: Sequence[str], *, within: float) -> str | None:
        """Start one unless it runs already; None where it was started, else why not."""
        if name in self.running:
            return "it runs already"
        try:
            self.running[name] = Child(
                words,
                self.room / f"{name}.out",
                config=self.config(),
                ends_at=self.clock.now() + within,
            )
        except OSError as error:
            return f"cannot be started: {error.strerror or error}"
        return None

    def ended(self) -> dict[str, Done]:
        """Those that have ended since the last look."""
        found: dict[str, Done] = {}
        for name, child in list(self.running.items()):
            if (done := child.done(self.clock)) is not None:
                found[name] = done
                del self.running[name]
        return found

    def fds(self) -> Iterable[int]:
        """Descriptors that have news when a child ends."""
        return [child.pidfd for child in self.running.values() if child.pidfd is not None]


def _credentials() -> dict[str, str]:
    named = os.environ.get("CREDENTIALS_DIRECTORY")
    return {"CREDENTIALS_DIRECTORY": named} if named else {}


def _answer(text: str) -> Json:
    """The one JSON object that a child printed, after whatever it logged before."""
    place = text.find("{\n") if "{\n" in text else text.find("{")
    try:
        said = json.loads(text[place:]) if place >= 0 else {}
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}
