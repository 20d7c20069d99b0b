"""`python -m tests.crash`: play cases on many small boxes at once, and say which promise broke.

The last line on standard output is one JSON object: cases, kills, violations, seconds, seed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from tests.crash import choose, strace
from tests.crash.pool import Suite, Worker
from tests.crash.record import RECORDINGS

WHOLE = 100
"""From so many cases on, every state of a power cut is looked at too."""

Json = dict[str, Any]


def main() -> int:
    """Choose, play, tell."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash")
    parser.add_argument("-n", type=int, default=1000, help="how many cases")
    parser.add_argument("--seed", type=int, default=None, help="the same cases as before")
    parser.add_argument("--workers", type=int, default=3 * (os.cpu_count() or 2))
    parser.add_argument("--case", action="append", default=[], help="play this case only")
    parser.add_argument("--layer", action="append", default=[], help="only these layers")
    parser.add_argument("--power", action="store_true", help="look at every state of a power cut")
    parser.add_argument("--every", type=int, default=1, help="of these, only each so many-th")
    parser.add_argument("--list", action="store_true", help="print the cases and play none")
    given = parser.parse_args()
    began = time.monotonic()
    seed = given.seed if given.seed is not None else int.from_bytes(os.urandom(3), "big")
    room = Path(tempfile.mkdtemp(prefix="crash-"))
    wanted = len(given.case) or given.n or 1
    workers = [Worker(number, room) for number in range(min(given.workers, wanted))]
    for worker in workers:
        worker.start()
    suite = Suite(workers)
    try:
        cases = given.case or (_chosen(suite, given, seed) if given.n else [])
        if given.list:
            print("\n".join(cases))
            return 0
        questions: list[Json] = [{"case": case} for case in cases]
        if strace.there() and (given.power or (given.n >= WHOLE and not given.case)):
            questions.insert(0, {"power": seed, "every": given.every})
        results = list(_played(suite, questions))
    finally:
        for worker in workers:
            worker.end()
        shutil.rmtree(room, ignore_errors=True)
    return _tell(results, began, seed)


def _chosen(suite: Suite, given: argparse.Namespace, seed: int) -> list[str]:
    asked = [{"record": name} for name in RECORDINGS]
    places = {q["record"]: a["places"] for q, a in suite.all(asked)}
    missing = choose.stale(places)
    if missing:
        print(f"points.py names steps that nobody takes: {', '.join(missing)}", file=sys.stderr)
    return [str(case) for case in choose.cases(given.n, seed, places, given.layer)]


def _played(suite: Suite, questions: list[Json]) -> Iterator[Json]:
    for number, (_, answer) in enumerate(suite.all(questions), start=1):
        yield answer
        for said in answer["violations"]:
            print(f"VIOLATION {said}")
        if answer["violations"]:
            print(f'  again: make crash CASE="{answer["case"]}"', flush=True)
        elif number % 50 == 0:
            print(f"{number} of {len(questions)}", file=sys.stderr, flush=True)


def _tell(results: list[Json], began: float, seed: int) -> int:
    skipped = Counter(one["skipped"] for one in results if "skipped" in one)
    for why, count in skipped.items():
        print(f"SKIPPED {count} cases: {why}", file=sys.stderr)
    cases = [one for one in results if "states" not in one and "skipped" not in one]
    bad = [one for one in results if one["violations"]]
    acted = sorted(
        (one for one in cases if one["reaction"] is not None), key=lambda one: -one["reaction"]
    )
    by_guardian = [one for one in acted if one["guarded"]]
    by_others = [one for one in acted if not one["guarded"]]
    missed = [one["case"] for one in cases if one["missed"]]
    for case in missed:
        print(f"missed, nobody came to that place: {case}", file=sys.stderr)
    for one in sorted(results, key=lambda one: -float(one["seconds"]))[:3]:
        print(f"slow: {one['seconds']} s {one['case']}", file=sys.stderr)
    for name, some in (("with its guardian", by_guardian), ("without", by_others)):
        for one in some[:3]:
            print(f"began {one['reaction']:.2f} s after, {name}: {one['case']}", file=sys.stderr)
    said = {
        "cases": len(cases),
        "kills": sum(one["kills"] for one in cases),
        "violations": len(bad),
        "seconds": round(time.monotonic() - began, 1),
        "seed": seed,
        "restore_begun_s": {"guardian": _spread(by_guardian), "no guardian": _spread(by_others)},
        "missed": len(missed),
        "skipped": sum(skipped.values()),
        "power_states": sum(one.get("states", 0) for one in results),
        "layers": Counter(str(one["case"]).split(maxsplit=1)[0] for one in cases),
    }
    print(json.dumps(said))
    return 1 if bad else 0


def _spread(acted: list[Json]) -> Json:
    """Seconds from the kill of a run to the start of production."""
    seconds = sorted(one["reaction"] for one in acted)
    if not seconds:
        return {"cases": 0}
    return {
        "cases": len(seconds),
        "median": round(median(seconds), 3),
        "p99": round(seconds[min(len(seconds) - 1, int(0.99 * len(seconds)))], 3),
        "most": round(seconds[-1], 3),
    }


if __name__ == "__main__":
    sys.exit(main())
