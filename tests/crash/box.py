"""One small box: a production that is up in 20 ms, a candidate, one "GPU", a ledger of what happened.

Everything below one directory and below one process: the worker that owns a box is the subreaper of
all that was ever started on it, so that nothing can hide from the look afterwards.
"""

import contextlib
import http.client
import json
import os
import shutil
import signal
import sqlite3
import sys
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from preflight.linux import proc
from runner.recovery import world
from runner.recovery.told import Told
from runner.settings import Settings, load_settings
from runner.until import RealClock, TimedOut, until
from tests.crash import acts, apart, trap
from tests.crash.cases import Case
from tests.servers import free_port

HERE = Path(__file__).resolve().parent
PYTHON = os.path.realpath(sys.executable)
SERVER = (PYTHON, "-I", "-S", str(HERE / "server.py"))
JOB = "night"
VENV_PYTHON = sys.executable
READY_WITHIN = 8
SMALL_MIB = 16
CGROUPS = Path("/sys/fs/cgroup")
SERVICES = ("production", "second")
"""The roles of production's services, as the ledger has them."""

Json = dict[str, Any]


@dataclass(frozen=True)
class Shape:
    """How production and candidate behave, as flags of the server."""

    production: tuple[str, ...] = ()
    candidate: tuple[str, ...] = ()
    services: int = 1
    timeout: str = "15s"


