"""`python -m tests.crash.mutants`: breaks the code in known ways, each of which must be caught.

A suite that cannot fail proves nothing. Each mutant is a copy of the tree with one rule taken out;
the cases named beside it must find a broken promise in it, and find none in the tree as it is.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("preflight", "jobs", "alerts", "runner", "tests", "deploy", "pyproject.toml")

WITHIN_S = 300

SENDING = "runner.measure._Session._send"
DOWN = f"run:KILL@point/{SENDING}/enter#1"
UNGUARDED = "guardian:KILL@point/runner.recovery.guardian.Guardian._take_over/enter#1"
STANDS = f"run:STOP@point/{SENDING}/enter#1"


@dataclass(frozen=True)
class Mutant:
    """One broken rule, and what the suite must say of it: to fail somehow is not to be caught.

    `replace` is (old, new) in `file`, else `append` goes to its end.
    """

    name: str
    what: str
    file: str
    sees: str
    append: str = ""
    replace: tuple[str, str] = ("", "")
    cases: tuple[str, ...] = ()
    tests: str = ""
    power: bool = False


MUTANTS = (
    Mutant(
        "M1",
        "production is stopped before the stop is recorded",
        "runner/production.py",
        sees="P1 production does not serve",
        append="""
_record, _held, _stop_all = _note_stop, [], stop


def _note_stop(memory, asked, *, first):
    _held.append((memory, dict(asked), first))


def stop(found, **given):
    try:
        return _stop_all(found, **given)
    finally:
        for memory, asked, first in _held:
            _record(memory, asked, first=first)
        _held.clear()
""",
        cases=("pair run:KILL@point/runner.recovery.stop.Stop.run/leave#1",),
    ),
    Mutant(
        "M2",
        "a recovery leaves the dead run's candidate alone",
        "runner/recovery/leftovers.py",
        sees="P3 still there",
        append="\n\ndef end_leftovers(owed, known, clock):\n    return []\n",
        cases=(f"tree {DOWN} {UNGUARDED} candidate=ignore-term,double-fork,setsid",),
    ),
    Mutant(
        "M3",
        "an alert is marked as sent before it is",
        "alerts/deliver.py",
        sees="counts as sent and did not arrive",
        append="""
_deliver_all = deliver_all


def deliver_all(rows, channels, *, mark_sent, mark_failed, **more):
    rows = list(rows)
    for row in rows:
        mark_sent(row.id, "sent")
    return _deliver_all(
        rows, channels, mark_sent=lambda *_: None, mark_failed=lambda *_: None, **more
    )
""",
        cases=(
            "pair run:KILL@point/alerts.plain.append/enter#1 candidate=refuted",
            f"pair {DOWN} guardian:KILL@point/alerts.plain.append/enter#1",
        ),
    ),
    Mutant(
        "M4",
        "a recovery believes the journal and not the world",
        "runner/recovery/recover.py",
        sees="P1 production does not serve",
        append="""
_settle = settle


def settle(state_dir, owed, **given):
    with Journal.open(state_dir, read_only=True) as journal:
        names = {event["name"] for event in journal.events(owed.run)}
    if "stopped" not in names:
        recipe.close(state_dir, [])
        return Recovered("closed", "the journal knows of no stop", owed.run)
    return _settle(state_dir, owed, **given)
""",
        cases=("pair run:KILL@point/runner.recovery.stop.Stop.run/leave#1",),
    ),
    Mutant(
        "M5",
        "production is started although a copy is on its way up",
        "runner/recovery/attempt.py",
        sees="P2 the GPU had two tenants: production beside production",
        append="""

def _start_anyway(self):
    self._log, self._began = self._watch(), self._clock.now()
    refused = self.driver.start()
    self._note(getattr(self.driver, "started", None))
    return refused or ""


