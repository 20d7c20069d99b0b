"""A small box for one test: production as a real process, a state directory, and a clean end.

Every process that is started here, or by what is started here, carries a mark in its environment or
is recorded; when the test is over, however it went, exactly these are ended.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from preflight.linux import proc
from preflight.linux.proc import Ident
from runner.recovery import cgroups, keeper, probe, recipe, state, world
from runner.recovery.drivers import driver
from runner.recovery.drivers.process import SERVICE
from runner.recovery.keeper import Keeper
from runner.recovery.recipe import Owed, Recipe
from runner.recovery.told import Told
from runner.until import RealClock
from tests.fakes_runner import HastyClock
from tests.servers import STANDIN, free_port, soon

HERE = Path(__file__).parent
ACTING_RUN = HERE / "acting_run.py"
ODD_SERVER = HERE / "odd_server.py"
MARK = "RUNNER_TEST"

Json = dict[str, Any]


class Site:
    """One production service, the debt of it, and the runs and recoveries of a test."""

    def __init__(self, room: Path) -> None:
        self.room, self.mark = room, uuid.uuid4().hex
        self.run = f"run-{self.mark[:12]}"
        self.state_dir = room / "state"
        (self.state_dir / "runs" / self.run).mkdir(parents=True)
        self.alerts = room / "alerts.txt"
        self.lock_name = f"test-{self.mark}"
        self.port = free_port()
        self.model = room / "model.gguf"
        self.model.write_bytes(b"GGUF" + bytes(100))
        self.log = room / "production.log"
        self.clock = HastyClock()
        self._recorded: set[Ident] = set()
        self._children: list[subprocess.Popen[str]] = []

    # -- production ---------------------------------------------------------------------------

    @property
    def env(self) -> dict[str, str]:
        """The environment of everything that belongs to this test."""
        return dict(os.environ) | {MARK: self.mark}

    def standin(self, *flags: str, model: Path | None = None) -> list[str]:
        """The command of a stand-in server on production's port."""
        known = [
            "--port",
            str(self.port),
            "--model",
            str(model or self.model),
            "--ctx-size",
            "4096",
        ]
        return [*STANDIN, *known, *flags]

    def plain(self) -> list[str]:
        """The command of a server that does as it should, and is there at once."""
        return self.odd("--model", str(self.model))

    def odd(self, *flags: str) -> list[str]:
        """The command of a server with ways that no real one should have."""
        return [sys.executable, "-I", "-S", str(ODD_SERVER), "--port", str(self.port), *flags]

    def recipe(self, argv: Sequence[str] | None = None, /, **changed: Any) -> Recipe:
        """How production is started and recognised."""
        known = Recipe(
            name="llm",
            kind="llamacpp",
            host="127.0.0.1",
            port=self.port,
            supervisor=self.process(argv or self.plain()),
            probe=self.probe(),
            inputs=[{"path": str(self.model), "role": "weights"}],
            ready_within=20.0,
            settle=0.1,
        )
        return dataclasses.replace(known, **changed)

    def process(self, argv: Sequence[str], **changed: Any) -> Json:
        """A `process` supervisor for a command."""
        known = {"kind": "process", "argv": list(argv), "cwd": "/", "env": self.env}
        return known | {"log": str(self.log), "pidfile": None} | changed

    def probe(self, **changed: Any) -> Json:
        """What production is asked."""
        return {
            "base": f"http://127.0.0.1:{self.port}",
            "api_key": None,
            "health": "/health",
            "identity": [
                {
                    "path": "/props",
                    "at": ["default_generation_settings", "n_ctx"],
                    "name": "context",
                }
                | {"want": 4096, "how": "equals"},
                {"path": "/props", "at": ["model_path"], "name": "model_path"}
                | {"want": str(self.model), "how": "equals"},
            ],
            "completion": {
                "path": "/completion",
                "body": {"prompt": "hi", "n_predict": 4},
                "counted": ["timings", "predicted_n"],
                "text": ["content"],
            },
            "fatal": ["failed to open GGUF file", "out of memory"],
        } | changed

    def start(self, one: Recipe) -> Recipe:
        """Bring a service up as a person would, and give back its recipe with its identity."""
        driving = driver(one)
        assert driving.start() is None
        look = soon(lambda: look if (look := probe.serving(one.probe)).serving else None)
        (who,) = driving.standing().heads
        argv = proc.cmdline(self.listener())
        return dataclasses.replace(
            one, identity={"who": who.to_json(), "said": look.identity, "argv": list(argv or ())}
        )

    def listener(self) -> int:
        """The pid that listens on production's port."""
        (pid,) = soon(lambda: proc.owners(self.port) or None)
        return pid

    def heads(self, one: Recipe) -> set[int]:
        """The pids that are this service."""
        return {who.pid for who in driver(one).standing().heads}

    def serves(self, one: Recipe) -> bool:
        """Whether it does what it is there for."""
        return probe.serving(one.probe).serving

    def copies(self) -> list[int]:
        """Every process that was started as this test's production."""
        name = f"llm:{self.port}"
        return [
            pid
            for pid in self.marked()
            if (proc.environ(pid) or {}).get(SERVICE) == name and proc.ident(pid) is not None
        ]

    # -- the debt -----------------------------------------------------------------------------

    def owed(self, *services: Recipe, **changed: Any) -> Owed:
        """What the run of this test owes."""
        known = Owed(
            run=self.run,
            job="night",
            boot=proc.boot_id(),
            since="2026-03-01T00:00:00+00:00",
            lock_name=self.lock_name,
            services=list(services),
            stops=[one.name for one in services],
            tell=[{"kind": "file", "path": str(self.alerts)}],
        )
        return dataclasses.replace(known, **changed)

    def leave(self, owed: Owed, phase: str = "stopping", **known: Any) -> None:
        """What a run leaves on disk that died in this phase."""
        memory = state.StateFile(self.state_dir)
        memory.begin({"run": owed.run, "phase": phase, "lock_name": owed.lock_name, **known})
        memory.close()
        recipe.write(self.state_dir, owed)

    @property
    def is_owed(self) -> bool:
        """Whether the debt is open."""
        return (self.state_dir / recipe.NAME).exists()

    def told(self) -> list[str]:
        """The first lines of the alerts so far."""
        if not self.alerts.exists():
            return []
        blocks = self.alerts.read_text().strip().split("\n\n")
        return [block.splitlines()[1] for block in blocks if len(block.splitlines()) > 1]

    # -- processes ----------------------------------------------------------------------------

    def act(self, owed: Owed, **plan: Any) -> subprocess.Popen[str]:
        """Start a run that does what the plan says; it says each step that it has done."""
        path = self.room / f"plan-{uuid.uuid4().hex}.json"
        path.write_text(json.dumps({"owed": owed.to_json(), **plan}))
        return self.child([sys.executable, str(ACTING_RUN), str(self.state_dir), str(path)])

    def child(
        self, argv: Sequence[str], env: Mapping[str, str] | None = None, **more: Any
    ) -> subprocess.Popen[str]:
        """A process of the test, its output to be read."""
        child = subprocess.Popen(
            list(argv),
            env=self.env | dict(env or {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd="/",
            **more,
        )
        self._children.append(child)
        return child

    def recovery(self, verb: str = "recover", *words: str, **more: Any) -> subprocess.Popen[str]:
        """`python -I -m runner.recovery VERB` on this box."""
        argv = [sys.executable, "-I", "-m", "runner.recovery", verb]
        return self.child([*argv, "--state-dir", str(self.state_dir), *words], **more)

    def record(self, *pids: int) -> None:
        """Processes that have shed the mark, to be ended with the others."""
        self._recorded |= {who for pid in pids if (who := proc.ident(pid)) is not None}

    def marked(self) -> set[int]:
        """Every live process of this test that still bears its mark."""
        return {
            pid
            for pid in proc.pids()
            if (proc.environ(pid) or {}).get(MARK) == self.mark and pid != os.getpid()
        }

    def end(self) -> None:
        """End everything that belongs to this test."""
        for state_dir in (self.state_dir, self.room / "disk"):
            for file in Told(state_dir).files:
                file.unlink(missing_ok=True)

        def ended() -> bool | None:
            left = set(world.identified(self.marked)) | {
                who for who in self._recorded if proc.alive(who)
            }
            world.send_all(left, signal.SIGKILL)
            world.send_all(left, signal.SIGCONT)
            # one that was started this instant shows no environment yet
            unborn = any(proc.environ(pid) == {} for pid in proc.descendants(os.getpid()))
            return None if left or unborn else True

        soon(ended)
        for child in self._children:
            child.kill()
            child.wait()
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    pipe.close()
        home = cgroups.make(self.run)  # the guardian's, if it could not take it away itself
        if home is not None:
            cgroups.remove(home)


@contextmanager
def summoned(site: Site) -> Iterator[Keeper]:
    """A guardian of this very process, summoned as a run does it; ended with the site."""
    me = proc.ident(os.getpid())
    assert me is not None
    site.leave(site.owed(site.recipe()), "armed", who=me.to_json())
    before = os.environ.get(MARK)
    os.environ[MARK] = site.mark  # it is found by this when the test is over
    try:
        made = keeper.summon(site.state_dir, site.run, clock=RealClock())
    finally:
        if before is None:
            del os.environ[MARK]
        else:
            os.environ[MARK] = before
    try:
        yield made
    finally:
        made.close()


def line(child: subprocess.Popen[str]) -> str:
    """The next line that a child says."""
    assert child.stdout is not None
    return child.stdout.readline().strip()


def until_says(child: subprocess.Popen[str], word: str) -> str:
    """Read on to the line that begins with a word; the rest of that line."""
    seen: list[str] = []
    while said := line(child):
        seen.append(said)
        if said.startswith(word):
            return said.removeprefix(word).strip()
    raise AssertionError(f"never said {word!r}: {seen}")


def kill(who: subprocess.Popen[str] | Ident | None, number: int = signal.SIGKILL) -> None:
    """kill -9, or another signal, to exactly this process."""
    assert who is not None
    found = who if isinstance(who, Ident) else proc.ident(who.pid)
    assert found is not None
    assert world.send(found, signal.Signals(number))


def stop(child: subprocess.Popen[str] | Ident) -> None:
    """SIGSTOP: it lives, holds what it holds, and does nothing any more."""
    kill(child, signal.SIGSTOP)
    found = child if isinstance(child, Ident) else proc.ident(child.pid)
    assert found is not None
    soon(lambda: world.is_stopped(found) or None)


def gone(who: Iterable[Ident]) -> None:
    """Wait until none of these lives."""
    members = list(who)
    soon(lambda: None if any(proc.alive(one) for one in members) else True)
