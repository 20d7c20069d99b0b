"""The run's side of its guardian: an acknowledgement that means something, and an end that is seen."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from preflight.linux import proc
from runner.recovery import keeper, wire
from runner.recovery.keeper import Keeper, KeeperGone
from runner.until import RealClock
from tests.runner.recovery.site import Site, gone, kill, stop, summoned
from tests.servers import soon


@pytest.fixture
def armed(site: Site) -> Iterator[Keeper]:
    """A guardian of this process, summoned as a run does it."""
    with summoned(site) as made:
        yield made


def test_a_guardian_acknowledges_and_lets_go(site: Site, armed: Keeper) -> None:
    """It says who it is; released, it ends, and its socket is gone."""
    assert armed.alive
    assert armed.look().left == ()
    assert armed.release() == ()
    gone([armed.who])
    assert not armed.alive
    assert not (site.state_dir / "runs" / site.run / wire.NAME).exists()


def test_a_guardian_that_was_stopped_is_no_live_one(
    armed: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P6: its process is there, and it guards nothing. What it says too late is not heard."""
    monkeypatch.setattr(keeper, "ANSWER_WITHIN_S", 0.2)
    armed._lines.connection.settimeout(0.2)
    stop(armed.who)
    assert armed.alive
    with pytest.raises(KeeperGone, match="does not answer"):
        armed.look()
    kill(armed.who, 18)
    with pytest.raises(KeeperGone):
        armed.look()


CRASH = """#!/bin/sh
echo 'Traceback (most recent call last):'
echo '  File "/somewhere/guardian.py", line 1, in <module>'
echo 'ModuleNotFoundError: No module named '"'alerts'"
exit 1
"""


def test_a_guardian_that_crashes_is_told_in_a_sentence(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What went wrong, and where its log is: a refusal is read on a phone, a traceback is not."""
    broken = site.room / "python"
    broken.write_text(CRASH)
    broken.chmod(0o755)
    site.leave(site.owed(site.recipe()), "armed")
    monkeypatch.setattr(sys, "executable", str(broken))
    with pytest.raises(KeeperGone) as told:
        keeper.summon(site.state_dir, site.run, clock=RealClock())
    said = str(told.value)
    assert "ended with exit code 1: ModuleNotFoundError: No module named 'alerts'" in said
    assert "Traceback" not in said
    assert "guardian.log" in said


def test_a_guardian_that_was_killed_is_seen(armed: Keeper) -> None:
    """Whatever is asked next, and how often: told as what it is, and not as a fault of a socket."""
    kill(armed.who)
    gone([armed.who])
    assert not armed.alive
    for _ in range(3):
        with pytest.raises(KeeperGone) as said:
            armed.term()
        assert str(said.value) == f"the guardian (pid {armed.who.pid}) is gone"


def test_a_candidate_is_kept_looked_at_and_ended(site: Site, armed: Keeper) -> None:
    """Its exit code is the keeper's to know."""
    log = site.state_dir / "candidate.log"
    shell = ["/bin/sh", "-c", "echo said; exit 7"]
    who = armed.spawn(shell, environment=site.env, cwd="/", log=log)
    assert isinstance(who, proc.Ident)
    soon(lambda: True if armed.look().exit == 7 else None)
    assert log.read_text() == "said\n"
    again = armed.spawn(["/bin/sleep", "60"], environment=site.env, cwd="/", log=log)
    assert isinstance(again, proc.Ident)
    armed.term()
    soon(lambda: True if armed.look().exit == -15 else None)
    assert armed.release() == ()


def test_a_guardian_that_does_not_come_says_why(site: Site, tmp_path: Path) -> None:
    """Nothing is on disk that it could guard."""
    (site.state_dir / "runs" / "r9").mkdir()
    with pytest.raises(KeeperGone, match="nothing is recorded for run r9"):
        keeper.summon(site.state_dir, "r9", clock=RealClock())
    with pytest.raises((KeeperGone, OSError)):
        keeper.summon(tmp_path, "r9", clock=RealClock())


def test_a_dead_guardian_is_replaced(site: Site, armed: Keeper) -> None:
    """Its socket lies there still; the next one takes its place."""
    kill(armed.who)
    gone([armed.who])
    again = keeper.summon(site.state_dir, site.run, clock=RealClock())
    assert again.who != armed.who
    assert again.release() == ()
    gone([again.who])


def test_a_state_directory_with_a_long_name_has_a_socket_too(tmp_path: Path) -> None:
    """A socket's own path may have 107 bytes only."""
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    site = Site(deep)
    try:
        with summoned(site) as armed:
            assert armed.release() == ()
    finally:
        site.end()
