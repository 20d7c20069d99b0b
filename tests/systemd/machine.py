"""A machine of its own for a test: a real systemd, booted in a container over an overlay of `/`.

Everything that it writes lies in memory and is gone with it. It has no network but its loopback.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from preflight.linux import proc
from runner.recovery import world
from tests.servers import soon

PROGRAMS = ("systemd-nspawn", "nsenter", "setpriv", "mount", "umount", "make")
INSIDE = ("/usr/bin/dbus-daemon", "/usr/lib/polkit-1/polkitd")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
UMOUNT = shutil.which("umount") or "umount"
CGROUPS = Path("/sys/fs/cgroup")


def cannot() -> str:
    """Why no machine can be booted here; empty when one can."""
    if os.geteuid() != 0:
        return "only root can boot a container"
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    missing += [path for path in INSIDE if not Path(path).exists()]
    if missing:
        return (
            f"{', '.join(missing)} not found → apt-get install make systemd-container dbus polkitd"
        )
    return ""


class Machine:
    """One container: its disk, its boots, and commands in it."""

    def __init__(self, *, unified: bool = True) -> None:
        """`unified`: with cgroup v2 alone, as machines have it today; else as this host has it."""
        self._unified = unified
        self._home = Path(tempfile.mkdtemp(prefix="runner-machine-", dir="/var/tmp"))
        self._memory, self.root = self._home / "memory", self._home / "root"
        self._nspawn: subprocess.Popen[bytes] | None = None
        self._cgroups = ExitStack()
        self.leader = 0
        self._mount()

    def _mount(self) -> None:
        self._memory.mkdir()
        self.root.mkdir()
        _host("mount", "-t", "tmpfs", "-o", "size=6g,mode=755", "tmpfs", str(self._memory))
        for part in ("up", "work"):
            (self._memory / part).mkdir()
        layers = f"lowerdir=/,upperdir={self._memory}/up,workdir={self._memory}/work"
        _host("mount", "-t", "overlay", "overlay", "-o", layers, str(self.root))
        self.write("/etc/machine-id", f"{uuid.uuid4().hex}\n")
        self.write("/etc/hostname", "box\n")
        self.write("/etc/fstab", "")
        for folder in (self.root / "etc/systemd/system").iterdir():
            if folder.name.endswith((".wants", ".requires")):  # whatever this host starts at boot
                shutil.rmtree(folder)

    # -- its disk ----------------------------------------------------------------------------

    def write(self, path: str, text: str, *, mode: int = 0o644) -> None:
        """A file of the machine."""
        there = self.root / path.lstrip("/")
        there.parent.mkdir(parents=True, exist_ok=True)
        there.unlink(missing_ok=True)
        there.write_text(text, encoding="utf-8")
        there.chmod(mode)

    def remove(self, path: str) -> None:
        """A file of the machine that is no more."""
        (self.root / path.lstrip("/")).unlink(missing_ok=True)

    def read(self, path: str) -> str:
        """The text of a file of the machine."""
        return (self.root / path.lstrip("/")).read_text(encoding="utf-8", errors="replace")

    def exists(self, path: str) -> bool:
        """Whether the machine has this file."""
        return (self.root / path.lstrip("/")).exists()

    def prepare(self, *words: str, folder: str = "/", within: float = 900.0) -> str:
        """Run a command on its disk before it boots, with the network of this host."""
        argv = ["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--pipe"]
        handed = [n for n in os.environ if n.startswith("PIP_") or n.lower().endswith("_proxy")]
        argv += [f"--setenv={name}={os.environ[name]}" for name in handed]
        argv += ["--resolv-conf=bind-host", f"--chdir={folder}", f"--directory={self.root}", *words]
        with _own_cgroup(f"{self._home.name}-prepare") as join:
            ran = subprocess.run(
                argv,
                capture_output=True,
                text=True,
                stdin=subprocess.DEVNULL,
                timeout=within,
                check=False,
                preexec_fn=join,
            )
        assert ran.returncode == 0, f"{words}: {ran.stdout[-4000:]}{ran.stderr[-4000:]}"
        return ran.stdout

    # -- its boots ---------------------------------------------------------------------------

    def boot(self) -> None:
        """Start it, and wait until systemd says that it runs."""
        self._start()
        self._until_running()

    def _start(self) -> None:
        argv = ["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--link-journal=no"]
        argv += ["--private-network", "--console=pipe", "--system-call-filter=@clock"]
        argv += [f"--directory={self.root}", "--boot"]
        environment = dict(os.environ)
        if self._unified:
            environment["SYSTEMD_NSPAWN_UNIFIED_HIERARCHY"] = "1"
        join = self._cgroups.enter_context(_own_cgroup(self._home.name))
        with (self._home / "console.log").open("ab") as log:
            self._nspawn = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
                preexec_fn=join,  # noqa: PLW1509 - no other thread is about
            )

    def _until_running(self) -> None:
        nspawn = self._nspawn
        assert nspawn is not None

        def running() -> bool | None:
            assert nspawn.poll() is None, self.console()
            children = [
                pid
                for pid in proc.pids()
                if (found := proc.stat(pid)) is not None and found.ppid == nspawn.pid
            ]
            if not children:
                return None
            self.leader = min(children)
            said = self.attempt("systemctl", "is-system-running").stdout.strip()
            return True if said in {"running", "degraded"} else None

        soon(running, within=120)

    def console(self) -> str:
        """The last of what it has written to its console."""
        return (self._home / "console.log").read_text(errors="replace")[-3000:]

    def reboot(self) -> float:
        """An orderly reboot, as a person or an upgrade asks for it; how long going down took."""
        return self._go_down(lambda _: self.attempt("systemctl", "reboot"), within=90)

    def cut_power(self) -> None:
        """Everything is gone at once; then it boots again."""
        self._go_down(lambda who: world.send(who, signal.SIGKILL), within=30)

    def _go_down(self, how: Callable[[proc.Ident], object], *, within: float) -> float:
        who, nspawn = proc.ident(self.leader), self._nspawn
        assert who is not None
        assert nspawn is not None
        began = time.monotonic()
        how(who)
        soon(lambda: None if proc.alive(who) else True, within=within)
        took = time.monotonic() - began
        with suppress(subprocess.TimeoutExpired):
            nspawn.wait(3)  # some versions boot again by themselves, others leave
        if nspawn.poll() is not None:
            self._cgroups.close()
            self._start()
        self._until_running()
        return took

    def close(self) -> None:
        """End it, and take its disk away."""
        leader = proc.ident(self.leader) if self.leader else None
        if leader is not None:  # with its first process all of a container goes
            world.send(leader, signal.SIGKILL)
            soon(lambda: None if proc.alive(leader) else True, within=30)
        if self._nspawn is not None:
            self._nspawn.kill()
            self._nspawn.wait(30)
        self._cgroups.close()
        for place in (self.root, self._memory):
            subprocess.run([UMOUNT, "--lazy", str(place)], check=False)
        shutil.rmtree(self._home, ignore_errors=True)

    # -- commands in it ----------------------------------------------------------------------

    def command(self, *words: str, user: str | None = None) -> list[str]:
        """The command that runs a command in it, as root or as another user."""
        drop = (
            [f"--reuid={user}", f"--regid={user}", "--init-groups"] if user else ["--clear-groups"]
        )
        home = f"/home/{user}" if user else "/root"
        # a shell that started the tests in the background has them ignore what Ctrl-C sends
        clean = [
            "env",
            "-i",
            "--default-signal=INT,QUIT",
            "--chdir=/",
            f"PATH={PATH}",
            "LANG=C.UTF-8",
            f"HOME={home}",
        ]
        enter = ["nsenter", f"--target={self.leader}", "--all"]
        return [*enter, "setpriv", *drop, *clean, *words]

    def attempt(
        self, *words: str, user: str | None = None, within: float = 120.0
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in it; how it ended."""
        return subprocess.run(
            self.command(*words, user=user),
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=within,
            check=False,
        )

    def do(self, *words: str, user: str | None = None, within: float = 120.0) -> str:
        """Run a command in it that must succeed; its output."""
        ran = self.attempt(*words, user=user, within=within)
        assert ran.returncode == 0, f"{words} answers {ran.returncode}: {ran.stdout}{ran.stderr}"
        return ran.stdout.strip()

    def begin(self, *words: str, user: str | None = None) -> subprocess.Popen[str]:
        """Start a command in it that goes on beside the test."""
        return subprocess.Popen(
            self.command(*words, user=user),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def _host(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)


@contextmanager
def _own_cgroup(name: str) -> Iterator[Callable[[], None]]:
    """A cgroup in every hierarchy for a container; gives what joins it before the exec."""
    made = [root / name for root in _hierarchies()]
    for place in made:
        place.mkdir(exist_ok=True)
        for file in ("cpuset.cpus", "cpuset.mems"):
            if (place / file).exists() and place.parent.name == "cpuset":
                (place / file).write_text((place.parent / file).read_text())

    def join() -> None:
        for place in made:
            (place / "cgroup.procs").write_text("0")

    try:
        yield join
    finally:
        for place in made:
            soon(lambda place=place: _removed(place), within=30)


def _removed(place: Path) -> bool | None:
    """Whether a cgroup and all below it is gone; the kernel lets go of it when its last process has."""
    for folder, _, _ in os.walk(place, topdown=False):
        with suppress(OSError):
            os.rmdir(folder)
    return None if place.exists() else True


def _hierarchies() -> list[Path]:
    if (CGROUPS / "cgroup.procs").exists():
        return [CGROUPS]
    return [room for room in sorted(CGROUPS.iterdir()) if (room / "cgroup.procs").exists()]
