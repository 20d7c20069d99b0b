"""How fast production comes back: from the kill to the restore, and from a server's word to ours.

Prints JSON. Production and candidate are small real servers that write down when they were ready,
or about to die; the runs and the guardians that are killed are real processes.
"""

import json
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from jobs.servers.base import Command
from preflight.linux import proc
from preflight.linux.proc import Ident
from runner.candidate import Candidate, CandidateFailed
from runner.recovery import recover, restore, world
from runner.recovery.recipe import Recipe
from runner.until import RealClock, until

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))  # the tests are not installed; their small box is used here

from tests.runner.recovery.site import Site, summoned, until_says  # noqa: E402 - needs the path above

ROUNDS = 5
LOAD_S = 0.5
CLOCK = RealClock()
DOWN = ["armed", "noted", "stopped"]


def never() -> str | None:
    """Nobody asks for an end, and nothing strange is seen."""
    return None


def stamped(path: Path) -> float:
    """When the server says that it happened."""
    text = until(lambda: path.read_text() if path.exists() else None, within=30, clock=CLOCK)
    return float(text)


def production(site: Site) -> tuple[Recipe, Path]:
    """A service that loads for a while; the file is made by the first thing that it does."""
    begun = site.room / "begun"
    serve = site.room / "serve.sh"
    server = " ".join(site.odd("--model", str(site.model), "--load", str(LOAD_S)))
    serve.write_text(f"#!/bin/sh\n: > {begun}\nexec {server}\n")
    serve.chmod(0o755)
    return site.recipe([str(serve)]), begun


def kill(*who: Ident | None) -> float:
    """kill -9 all of these at once; when."""
    now = CLOCK.now()
    for one in who:
        if one is not None:
            world.send(one, signal.SIGKILL)
    return now


def begun_at(path: Path) -> float:
    """When the file was made, in CLOCK_BOOTTIME."""
    until(lambda: path.exists() or None, within=30, clock=CLOCK, every=0.001)
    return path.stat().st_mtime - CLOCK.wall().timestamp() + CLOCK.now()


def taken_down(site: Site) -> tuple[subprocess.Popen[str], Ident | None, Recipe, Path]:
    """A run that has production down, its guardian, and how production begins."""
    one, begun = production(site)
    one = site.start(one)
    run = site.act(site.owed(one), steps=DOWN)
    guardian = proc.ident(int(until_says(run, "guardian")))
    until_says(run, "stopped")
    begun.unlink()
    return run, guardian, one, begun


def by_the_guardian(site: Site) -> dict[str, float]:
    """The run is killed, and its guardian restores."""
    run, _, one, begun = taken_down(site)
    killed = kill(proc.ident(run.pid))
    took = begun_at(begun) - killed
    until(lambda: site.serves(one) or None, within=30, clock=CLOCK, every=0.005)
    return {
        "kill_to_restore_begun_ms_guardian": took,
        "kill_to_serving_beyond_load_ms": CLOCK.now() - killed - LOAD_S,
    }


def by_a_timer(site: Site) -> dict[str, float]:
    """Run and guardian are killed together; what `runner recover` needs once it is started."""
    run, guardian, _, begun = taken_down(site)
    kill(proc.ident(run.pid), guardian)
    began = CLOCK.now()
    site.recovery("recover", "--quiet")
    return {"recover_started_to_restore_begun_ms": begun_at(begun) - began}


def restored(one: Recipe, failed: Callable[[], object] = never) -> float | None:
    """One round of the restore; when the service was seen serving."""
    (served,) = restore.restore(
        [one],
        pasts={},
        last_good={},
        clock=CLOCK,
        stop=never,
        residency=lambda _: None,
        note=lambda *_: None,
        say=lambda event, **_: failed() if event == "failed" else None,
    )
    return served.at


def of_a_service(site: Site) -> dict[str, float]:
    """A restored service is ready, and a starting one dies: when that is noticed."""
    stamp = site.room / "stamp"
    known = ("--model", str(site.model), "--stamp", str(stamp))
    ready = restored(site.recipe(site.odd(*known, "--load", "0.2"), settle=0.0)) or 0.0
    ready -= stamped(stamp)
    site.end()  # the port is needed
    died: list[float] = []
    dying = site.recipe(site.odd(*known, "--load", "9", "--die", "0.2"))
    restored(dying, lambda: died.append(CLOCK.now() - stamped(stamp)))
    return {"service_ready_to_noticed_ms": ready, "service_died_to_noticed_ms": died[0]}


def of_a_candidate(site: Site) -> dict[str, float]:
    """The same of a candidate under its guardian."""
    stamp = site.room / "stamp"
    known = ("--model", str(site.model), "--stamp", str(stamp))
    with summoned(site) as keeper:

        def brought_up(*flags: str) -> float:
            one = Candidate(
                Command(tuple(site.odd(*known, *flags)), site.env, "/"),
                run=site.run,
                keeper=keeper,
                clock=CLOCK,
                log=site.room / "candidate.log",
            )
            one.start()
            with suppress(CandidateFailed):
                one.ready(site.probe(), site.port, within=30, stop=never, watch=never)
            now = CLOCK.now()
            one.end()
            took = now - stamped(stamp)
            stamp.unlink()
            return took

        return {
            "candidate_ready_to_noticed_ms": brought_up("--load", "0.3"),
            "candidate_died_to_noticed_ms": brought_up("--load", "9", "--die", "0.3"),
        }


def again(site: Site) -> dict[str, float]:
    """A recovery that finds nothing owed, as a timer starts it twice a minute."""
    began = CLOCK.now()
    recover.recover(site.state_dir, clock=CLOCK)
    return {"nothing_owed_ms": CLOCK.now() - began}


MEASURED: tuple[Callable[[Site], dict[str, float]], ...] = (
    by_the_guardian,
    by_a_timer,
    of_a_service,
    of_a_candidate,
    again,
)
WANTED = {
    "kill_to_restore_begun_ms_guardian": 1000,
    "kill_to_serving_beyond_load_ms": 1000,
    "recover_started_to_restore_begun_ms": 30_000,  # with a timer of 30 s: 60 s from the kill
    "service_ready_to_noticed_ms": 1000,
    "service_died_to_noticed_ms": 1000,
    "candidate_ready_to_noticed_ms": 15,
    "candidate_died_to_noticed_ms": 5,
    "nothing_owed_ms": 50,
}


def main() -> None:
    """Each a few times, on a box of its own; the medians."""
    found: dict[str, list[float]] = {name: [] for name in WANTED}
    for _ in range(ROUNDS):
        for measure in MEASURED:
            with tempfile.TemporaryDirectory() as room:
                site = Site(Path(room))
                try:
                    for name, seconds in measure(site).items():
                        found[name].append(seconds * 1000)
                finally:
                    site.end()
    print(
        json.dumps(
            {
                name: {
                    "found": round(median := statistics.median(found[name]), 1),
                    "wanted_at_most": limit,
                    "ok": median <= limit,
                }
                for name, limit in WANTED.items()
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