Attempt._start_unless_there = _start_anyway
""",
        cases=(
            "pair run:KILL@point/runner.recovery.drivers.process.ProcessDriver.start/leave#1 production=load:0.8,late",
        ),
    ),
    Mutant(
        "M6",
        "the journal is not synced at each commit",
        "runner/journal_file.py",
        sees="is lost",
        replace=("PRAGMA synchronous=FULL", "PRAGMA synchronous=NORMAL"),
        power=True,
    ),
    Mutant(
        "M7",
        "alerts are sent as Markdown",
        "alerts/telegram.py",
        sees="parse_mode",
        replace=("parse_mode=None", 'parse_mode="Markdown"'),
        tests="tests/alerts/test_telegram.py",
    ),
    Mutant(
        "M8",
        "servers on this box are asked through the environment's proxy",
        "jobs/wire.py",
        sees="an undisturbed run ended with 6",
        replace=(
            "verify=_certificates(), trust_env=False",
            "verify=_certificates(), trust_env=True",
        ),
        cases=("plain env=proxy",),
    ),
    Mutant(
        "M9",
        "a log line that cannot be written raises",
        "runner/logs.py",
        sees="a run ended with 1",
        append="""

def _raising(self, level, event, fields):
    os.write(2, f"{event}\\n".encode())


Log._say = _raising
""",
        cases=(
            "disk run:STOP@point/runner.journal.Journal.close/enter#1 act=lock-journal candidate=refuted env=full-log",
        ),
    ),
    Mutant(
        "M10",
        "a recovery needs the journal",
        "runner/recovery/recover.py",
        sees="P1 production did not come back",
        append="""
_recover = recover


def recover(state_dir, **given):
    Journal.open(state_dir).shut()
    return _recover(state_dir, **given)
""",
        cases=(f"world {STANDS} act=newer-journal then=KILL",),
    ),
    Mutant(
        "M11",
        "a lock is waited for whose holder hangs",
        "runner/recovery/leftovers.py",
        sees="hung",
        append="\n\ndef end_hung_holder(*_):\n    return\n",
        cases=(f"frozen {STANDS} act=freeze-unguarded",),
    ),
    Mutant(
        "M12",
        "the model to restore is found by a glob",
        "runner/recovery/drivers/process.py",
        sees="P1 production does not serve: other.bin",
        append="""
_start = ProcessDriver.start


def _start_what_is_found(self):
    import glob

    self._argv = tuple(
        sorted(glob.glob(str(Path(word).parent / "*.bin")))[-1] if word.endswith(".bin") else word
        for word in self._argv
    )
    return _start(self)


ProcessDriver.start = _start_what_is_found
""",
        cases=("plain", f"pair {DOWN}"),
    ),
    Mutant(
        "M13",
        "a start that has failed is waited for until its deadline",
        "runner/recovery/attempt.py",
        sees="P1 that production cannot come back was told after",
        append="\n\nAttempt._hopeless = lambda self: None\n",
        cases=(f"world {STANDS} act=lose-model",),
    ),
    Mutant(
        "M14",
        "a unit's end waits for the recovery that it asks for",
        "runner/units/texts.py",
        sees="--no-block",
        replace=("systemctl start --no-block runner-recover", "systemctl start runner-recover"),
        tests="tests/runner/units/test_units.py",
    ),
    Mutant(
        "M15",
        "production is stopped although its guardian has died",
        "runner/production.py",
        sees="P6 production was stopped although nobody guarded",
        replace=("        keeper.look()  #", "        pass  #"),
        cases=("world run:STOP@point/preflight.rings.gate/leave#1 act=kill-guardian",),
    ),
    Mutant(
        "M16",
        "production that somebody else ended is taken for ours",
        "runner/production.py",
        sees="P1 started what somebody else had ended",
        replace=("if not living(stopping.family):", "if False:"),
        cases=("world run:STOP@point/preflight.rings.gate/leave#1 act=stop-production",),
    ),
    Mutant(
        "M17",
        "a run that died owing nothing is forgotten",
        "runner/recovery/limbo.py",
        sees="P4 run",
        append="\n\ndef close_dead(*_, **__):\n    return []\n",
        cases=("pair run:KILL@point/runner.run.Run._preflight/leave#1",),
    ),
    Mutant(
        "M18",
        "a candidate counts as ended when it was asked to",
        "runner/candidate.py",
        sees="P2 the GPU had two tenants",
        append="""

def _asked(self):
    self._keeper.term()
    return Ended(0, 0.0)


Candidate.end = _asked
""",
        cases=("tree candidate=ignore-term",),
    ),
    Mutant(
        "M19",
        "a recovery restarts a production that is well",
        "runner/recovery/attempt.py",
        sees="P7 a production that was back was ended again",
        append="""
_run = Attempt.run


def _stop_first(self, note):
    Stop(self._recipe, self.driver, self._clock).run()
    return _run(self, note)


