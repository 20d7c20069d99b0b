"""A box for one test: configuration, jobs, production as a real process, and the real `runner`."""

import json
import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx

from preflight.linux import proc
from runner.demo import models
from runner.recovery import world
from runner.settings import load_settings
from tests.servers import STANDIN, free_port, soon

RUNNER = (sys.executable, "-I", "-m", "runner")
JOB = "night"

Json = dict[str, Any]


@dataclass
class Ran:
    """How one command of the runner ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Json:
        """The one object that it printed."""
        said = json.loads(self.out)
        assert isinstance(said, dict)
        return said

    def check(self, name: str, state: str | None = None) -> list[Json]:
        """The verdicts of this check, perhaps only those of one state."""
        return [
            verdict
            for verdict in self.json["checks"]
            if verdict["id"] == name and state in (None, verdict["state"])
        ]

    def claim(self, kind: str) -> Json:
        """The claim of this kind."""
        (claim,) = [each for each in self.json["claims"] if each["kind"] == kind]
        return claim

    def __str__(self) -> str:
        return f"exit {self.code}\n{self.out}\n{self.err}"


class Run:
    """A command of the runner that goes on beside the test."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    @property
    def pid(self) -> int:
        """Its process."""
        return self.process.pid

    def end(self, within: float = 60.0) -> Ran:
        """Wait until it has ended."""
        out, err = self.process.communicate(timeout=within)
        return Ran(self.process.returncode, out, err)


