"""A slice of the crash suite: every fault that it has found, and one case of each kind."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash import strace

ROOT = Path(__file__).parents[2]

FAULTS = {
    "a run that died in preflight had no outcome and was never told": (
        "pair run:KILL@point/runner.run.Run._preflight/leave#1"
    ),
    "production that an administrator stopped after the gate was started again": (
        "world run:STOP@point/preflight.rings.gate/leave#1 act=stop-production"
    ),
    "a refused run said SERVING of a production that was gone": (
        "world run:STOP@point/runner.run.Run._preflight/enter#1 act=kill-production"
    ),
    "a full disk was called a fault of the runner": (
        "disk run:STOP@point/runner.run.Run._pay_old_debt/enter#1 act=fill-disk"
    ),
    "a full disk took the outcome of a run away": (
        "disk run:STOP@point/runner.recovery.attempt.Attempt._settle/leave#1 act=fill-disk"
    ),
    "a recovery on a read-only disk told at each look": (
        "disk run:STOP@point/runner.measure._Session._send/enter#1 act=read-only then=KILL"
    ),
    "a removed state directory took the history away and nobody was told": (
        "world run:STOP@point/runner.measure._Session._send/enter#1 act=remove-state"
    ),
    "a locked journal held the restore up": (
        "world run:STOP@point/runner.measure._Session._send/enter#1 act=lock-journal"
    ),
}
"""What went wrong once, and the case that shows it."""

KINDS = (
    "plain candidate=refuted",
    "plain env=proxy",
    "pair run:KILL@point/runner.recovery.stop.Stop.run/leave#1 guardian:KILL@point/runner.recovery.restore.restore/enter#1",
    "pair run:KILL@point/runner.closing.close/enter#1 candidate=refuted",
    "tree run:KILL@point/runner.measure._Session._send/enter#1 guardian:KILL@point/runner.recovery.guardian.Guardian._take_over/enter#1 candidate=ignore-term,double-fork,setsid",
    "signal run:TERM@point/runner.production.stop/leave#1",
    "world run:STOP@point/runner.measure._Session._send/enter#1 act=steal-port",
    "crowd crowd=3",
)
"""One case of each kind; the places are named, so that nothing needs to be counted first."""


def played(*words: str) -> tuple[dict[str, object], str]:
    """The last line of the suite, and all of its output."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.crash", *words],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.stdout, ran.stderr
    said: dict[str, object] = json.loads(ran.stdout.splitlines()[-1])
    return said, ran.stdout + ran.stderr


def test_no_promise_breaks_where_one_broke_before() -> None:
    """Kills, full disks, stolen ports, strangers: production is back, or a person knows."""
    cases = [*FAULTS.values(), *KINDS]
    said, output = played(*(word for case in cases for word in ("--case", case)))
    assert said["violations"] == 0, output
    assert said["cases"] == len(cases) - int(str(said["skipped"]))
    assert said["missed"] == 0, output


@pytest.mark.skipif(strace.there() is None, reason="strace is not installed")
def test_no_power_cut_takes_away_what_was_taken_for_durable() -> None:
    """Journal and recovery files, after every change of a run, with torn sectors and lost names."""
    said, output = played("-n", "0", "--power", "--every", "3", "--seed", "7")
    assert said["violations"] == 0, output
    assert int(str(said["power_states"])) > 150