Attempt.run = _stop_first
""",
        cases=("pair run:KILL@point/runner.closing.close/enter#1",),
    ),
    Mutant(
        "M20",
        "the outcome is durable before its alert",
        "runner/journal.py",
        sees="P5 run",
        append="""
_close = Journal.close


def _in_two(self, run_id, outcome, *rest, alert, **more):
    done = _close(self, run_id, outcome, *rest, alert=None, **more)
    if alert is not None:
        self.post(f"{run_id}:{outcome}", alert, run_id)
    return done


Journal.close = _in_two
""",
        cases=("pair run:KILL@point/runner.journal.Journal.post/enter#1 candidate=refuted",),
    ),
)


def copy(into: Path) -> None:
    """The tree, without what is made."""
    into.mkdir()
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, into / part, ignore=ignored)
        else:
            shutil.copy(source, into / part)


def broken(mutant: Mutant, tree: Path) -> None:
    """Take the rule out. Raises ValueError where the code is not what the mutant knows."""
    path = tree / mutant.file
    text = path.read_text()
    old, new = mutant.replace
    if old and text.count(old) < 1:
        raise ValueError(f"{mutant.name}: {mutant.file} does not hold `{old}` any more")
    path.write_text(text.replace(old, new) + mutant.append if old else text + mutant.append)


def fails(tree: Path, *, cases: Sequence[str] = (), power: bool = False, tests: str = "") -> str:
    """What the cases, or the tests, say of a tree; empty when they find nothing wrong."""
    env = os.environ | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    if tests:
        words = ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", tests]
    else:
        words = ["-m", "tests.crash", "-n", "0", *(["--power"] if power else [])]
        words += [word for case in cases for word in ("--case", case)]
    ran = subprocess.run(
        [sys.executable, *words],
        cwd=tree,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    output = f"{ran.stdout}{ran.stderr}"
    if ran.returncode not in (0, 1):
        raise ValueError(output[-2000:])
    return output if ran.returncode else ""


def whole_fails(room: Path, chosen: Sequence[Mutant]) -> str:
    """What all of the cases say of the tree as it is: nothing, or no mutant could be told from it."""
    tree = room / "whole"
    copy(tree)
    cases = list(dict.fromkeys(case for mutant in chosen for case in mutant.cases))
    power = any(mutant.power for mutant in chosen)
    said = fails(tree, cases=cases, power=power) if cases or power else ""
    for tests in dict.fromkeys(mutant.tests for mutant in chosen if mutant.tests):
        said += fails(tree, tests=tests)
    return said


def fate(room: Path, mutant: Mutant) -> str:
    """Either "caught", "SURVIVED", or why it cannot be told."""
    tree = room / mutant.name
    copy(tree)
    try:
        broken(mutant, tree)
        found = fails(tree, cases=mutant.cases, power=mutant.power, tests=mutant.tests)
    except (ValueError, subprocess.TimeoutExpired) as error:
        return f"cannot be told: {error}"
    finally:
        shutil.rmtree(tree, ignore_errors=True)
    if found and mutant.sees not in found:
        return f"fails, and not because of it: {found[-2000:]}"
    return "caught" if found else "SURVIVED"


def main() -> int:
    """First the tree as it is, then each mutant; the last line is JSON."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.mutants")
    parser.add_argument("names", nargs="*", help="only these")
    given = parser.parse_args()
    chosen = [one for one in MUTANTS if not given.names or one.name in given.names]
    began, fates = time.monotonic(), {}
    with tempfile.TemporaryDirectory(prefix="mutants-") as place:
        room = Path(place)
        if said := whole_fails(room, chosen):
            print(f"{said}\nthe tree as it is fails: no mutant can be told from it")
        else:
            with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
                ends = pool.map(lambda one: fate(room, one), chosen)
                for mutant, end in zip(chosen, ends, strict=True):
                    fates[mutant.name] = end
                    print(f"{mutant.name} {end}: {mutant.what}", flush=True)
    survived = [name for name, end in fates.items() if end == "SURVIVED"]
    caught = [name for name, end in fates.items() if end == "caught"]
    numbers = {
        "mutants": len(chosen),
        "caught": len(caught),
        "survived": survived,
        "seconds": round(time.monotonic() - began, 1),
    }
    print(json.dumps(numbers))
    return 0 if len(caught) == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