class Night:
    """One box, with everything in a directory of the test's own."""

    def __init__(self, room: Path) -> None:
        self.room = room
        self.config = room / "runner.toml"
        self.state = room / "state"
        self.alerts = room / "alerts.log"
        self.candidate_port = free_port()
        self.settings: Json = {
            "timezone": "UTC",
            "jobs_dir": str(room / "jobs"),
            "state_dir": str(self.state),
            "lock_name": f"test-{uuid.uuid4().hex}",
            "alerts": {
                "unproven_delivery": "accept",
                "channel": [{"kind": "file", "path": str(self.alerts)}],
            },
            "production": [],
        }
        (room / "jobs").mkdir(parents=True)
        (self.model,) = models.write("mtp", room / "candidate.gguf")
        self.write()

    # -- what lies on the box ----------------------------------------------------------------

    def service(self, name: str = "llm", *flags: str, **more: Any) -> Json:
        """Add a service that the stand-in serves; returns its table."""
        service: Json = {
            "name": name,
            "kind": "llamacpp",
            "command": list(STANDIN),
            "model": str(models.write("plain", self.room / f"{name}.gguf")[0]),
            "port": free_port(),
            "context": 4096,
            "parallel": 1,
            "args": list(flags),
            "ready_within": "20s",
            "idle_within": "2s",
            "supervisor": {"kind": "process", "log": str(self.room / f"{name}.log")},
            **more,
        }
        self.settings["production"].append(service)
        self.write()
        return service

    def job(self, *flags: str, name: str = JOB, **more: Any) -> Json:
        """Write a job whose candidate is the stand-in with these flags; returns its tables."""
        job: Json = {
            "question": "Does it run?",
            "downtime_budget": "60s",
            "candidate": {
                "kind": "llamacpp",
                "command": list(STANDIN),
                "model": str(self.model),
                "port": self.candidate_port,
                "context": 4096,
                "parallel": 1,
                "args": ["--spec-type", "draft-mtp", *flags],
                "ready_within": "10s",
            },
            # containers of whoever uses this machine are not for a test to ask
            "accept": {"port.docker": "no container publishes a port of this test"},
            "workload": {"max_tokens": 16, "repeats": 1, "warmups": 1, "fill": [0.5]},
            "claim": [
                {"kind": "speculation", "type": "draft-mtp"},
                {"kind": "context", "tokens": 4096, "filled_at_least": 0.4},
            ],
        }
        for key, value in more.items():
            job[key] = {**job[key], **value} if isinstance(value, dict) and key in job else value
        (self.room / "jobs" / f"{name}.toml").write_text(toml(job))
        return job

    def write(self) -> None:
        """Write runner.toml from the tables."""
        self.config.write_text(toml(self.settings))

    # -- production --------------------------------------------------------------------------

    def start(self) -> None:
        """Start every service as its supervisor would, and wait until all are healthy."""
        for service in load_settings(self.config).production:
            recipe = service.supervisor.recipe(service.command_line())
            log = Path(recipe["log"])
            child = world.spawn(
                recipe["argv"], environment=recipe["env"], cwd=recipe["cwd"], log=log
            )
            child.returncode = 0  # the run will end it
            soon(lambda port=service.port: self.pid(port), within=20)

    def pid(self, port: int | None = None) -> int | None:
        """The process that answers on a port, by default on the first service's; else None."""
        port = port or self.settings["production"][0]["port"]
        if get(port, "/health") != 200:
            return None
        return next(iter(sorted(proc.owners(port))), None)

    def serving(self) -> int:
        """The pid of the first service, which must be healthy."""
        pid = self.pid()
        assert pid is not None
        return pid

    def told(self) -> str:
        """Every alert so far, without the time that stands above each."""
        said = self.alerts.read_text() if self.alerts.exists() else ""
        return re.sub(r"^\d{4}-\d\d-\d\dT\S+\n", "", said, flags=re.MULTILINE)

    # -- the runner --------------------------------------------------------------------------

    def begin(self, *words: str, env: Mapping[str, str] | None = None) -> Run:
        """Start the runner on this box, and let it go on."""
        return Run(
            subprocess.Popen(
                [*RUNNER, "--config", str(self.config), *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                cwd=self.room,
                env={**os.environ, **(env or {})},
            )
        )

    def call(self, *words: str, within: float = 60.0, env: Mapping[str, str] | None = None) -> Ran:
        """Run the runner on this box to its end."""
        return self.begin(*words, env=env).end(within)

    def run(self, job: str = JOB, *words: str, within: float = 60.0) -> Ran:
        """`runner run JOB --json`."""
        return self.call("run", job, "--json", *words, within=within)

    def begin_and_stop_production(self, job: str = JOB) -> Run:
        """A run that goes on, in the moment when production is down and its candidate is there."""
        run = self.begin("run", job, "--json")

        def down() -> bool | None:
            assert run.process.poll() is None, run.end()
            gone = not proc.owners(self.settings["production"][0]["port"])
            return True if gone and proc.owners(self.candidate_port) else None

        soon(down, within=20)
        return run

    # -- afterwards --------------------------------------------------------------------------

    def left(self) -> list[int]:
        """Every process that was started for this box and still lives."""
        return [
            pid
            for pid in proc.pids()
            if pid != os.getpid() and self._is_ours(proc.cmdline(pid) or ())
        ]

    def _is_ours(self, words: Sequence[str]) -> bool:
        """By a path in the box's room, or by one of its ports: a model may lie elsewhere."""
        ports = {str(one["port"]) for one in self.settings["production"]}
        ports.add(str(self.candidate_port))
        served = {after for word, after in pairwise(words) if word == "--port"}
        return bool(served & ports) or any(str(self.room) in word for word in words)

    def candidates(self) -> list[int]:
        """Processes of a candidate that still live: they serve the candidate's port or carry a tag."""
        port = str(self.candidate_port)
        return [pid for pid in self.left() if port in (proc.cmdline(pid) or ())]

    def close(self) -> None:
        """End whatever is left of this box; the runners first, or they would bring more."""
        for runners_only in (True, False):
            for pid in self.left():
                who = proc.ident(pid)
                runner = "runner" in (proc.cmdline(pid) or ())
                if who is not None and (runner or not runners_only):
                    world.send(who, signal.SIGKILL)
        soon(lambda: True if not self.left() else None, within=10)


def get(port: int, path: str) -> int | None:
    """The status of a GET, None when nobody answers."""
    try:
        return httpx.get(f"http://127.0.0.1:{port}{path}", timeout=5, trust_env=False).status_code
    except httpx.TransportError:
        return None


def toml(tables: Mapping[str, Any]) -> str:
    """Plain tables as TOML."""
    return "\n".join(_lines(tables, "")) + "\n"


def _lines(table: Mapping[str, Any], path: str) -> list[str]:
    plain = {key: value for key, value in table.items() if not _is_table(value)}
    lines = [f"{key} = {_value(value)}" for key, value in plain.items()]
    for key, value in table.items():
        name = f"{path}{key}"
        if isinstance(value, Mapping) and key not in plain:
            lines += [f"[{name}]", *_lines(value, f"{name}.")]
        elif key not in plain:
            for entry in value:
                lines += [f"[[{name}]]", *_lines(entry, f"{name}.")]
    return lines


def _is_table(value: object) -> bool:
    """Whether it gets a header of its own; small tables inside a table stay in their line."""
    if isinstance(value, Mapping):
        return not all(isinstance(inner, str | int) for inner in value.values())
    return isinstance(value, Sequence) and bool(value) and isinstance(value[0], Mapping)


def _value(value: object) -> str:
    if isinstance(value, Mapping):
        inner = ", ".join(f"{json.dumps(key)} = {_value(item)}" for key, item in value.items())
        return f"{{ {inner} }}"
    return json.dumps(value, ensure_ascii=False)