@dataclass
class Box:
    """One box of one worker. `apart` says whether it has namespaces of its own."""

    room: Path
    apart: bool = False
    shape: Shape = field(default_factory=Shape)

    def __post_init__(self) -> None:
        self.room.mkdir(parents=True, exist_ok=True)
        self.small = self.room / "small"
        self.state = self.room / "state"
        self.told = self.room / "told.log"
        self.ledger = self.room / "ledger"
        self.model = self.room / "model.bin"
        self.other_model = self.room / "other.bin"
        self.ports = {role: free_port() for role in (*SERVICES, "candidate")}
        self.lock_name = f"crash-{uuid.uuid4().hex}"
        self.exits: dict[int, int] = {}
        self.held: list[Any] = []
        self.calls: list[Any] | None = None
        self._stranger: int | None = None
        for file in (self.model, self.other_model):
            file.write_bytes(b"weights")
        (self.room / "jobs").mkdir(exist_ok=True)
        self.shim = self._write_shim()
        if self.apart:
            apart.mount("tmpfs", self.small, f"size={SMALL_MIB}m")
        self._hidden = False

    def shape_for(self, case: Case) -> None:
        """The box as a case wants it."""
        self.shape = Shape(
            production=_flags(case.production),
            candidate=_flags(case.candidate),
            services=int(case.services or 1),
            timeout="2s" if case.layer == "frozen" else "15s",
        )
        small = bool(case.act) and acts.ACTS[case.act].small
        self.state = (self.small if small else self.room) / "state"
        self.exits.clear()
        self._hide_cgroups(case.home == "none")

    def _hide_cgroups(self, wanted: bool) -> None:
        """As if the machine had none, or let nobody make any."""
        if self.apart and wanted != self._hidden and CGROUPS.is_dir():
            if wanted:
                apart.mount("tmpfs", CGROUPS)
            else:
                apart.unmount(CGROUPS)
            self._hidden = wanted

    # -- what lies on the box ----------------------------------------------------------------

    def _write_shim(self) -> Path:
        """What the run takes for Python: the guardian comes from this tree, perhaps with a trap."""
        path = self.room / "python"
        path.write_text(
            "#!/bin/sh\n"
            f'case "$*" in *runner.recovery*) exec {VENV_PYTHON} -I {HERE}/traced.py "$@";; esac\n'
            f'exec {VENV_PYTHON} "$@"\n'
        )
        path.chmod(0o755)
        return path

    @property
    def roles(self) -> tuple[str, ...]:
        """The services of production on this box, in the order of starting."""
        return SERVICES[: self.shape.services]

    def argv(self, role: str) -> list[str]:
        """The command of a server on this box. Each service has a GPU; a candidate needs them all."""
        gpus = {name: str(self.room / f"gpu-{name}") for name in SERVICES}
        held = gpus[role] if role in gpus else ",".join(gpus[name] for name in self.roles)
        words = [
            *SERVER,
            *("--role", role),
            *("--gpu", held),
            *("--ledger", str(self.ledger)),
            *("--model", str(self.model)),
            *("--port", str(self.ports[role])),
        ]
        if role == "candidate":
            return [*words, *self.shape.candidate]
        return [*words, "--state", str(self.state), *self.shape.production]

    def write(self) -> Settings:
        """runner.toml and the job, from the shape; the settings as the runner reads them."""
        config = self.room / "runner.toml"
        config.write_text(
            f"""timezone = "UTC"
jobs_dir = "{self.room}/jobs"
state_dir = "{self.state}"
lock_name = "{self.lock_name}"
[alerts]
unproven_delivery = "accept"
[[alerts.channel]]
kind = "file"
path = "{self.told}"
"""
            + "".join(self._service(role) for role in self.roles)
        )
        (self.room / "jobs" / f"{JOB}.toml").write_text(self._job())
        return load_settings(config)

    def _service(self, role: str) -> str:
        return f"""[[production]]
name = "{role}"
kind = "openai"
command = {json.dumps(self.argv(role))}
model = "{self.model}"
port = {self.ports[role]}
ready_within = "{READY_WITHIN}s"
idle_within = "2s"
supervisor = {{ kind = "process", log = "{self.room}/{role}.log" }}
"""

    def _job(self) -> str:
        task = any(flag.startswith("--task") for flag in self.shape.candidate)
        command = json.dumps(self.argv("candidate"))
        head = f'question = "?"\ndowntime_budget = "60s"\ntimeout = "{self.shape.timeout}"\n'
        if task:
            return f'{head}[candidate]\nkind = "task"\ncommand = {command}\n'
        return f"""{head}[candidate]
kind = "openai"
command = {command}
model = "{self.model}"
port = {self.ports["candidate"]}
ready_within = "8s"
[workload]
prompts = "builtin:prose"
max_tokens = 16
repeats = 3
warmups = 0
request_within = "5s"
[[claim]]
kind = "throughput"
at_least = {1e9 if "--refuted" in self.shape.candidate else 1}
"""

    def fresh(self) -> None:
        """Forget the last case: state, ledger and alerts; production goes on if it serves."""
        shutil.rmtree(self.state, ignore_errors=True)
        self.forget_told()
        self.fresh_ledger()
        for file in (self.model, self.other_model):
            if not file.exists():
                file.write_bytes(b"weights")

    def forget_told(self) -> None:
        """Forget what was told past the journal."""
        for file in Told(self.state).files:
            file.unlink(missing_ok=True)

    def fresh_ledger(self) -> None:
        """Forget what happened and what was told."""
        self.told.unlink(missing_ok=True)
        self.ledger.write_bytes(b"")

    # -- production --------------------------------------------------------------------------

    def start(self) -> set[int]:
        """Start production as its supervisor would, unless it serves as it should; its pids."""
        found = {role: self.serving(role) for role in self.roles}
        wanted = {role: tuple(self.argv(role)) for role in self.roles}
        if not all(pid and proc.cmdline(pid) == wanted[role] for role, pid in found.items()):
            self.end_all()
            for role in self.roles:
                child = world.spawn(
                    wanted[role],
                    environment=dict(os.environ),
                    cwd="/",
                    log=self.room / f"{role}.log",
                )
                child.returncode = 0  # it belongs to the box now; the worker reaps it
            return self.soon(self.all_serving)
        for pid in self.living() - {pid for pid in found.values() if pid}:
            os.kill(pid, signal.SIGKILL)
        return {pid for pid in found.values() if pid}

    def get(self, path: str, port: int | None = None) -> Any:
        """What a server says on a path; None when nobody answers, or not with 200."""
        connection = http.client.HTTPConnection(
            "127.0.0.1", port or self.ports["production"], timeout=5
        )
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            said = json.loads(response.read())
        except (OSError, ValueError, http.client.HTTPException):
            return None
        else:
            return said if response.status == 200 else None
        finally:
            connection.close()

    def serving(self, role: str = "production") -> int | None:
        """The pid that serves on a service's port."""
        if self.get("/health", self.ports[role]) is None:
            return None
        return min(proc.owners(self.ports[role]), default=None)

    def all_serving(self) -> set[int] | None:
        """The pids of all services; None while one of them does not serve."""
        found = [self.serving(role) for role in self.roles]
        return {pid for pid in found if pid} if all(found) else None

    def model_of(self, role: str) -> str | None:
        """Which model a service says it serves."""
        said = self.get("/v1/models", self.ports[role])
        return str(said["data"][0]["id"]) if said else None

    # -- what lives and what happened -----------------------------------------------------------

    def soon(
        self, probe: Any, within: float = 10.0, every: float = 0.02, wake: Sequence[int] = ()
    ) -> Any:
        """Ask until there is an answer; reaps meanwhile. Raises TimedOut."""

        def asked() -> Any:
            self.reap()
            return probe()

        return until(asked, within=within, clock=RealClock(), every=every, wake=wake)

    def happened(self) -> list[Json]:
        """The ledger so far."""
        return [json.loads(line) for line in self.ledger.read_text().splitlines()]

    def living(self) -> set[int]:
        """Every process that was started on this box, whoever by, and still lives."""
        self.reap()
        return proc.descendants(os.getpid())

    def guardians(self) -> set[int]:
        """The guardians among them."""
        return {pid for pid in self.living() if "guardian" in (proc.cmdline(pid) or ())}

    def copies(self, role: str | None = None) -> set[int]:
        """The first processes of production, of one service or of all."""
        roles = (role,) if role else self.roles
        wanted = [tuple(self.argv(one)) for one in roles]
        alike = {pid for pid in self.living() if proc.cmdline(pid) in wanted}
        return {pid for pid in alike if (found := proc.stat(pid)) and found.ppid not in alike}

    def end_all(self) -> None:
        """End everything on the box. Only what this worker started, or what that started, is its child."""

        def gone() -> bool | None:
            left = self.living()
            for pid in left:
                who = proc.ident(pid)
                if who is not None:
                    world.send(who, signal.SIGKILL)
            return None if left else True

        self.soon(gone)

    def ended(self, pids: set[int], within: float) -> bool:
        """Whether these end in time."""
        try:
            self.soon(lambda: None if pids & self.living() else True, within=within, every=0.05)
        except TimedOut:
            return False
        return True

    def reap(self) -> None:
        """Collect what has ended; exit codes by pid."""
        self.exits |= world.reap()

    def wait(self, pid: int, within: float) -> int:
        """Wait until a child of ours has ended; its exit code. Raises TimedOut."""
        self.reap()
        if pid in self.exits:
            return self.exits[pid]
        fd = os.pidfd_open(pid)
        try:
            return self.soon(lambda: self.exits.get(pid), within=within, every=0.5, wake=[fd])
        finally:
            os.close(fd)

    # -- what a case does, and what was said ---------------------------------------------------

    def told_text(self) -> str:
        """Every alert so far."""
        try:
            return self.told.read_text()
        except OSError:
            return ""

    def mark(self, what: str, **more: object) -> None:
        """Write a line of our own into the ledger, with how much stands in the outbox."""
        trap.write(str(self.ledger), what, outbox=self.outbox(), **more)

    def outbox(self) -> int:
        """How many alerts the journal holds."""
        path = self.state / "journal.db"
        if not path.exists():
            return 0
        try:
            with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
                return int(db.execute("SELECT count(*) FROM outbox").fetchone()[0])
        except sqlite3.Error:
            return 0

    def start_stranger(self, *flags: str) -> None:
        """Somebody else's server on production's port."""
        argv = [*SERVER, "--role", "stranger", "--gpu", str(self.room / "elsewhere")]
        argv += ["--ledger", str(self.ledger), "--model", str(self.other_model)]
        child = world.spawn(
            [*argv, "--port", str(self.ports["production"]), *flags],
            environment={},
            cwd="/",
            log=self.room / "stranger.log",
        )
        self._stranger = child.pid
        child.returncode = 0
        self.soon(self.serving)

    def end_stranger(self) -> None:
        """It leaves."""
        if self._stranger is not None:
            pid, self._stranger = self._stranger, None
            if proc.ident(pid) is not None:
                os.kill(pid, signal.SIGKILL)
                self.ended({pid}, within=5)


def _flags(said: str) -> tuple[str, ...]:
    """`load:0.4,ignore-term` as the server's command line has it."""
    words: list[str] = []
    for one in filter(None, said.split(",")):
        name, _, value = one.partition(":")
        words += [f"--{name}", *([value] if value else [])]
    return tuple(words)
