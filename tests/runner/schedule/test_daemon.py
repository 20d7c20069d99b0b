"""The loop itself, on a clock of the test's own: what its parts find is written down and told."""

import contextlib
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from runner.schedule.alarm import Alarm
from runner.schedule.daemon import Daemon
from runner.schedule.slots import State
from tests.runner.schedule.times import FakeTimes
from tests.servers import free_port, soon

PRODUCTION = """
[[production]]
name = "llm"
kind = "llamacpp"
command = ["/usr/bin/llama-server"]
model = "/models/llm.gguf"
port = {port}
supervisor = {{ kind = "process", log = "/tmp/llm.log" }}
"""


class Thread(Alarm):
    """A scheduler that does as the test says."""

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.said: list[str] = []
        self.counted, self.lives, self.revived = 0, True, 0
        self.why_not: Exception | None = None

    def set(self, rows: Mapping[str, Any]) -> None:
        """Nothing fires by itself."""

    def dropped(self) -> list[str]:
        """Nothing did."""
        return []

    def problems(self) -> list[str]:
        """What the listeners heard, once."""
        said, self.said = self.said, []
        return said

    @property
    def beats(self) -> int:
        """How often it came round."""
        return self.counted

    @property
    def alive(self) -> bool:
        """Whether it lives."""
        return self.lives

    def revive(self) -> None:
        """Count, or fail."""
        self.revived += 1
        if self.why_not:
            raise self.why_not

    def close(self) -> None:
        """Let go."""
        os.close(self.fd)


class Loop:
    """A daemon whose ticks the test makes, and the service manager that it talks to."""

    def __init__(self, room: Path, manager: socket.socket) -> None:
        (room / "jobs").mkdir()
        self.config = room / "runner.toml"
        self.config.write_text(
            f'timezone = "UTC"\nstate_dir = "{room}/state"\nlock_name = "test-{id(self)}"\n'
            '[[schedule]]\njob = "night"\ncron = "0 0 * * *"\n'
        )
        self.times, self.alarm, self._manager = FakeTimes(), Thread(), manager
        self.daemon = Daemon(
            self.config, times=self.times, stop=lambda: None, alarm=self.alarm, units=False
        )

    def tick(self, seconds: float = 0.0, *, beat: bool = True) -> list[str]:
        """Let time pass, look once, and give back what the service manager was told."""
        self.times.passes(seconds)
        self.alarm.counted += beat
        self.daemon.tick()
        said: list[str] = []
        with contextlib.suppress(BlockingIOError):
            while True:
                said += self._manager.recv(4096).decode().splitlines()
        return said

    def told(self) -> list[str]:
        """The first line of everything that a person is told."""
        return [row.body["first_line"] for row in self.daemon._journal.outbox()]


@pytest.fixture
def loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Loop]:
    """A daemon two hours before its slot."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        made = Loop(tmp_path, manager)
        yield made
        soon(_nobody_is_left(made.daemon), within=60)
        made.daemon.close()


def _nobody_is_left(daemon: Daemon) -> Callable[[], bool | None]:
    def probe() -> bool | None:
        left = [daemon._ahead._looks, daemon._post._errands, daemon._shown]
        for children in left:
            children.ended()
        return None if any(children.running for children in left) else True

    return probe


def test_what_the_scheduler_stumbles_over_is_told(loop: Loop) -> None:
    """Its own events: missed, max-instances and error each leave an incident."""
    loop.alarm.said = ["the scheduler let a slot pass: night", "the scheduler failed: night (x)"]
    loop.tick()
    assert [line for line in loop.told() if "the scheduler" in line] == [
        "NO PRODUCTION on this box · the scheduler let a slot pass: night",
        "NO PRODUCTION on this box · the scheduler failed: night (x)",
    ]


def test_a_scheduler_that_does_not_come_round_is_replaced_and_told(loop: Loop) -> None:
    """The slot is found all the same: the ledger asks nobody."""
    for _ in range(4):
        loop.tick(20, beat=False)
    assert loop.alarm.revived == 1
    assert any("the scheduler's thread had died" in line for line in loop.told())
    loop.times.until("2027-01-16T00:00:00+00:00")
    loop.tick(0.2)
    (slot,) = loop.daemon._ledger.latest("night", before=2e9)
    assert slot.state is not State.MISSED


def test_the_watchdog_is_fed_by_the_scheduler_s_heart_beat(loop: Loop) -> None:
    """Where it stands still and cannot be replaced, systemd starts us anew; the looks at production
    go on, and feed it no more than the rest.
    """
    with loop.config.open("a") as config:
        config.write(PRODUCTION.format(port=free_port()))
    assert "WATCHDOG=1" in loop.tick()
    loop.alarm.lives, loop.alarm.why_not = False, RuntimeError("can't start new thread")
    loop.tick()
    assert loop.daemon.standing() == "DOWN: llm", loop.told()
    fed = ["WATCHDOG=1" in loop.tick(20, beat=False) for _ in range(8)]
    assert fed == [True, True, *[False] * 6]
    assert any("a fault in runner serve (alarm)" in line for line in loop.told())


def test_the_nightly_audit_finds_a_slot_without_a_row(loop: Loop) -> None:
    """Somebody has deleted it: after five in the morning it is there as missed, and told."""
    loop.tick()
    loop.times.until("2027-01-16T00:00:00+00:00")
    loop.tick(0.2)
    with loop.daemon._journal._write() as db:
        assert db.execute("DELETE FROM slots").rowcount == 1
    loop.times.until("2027-01-16T04:59:00+00:00")
    loop.tick()
    assert loop.daemon._ledger.latest("night", before=2e9) == []
    loop.tick(120)
    (slot,) = loop.daemon._ledger.latest("night", before=2e9)
    assert (slot.state, slot.reason) == (
        State.MISSED,
        "found by the nightly audit: it had no row",
    )
    assert any("night MISSED its slot of 00:00" in line for line in loop.told())


def test_pins_that_nobody_needs_are_released_in_the_audit(loop: Loop, tmp_path: Path) -> None:
    """Their job is gone; the file at its own path is not touched."""
    model = tmp_path / "model.gguf"
    model.write_bytes(b"GGUF")
    pin = tmp_path / "state" / "pins" / "job-old" / "x" / model.name
    pin.parent.mkdir(parents=True)
    pin.hardlink_to(model)
    found = model.stat()
    row = {"path": str(model), "pin": str(pin), "how": "hard link", "inode": found.st_ino}
    facts = {"size": found.st_size, "mtime_ns": found.st_mtime_ns, "since": 0.0, "by": "anna"}
    loop.daemon._ledger.pin(owner="job:old", **row, **facts)
    loop.times.until("2027-01-16T05:01:00+00:00")
    loop.tick()
    assert loop.daemon._ledger.pins() == []
    assert not pin.exists()
    assert model.read_bytes() == b"GGUF"
