"""A Docker engine of the test's own: its socket, its images and its containers lie in one folder.

Without networks and firewall rules, so that nothing of the machine changes; containers share the
network of the host. What they run is the machine's own /usr, read-only, so that no image has to be
fetched.
"""

import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.servers import soon

ROOT = Path(__file__).parents[2]
IMAGE = "runner-test"
MOUNTS = ("/usr", "/bin", "/lib", "/lib64")
LIMITS = ("--default-ulimit", "nofile=1024:1024", "--default-ulimit", "nproc=1024:1024")


def cannot() -> str:
    """Why no engine can be started here; empty when one can."""
    if os.geteuid() != 0:
        return "only root can start a Docker engine"
    missing = [name for name in ("dockerd", "docker") if shutil.which(name) is None]
    return f"{', '.join(missing)} not found → apt-get install docker.io" if missing else ""


class Engine:
    """One dockerd, from its start to the end of the last container."""

    def __init__(self) -> None:
        # a socket's path may have 107 bytes, and pytest's folders are longer
        self._home = Path(tempfile.mkdtemp(prefix="runner-docker-", dir="/var/tmp"))
        self.host = f"unix://{self._home}/d.sock"
        words = ["dockerd", "--iptables=false", "--ip6tables=false", "--bridge=none"]
        words += [f"--host={self.host}", f"--data-root={self._home}/data"]
        words += [f"--exec-root={self._home}/exec", f"--pidfile={self._home}/pid", *LIMITS]
        with (self._home / "log").open("ab") as log:
            self._daemon = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def ready(self) -> None:
        """Wait until it answers, and give it an image of empty folders.

        Raises RuntimeError, AssertionError and TimedOut where no container can be run here.
        """

        def up() -> bool | None:
            if self._daemon.poll() is not None:
                raise RuntimeError((self._home / "log").read_text()[-300:])
            return True if self._ask("version").returncode == 0 else None

        soon(up, within=30)
        empty = self._home / "empty.tar"
        with tarfile.open(empty, "w") as tar:
            for name in (*MOUNTS, "/tmp"):  # noqa: S108 - of the image
                folder = tarfile.TarInfo(name.lstrip("/"))
                folder.type, folder.mode = tarfile.DIRTYPE, 0o1777
                tar.addfile(folder)
        self.do("import", str(empty), IMAGE)
        self.run("probe", ["/bin/true"])
        self.empty()

    def _ask(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = ["docker", f"--host={self.host}", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    def do(self, *words: str) -> str:
        """A command of `docker`, which must succeed."""
        ran = self._ask(*words)
        assert ran.returncode == 0, f"docker {' '.join(words)}: {ran.stderr}"
        return ran.stdout.strip()

    def run(
        self, name: str, argv: Sequence[str], *options: str, readable: Sequence[Path] = ()
    ) -> None:
        """Start a container with this command; it sees the machine's programs and these files."""
        python = str(Path(sys.executable).resolve().parents[1])
        seen = [*MOUNTS, str(ROOT), sys.prefix, python, *map(str, readable)]
        volumes = [f"--volume={path}:{path}:ro" for path in dict.fromkeys(seen)]
        words = [f"--name={name}", "--network=host", *volumes, *options]
        self.do("run", "--detach", *words, IMAGE, *argv)

    def pid(self, name: str) -> int:
        """The first process of a container; 0 when it does not run."""
        return int(self.do("inspect", "--format={{.State.Pid}}", name))

    def id(self, name: str) -> str:
        """A container's short id, as its cgroup carries it."""
        return self.do("inspect", "--format={{.Id}}", name)[:12]

    def logs(self, name: str) -> str:
        """What a container has written so far."""
        ran = self._ask("logs", name)
        return ran.stdout + ran.stderr

    def empty(self) -> None:
        """End and remove every container."""
        if left := self.do("ps", "--all", "--quiet").split():
            self.do("rm", "--force", *left)

    def close(self) -> None:
        """End the engine with all that it runs, and remove its folder."""
        if self._daemon.poll() is None:
            self.empty()
            self._daemon.send_signal(signal.SIGTERM)
            self._daemon.wait(30)
        shutil.rmtree(self._home, ignore_errors=True)
