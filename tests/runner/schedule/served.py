"""A box with a daemon: real processes, and a wall clock that the test sets."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner.journal import Journal
from runner.schedule.ledger import Ledger
from runner.schedule.slots import Slot
from tests.e2e.night import JOB, Night, Ran
from tests.servers import soon

SHIFTED = Path(__file__).with_name("shifted.py")

AS_NOBODY = """
import os, sys
import runner.cli.app, runner.cli.pinning, runner.cli.reserving, runner.logs, runner.look, runner.run, runner.schedule.may, runner.settings
from runner.entry import run
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
sys.exit(run(sys.argv[1:]))
"""


class Served:
    """One box, and the daemon that watches over it."""

    def __init__(self, night: Night) -> None:
        self.night = night
        self.offset = night.room / "offset"
        self.offset.write_text("0")
        self.log = night.room / "serve.log"
        self.process: subprocess.Popen[bytes] | None = None

    # The clock

    def due_in(self, seconds: float, **keys: Any) -> int:
        """Schedule the job once, and set the clock so that it is due in so many seconds.

        Returns the slot's time, in seconds since 1970.
        """
        at = (int(time.time() + seconds) // 60 + 1) * 60
        hour, minute = time.gmtime(at)[3:5]
        row = {"job": JOB, "cron": f"{minute} {hour} * * *", **keys}
        self.night.settings["schedule"] = [row]
        self.night.write()
        self.set_clock(at - seconds)
        return at

    def set_clock(self, to: float) -> None:
        """Let the wall clock show this now."""
        self.offset.write_text(str(to - time.time()))

    def now(self) -> float:
        """What the wall clock shows."""
        return time.time() + float(self.offset.read_text())

    # The daemon

    def serve(self, environment: Mapping[str, str] | None = None) -> None:
        """Start it, and wait until it says that it is ready, as systemd would."""
        known = os.environ if environment is None else environment
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            name = f"\0runner-test-{os.getpid()}-{id(self)}-{time.monotonic_ns()}"
            manager.bind(name)
            manager.settimeout(20)
            with self.log.open("ab") as log:
                self.process = subprocess.Popen(
                    [sys.executable, str(SHIFTED), str(self.night.config), str(self.offset)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd="/",
                    env={
                        **known,
                        "NOTIFY_SOCKET": "@" + name[1:],
                        "PYTHONPATH": str(SHIFTED.parents[3]),
                    },
                )
            while b"READY=1" not in manager.recv(4096):
                assert self.process.poll() is None, self.log.read_text()

    def fire(
        self, seconds: float = 1.5, *, environment: Mapping[str, str] | None = None, **keys: Any
    ) -> int:
        """Start it well before the slot, then set the clock to so many seconds before it.

        However slow this machine is, the daemon knows of the slot before it is due.
        """
        at = self.due_in(3000.0, **keys)
        self.serve(environment)
        self.set_clock(at - seconds)
        self.send(signal.SIGHUP)
        return at

    def send(self, number: signal.Signals) -> None:
        """Signal the daemon."""
        assert self.process is not None
        self.process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End it, and wait until it has ended."""
        self.send(number)
        assert self.process is not None
        return self.process.wait(20)

    def close(self) -> None:
        """End it if it lives."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    # What became of it

    def slots(self) -> list[Slot]:
        """Every slot of the job, newest first."""
        with Journal.open(self.night.state, read_only=True) as journal:
            return Ledger(journal).latest(JOB, before=4e9, limit=50)

    def decided(self, within: float = 60.0) -> Slot:
        """The last slot, once it is decided."""

        def probe() -> Slot | None:
            found = self.slots()
            return found[0] if found and not found[0].open else None

        return soon(probe, within)

    def told(self, *words: str, within: float = 30.0) -> str:
        """Everything that a person was told, once all of these words are in it."""

        def probe() -> str | None:
            said = self.night.told()
            return said if all(word in said for word in words) else None

        return soon(probe, within)


def as_nobody(night: Night, *words: str) -> Ran:
    """The runner as a user who owns nothing here; everything is imported before the change."""
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, "--config", str(night.config), *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)
