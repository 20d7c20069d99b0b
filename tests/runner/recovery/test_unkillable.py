"""Processes that hang in the kernel, as a stuck driver leaves them: nobody waits, a person is told.

They are real ones: what is frozen by the first version of control groups sleeps uninterruptibly and
takes no signal, not even KILL, until it is thawed.
"""

import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from preflight.linux import proc
from runner.recovery import leftovers, recover
from runner.recovery.drivers import driver
from runner.recovery.stop import Stop
from tests.runner.recovery.site import Site, until_says
from tests.servers import soon

FREEZER = Path("/sys/fs/cgroup/freezer")


class Ice:
    """A frozen control group of the test's own."""

    def __init__(self) -> None:
        self._home = FREEZER / f"runner-test-{uuid.uuid4().hex[:8]}"
        try:
            self._home.mkdir()
        except OSError as error:
            pytest.skip(f"no process can be frozen here ({error.strerror}): this needs cgroup v1")

    def freeze(self, *pids: int) -> None:
        """Put these into it, and wait until they sleep in the kernel."""
        for pid in pids:
            (self._home / "cgroup.procs").write_text(str(pid))
        (self._home / "freezer.state").write_text("FROZEN")
        soon(lambda: True if all(self._sleeps(pid) for pid in pids) else None)

    @staticmethod
    def _sleeps(pid: int) -> bool:
        found = proc.stat(pid)
        return found is not None and found.state == "D"

    def thaw(self) -> None:
        """Let them go on, or die of what they were sent meanwhile."""
        (self._home / "freezer.state").write_text("THAWED")

    def melt(self) -> None:
        """Thaw, and take the group away once it is empty."""
        self.thaw()
        for pid in (self._home / "cgroup.procs").read_text().split():
            (FREEZER / "cgroup.procs").write_text(pid)
        soon(lambda: None if (self._home / "cgroup.procs").read_text() else True)
        self._home.rmdir()


@pytest.fixture
def ice(site: Site) -> Iterator[Ice]:
    """Melts before the site is ended."""
    del site
    made = Ice()
    try:
        yield made
    finally:
        made.melt()


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The waits, shortened."""
    monkeypatch.setattr(leftovers, "CLEAR_S", 0.5)
    monkeypatch.setattr(leftovers, "KILL_HOLDER_S", 0.5)
    for name in ("FIRST_TERM_S", "SECOND_TERM_S", "KILL_S"):
        monkeypatch.setattr(f"runner.recovery.stop.{name}", 0.3)


def test_a_service_that_hangs_in_the_kernel_is_a_finding_of_its_own(site: Site, ice: Ice) -> None:
    """It is not stopped, whatever was sent: no candidate may be started beside it."""
    one = site.start(site.recipe())
    pid = site.listener()
    ice.freeze(pid)
    halt = Stop(one, driver(one), site.clock).run()
    assert not halt.stopped
    assert halt.finding.startswith(f"llm does not end: pid {pid} (")
    assert "unkillable (in the kernel)" in halt.finding
    assert "killed, it ignored two TERMs" in halt.notes[-1]


def test_a_run_that_hangs_in_the_kernel_is_told_and_its_lock_not_taken(
    site: Site, ice: Ice
) -> None:
    """P2 and P5: two on one box is worse than none; and when it can die, production comes back."""
    one = site.start(site.recipe())
    owed = site.owed(one, ends_at=site.clock.now() + 0.2)
    run = site.act(owed, guardian=False, steps=["armed", "noted", "stopped"])
    until_says(run, "stopped")
    ice.freeze(run.pid)
    soon(lambda: True if site.clock.now() > (owed.ends_at or 0) else None)
    for _ in range(3):
        assert recover.recover(site.state_dir, clock=site.clock).state == "held"
    assert site.copies() == []
    (first,) = site.told()
    assert "hangs in the kernel and cannot be killed · reboot the box" in first
    assert f"pid {run.pid} (" in site.alerts.read_text()
    ice.thaw()
    assert run.wait(timeout=10) == -signal.SIGKILL
    assert recover.recover(site.state_dir, clock=site.clock).state == "closed"
    assert site.serves(one)


def test_a_candidate_that_hangs_in_the_kernel_is_named_and_production_brought_back(
    site: Site, ice: Ice
) -> None:
    """It may hold what production needs; that production is tried all the same is our debt."""
    one = site.recipe()
    candidate = site.child(["/bin/sleep", "600"], env={proc.TAG: site.run})
    ice.freeze(candidate.pid)
    site.leave(site.owed(one))
    assert recover.recover(site.state_dir, clock=site.clock).state == "closed"
    assert site.serves(one)
    said = site.alerts.read_text()
    assert f"pid {candidate.pid} (sleep, unkillable (in the kernel)) of the dead run" in said
