"""What a run and its guardian say to systemd, and when."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.recovery import unit


class Manager:
    """The service manager's end of the socket."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.setblocking(False)

    def heard(self) -> list[str]:
        """Every line said since the last look."""
        lines: list[str] = []
        try:
            while True:
                lines += self._socket.recv(4096).decode().splitlines()
        except BlockingIOError:
            return lines

    def close(self) -> None:
        """Hear no more."""
        self._socket.close()


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Manager]:
    """A service manager that listens, and that has heard nothing yet."""
    listening = Manager(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    yield listening
    listening.close()


def test_whoever_waits_feeds_the_watchdog(manager: Manager) -> None:
    """Once a second at most: a poll every 20 ms is no reason for a message each time."""
    clock = unit.UnitClock(lambda: False)
    for _ in range(5):
        clock.pause(0)
    assert manager.heard() == ["WATCHDOG=1"]


def test_a_stop_is_granted_time_while_production_comes_back(manager: Manager) -> None:
    """A model that loads longer than TimeoutStopSec must not end with the restore killed."""
    unit.UnitClock(lambda: "TERM", going_down=lambda: False).pause(0)
    assert manager.heard() == ["WATCHDOG=1", f"EXTEND_TIMEOUT_USEC={unit.EXTEND_S * 1_000_000}"]


def test_nothing_holds_up_a_machine_that_goes_down(manager: Manager) -> None:
    """The boot restores; a poweroff that waits for a model to load is worse."""
    unit.UnitClock(lambda: "TERM", going_down=lambda: True).pause(0)
    assert manager.heard() == ["WATCHDOG=1"]


def test_without_a_service_manager_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell is no service manager."""
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    unit.UnitClock(lambda: "TERM").pause(0)


@pytest.mark.parametrize(
    ("name", "is_run"),
    [
        ("runner-run@200k-mtp.service", True),
        ("runner-guardian@20261129-000000-200k-mtp-3f9a.service", False),
        ("runner.service", False),
        ("my-runner-run@x.service", False),
        (None, False),
    ],
)
def test_a_run_that_systemd_started_knows_it(name: str | None, is_run: bool) -> None:
    """Then its guardian must be a unit of its own: a child would die with the run's unit."""
    assert unit.is_run(name) is is_run
