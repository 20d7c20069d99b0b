"""What recovery does to processes: look twice, then signal. It must not know recipes or runs.

Nothing is signalled without an identity (boot, pid, start time) that was checked after the pidfd
was opened, so a pid that was used again can never be hit.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from preflight import proc
from preflight.proc import Ident

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LARGEST_OUTPUT = 1 << 20

_SYSTEMD_VARIABLES = (
    "NOTIFY_SOCKET",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
    "LISTEN_PID",
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "MAINPID",
    "MANAGERPID",
    "SYSTEMD_EXEC_PID",
    "CREDENTIALS_DIRECTORY",
)


def open_pidfd(who: Ident) -> int | None:
    """A descriptor that becomes readable when exactly this process ends; None when it has."""
    try:
        fd = os.pidfd_open(who.pid)
    except OSError:
        return None
    if proc.alive(who):
        return fd
    os.close(fd)
    return None


def close_all(fds: Iterable[int]) -> None:
    """Close descriptors."""
    for fd in fds:
        os.close(fd)


def ended(pidfd: int) -> bool:
    """Whether the process behind a pidfd has ended."""
    return bool(select.select([pidfd], [], [], 0)[0])


def send(who: Ident, number: signal.Signals) -> bool:
    """Signal exactly this process; False when it is gone or not ours to signal."""
    fd = open_pidfd(who)
    if fd is None:
        return False
    try:
        signal.pidfd_send_signal(fd, number)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def send_all(members: Iterable[int], number: signal.Signals) -> set[int]:
    """Signal each live pid of a family that was just looked up; the pids that were reached."""
    reached: set[int] = set()
    for pid in members:
        who = proc.ident(pid) if pid > 1 else None
        if who is not None and pid != os.getpid() and send(who, number):
            reached.add(pid)
    return reached


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def become_subreaper() -> None:
    """From now on whatever our descendants leave behind becomes our child, not init's."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def reap() -> dict[int, int]:
    """Collect every child that has ended: pid → exit code, negative for a signal."""
    collected: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return collected
        if pid == 0:
            return collected
        collected[pid] = os.waitstatus_to_exitcode(status)


def scrubbed(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment without what systemd meant for us alone."""
    return {name: value for name, value in environment.items() if name not in _SYSTEMD_VARIABLES}


def spawn(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str],
    cwd: str | None,
    log: Path,
    prepare: Callable[[], None] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own: no terminal, no input, all output to `log`.

    Output goes to a file and never through a pipe, so it can neither block nor outlive us. Raises
    OSError when the program, the directory or the log cannot be opened.
    """
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        return subprocess.Popen(
            list(argv),
            env=dict(environment),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=fd,
            stderr=fd,
            start_new_session=True,
            close_fds=True,
            preexec_fn=prepare,  # noqa: PLW1509 - only the guardian passes one, and it has no threads
        )
    finally:
        os.close(fd)


def bound_to_parent(cgroup: Path | None, oom_score_adj: int) -> Callable[[], None]:
    """What a candidate does before its first instruction: join its cgroup, offer itself to the
    OOM killer before production or the runner, and die when its keeper dies.
    """

    def prepare() -> None:
        if cgroup is not None:
            (cgroup / "cgroup.procs").write_text("0", encoding="ascii")
        Path("/proc/self/oom_score_adj").write_text(str(oom_score_adj), encoding="ascii")
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    return prepare


def quiet(argv: Sequence[str], *, within: float) -> tuple[int | None, str]:
    """Run a short command without input: (exit code, or None past the deadline; its output).

    For supervisors' own tools only. Past the deadline the command and its children are killed, so
    nothing of it is left waiting for a password. A missing program is exit code 127.
    """
    output = os.memfd_create("output", os.MFD_CLOEXEC)  # a daemon that keeps it cannot hold us up
    try:
        child = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env=scrubbed(os.environ) | {"LC_ALL": "C.UTF-8", "SYSTEMD_PAGER": ""},
        )
        try:
            code = child.wait(within)
        except subprocess.TimeoutExpired:
            send_all(proc.descendants(child.pid), signal.SIGKILL)
            child.kill()
            child.wait()
            return None, f"{argv[0]}: no answer within {within:g} s"
        said = os.pread(output, _LARGEST_OUTPUT, 0)
    except OSError as error:
        return 127, f"{argv[0]}: {error.strerror}"
    finally:
        os.close(output)
    return code, said.decode("utf-8", "replace").strip()


def shutting_down() -> bool:
    """Whether the machine is on its way down; only systemd can tell."""
    if not Path("/run/systemd/system").is_dir():
        return False
    _, said = quiet(["systemctl", "is-system-running"], within=2)
    return said.splitlines()[-1:] == ["stopping"]


def _own_cgroup() -> Path | None:
    """Our own directory in the v2 hierarchy, also on a hybrid machine."""
    for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
        if line.startswith("0::"):
            for root in (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified")):
                if (root / "cgroup.procs").exists():
                    return root / line.removeprefix("0::").lstrip("/")
    return None


def make_cgroup(name: str) -> Path | None:
    """A cgroup of its own below ours for a candidate, where the machine lets us; else None."""
    try:
        own = _own_cgroup()
        if own is None:
            return None
        made = own / name
        made.mkdir(exist_ok=True)
        # kernels before 5.14 cannot kill a cgroup as a whole; then it is of no use to us
        if (made / "cgroup.kill").exists() and os.access(made / "cgroup.procs", os.W_OK):
            return made
        made.rmdir()
    except OSError:
        return None
    return None


def cgroup_members(path: Path) -> set[int]:
    """The live pids in a cgroup; empty when it is gone."""
    try:
        listed = (path / "cgroup.procs").read_text(encoding="ascii").split()
    except OSError:
        return set()
    return {int(pid) for pid in listed if proc.ident(int(pid)) is not None}


def kill_cgroup(path: Path) -> None:
    """End everything in a cgroup at once, whatever it forked, detached or ignored."""
    try:
        (path / "cgroup.kill").write_text("1", encoding="ascii")
    except OSError:
        send_all(cgroup_members(path), signal.SIGKILL)


def remove_cgroup(path: Path) -> None:
    """Take an empty cgroup away; one that is busy or gone stays as it is."""
    try:
        path.rmdir()
    except OSError:
        return
