"""What recovery does to processes: look twice, then signal. It must not know recipes or runs.

Nothing is signalled without an identity (boot, pid, start time) that was checked after the pidfd
was opened, so a pid that was used again can never be hit.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import select
import signal
import stat
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from preflight.linux import proc
from preflight.linux.proc import Ident
from runner.recovery import sight
from runner.until import RealClock

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LARGEST_OUTPUT = 1 << 20
_KILLED_WITHIN_S = 1.0
_ASK_SHUTDOWN_EVERY_S = 1.0

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


def is_stopped(who: Ident) -> bool:
    """Whether somebody has stopped this process (SIGSTOP, a debugger): it lives and does nothing."""
    found = proc.stat(who.pid)
    return found is not None and found.state in "Tt" and proc.alive(who)


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


def identified(look: Callable[[], set[int]]) -> frozenset[Ident]:
    """Who the processes are that a look finds. It looks twice: a number that was used again
    between the look and the question who has it would name a stranger.
    """
    first = [who for pid in look() if pid > 1 and (who := proc.ident(pid)) is not None]
    again = look() if first else set[int]()
    return frozenset(who for who in first if who.pid in again and proc.alive(who))


def send_all(members: Iterable[Ident], number: signal.Signals) -> set[int]:
    """Signal each of these processes but ourselves; the pids that were reached."""
    return {who.pid for who in members if who.pid != os.getpid() and send(who, number)}


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
    sees: bool = False,
) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own: no terminal, no input, all output to `log`.

    Output goes to a file and never through a pipe, so it can neither block nor outlive us. Only a
    command of our own may be one that `sees` what belongs to other users, as we do. Raises
    OSError when the program, the directory or the log cannot be opened.
    """
    fd = _open_log(log)
    try:
        with contextlib.nullcontext() if sees else sight.unhanded():
            return subprocess.Popen(
                list(argv),
                env=dict(environment),
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=fd,
                stderr=fd,
                start_new_session=True,
                close_fds=True,
                preexec_fn=prepare,  # noqa: PLW1509 - only the guardian's, and it has no threads
            )
    finally:
        os.close(fd)


def _open_log(path: Path) -> int:
    """The log, open for appending. A queue that nobody reads is refused and not waited for."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
    fd = os.open(path, flags, 0o600)
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    # a server would lose lines on a queue or a terminal that does not wait
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) & ~os.O_NONBLOCK)
    return fd


def bound_to_parent(cgroup: Path | None, oom_score_adj: int) -> Callable[[], None]:
    """What a candidate does before its first instruction: join its cgroup, offer itself to the
    OOM killer before production or the runner, and die when its keeper dies.
    """
    keeper, score = os.getpid(), Path("/proc/self/oom_score_adj")

    def prepare() -> None:
        if cgroup is not None:
            (cgroup / "cgroup.procs").write_text("0", encoding="ascii")
        # a plain user may raise its own value, and never lower what it was given
        if int(score.read_text(encoding="ascii")) < oom_score_adj:
            score.write_text(str(oom_score_adj), encoding="ascii")
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != keeper:  # it died before we asked to be told
            os.kill(os.getpid(), signal.SIGKILL)

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
            env=_for_tools(),
        )
        try:
            code = child.wait(within)
        except subprocess.TimeoutExpired:
            _abandon(child)
            return None, f"{argv[0]}: no answer within {within:g} s"
        said = os.pread(output, _LARGEST_OUTPUT, 0)
    except OSError as error:
        return 127, f"{argv[0]}: {error.strerror}"
    finally:
        os.close(output)
    return code, said.decode("utf-8", "replace").strip()


def _for_tools() -> dict[str, str]:
    """The environment of supervisors' tools: plain words, and the way to the user's own manager,
    which a timer or a cron line does not know.
    """
    known = scrubbed(os.environ) | {"LC_ALL": "C.UTF-8", "SYSTEMD_PAGER": ""}
    room = f"/run/user/{os.getuid()}"
    if "XDG_RUNTIME_DIR" not in known and os.path.isdir(room):
        known["XDG_RUNTIME_DIR"] = room
    return known


def _abandon(child: subprocess.Popen[bytes]) -> None:
    """Kill a command and what it started. What hangs in the kernel (a driver, a dead mount) cannot
    be killed, and is left behind rather than waited for.
    """
    send_all(identified(lambda: proc.descendants(child.pid)), signal.SIGKILL)
    child.kill()
    try:
        child.wait(_KILLED_WITHIN_S)
    except subprocess.TimeoutExpired:
        child.returncode = -signal.SIGKILL  # nobody here will ask for it again


class _Shutdown:
    """Whether the machine is on its way down, asked for at most once a second: it is looked for at
    every poll of a restore, and each answer costs a process.
    """

    def __init__(self) -> None:
        self._asked, self._said = float("-inf"), False

    def __call__(self) -> bool:
        now = RealClock().now()
        if now - self._asked >= _ASK_SHUTDOWN_EVERY_S:
            _, said = quiet(["systemctl", "is-system-running"], within=2)
            self._asked, self._said = now, said.splitlines()[-1:] == ["stopping"]
        return self._said


_shutdown = _Shutdown()


def shutting_down() -> bool:
    """Whether the machine is on its way down; only systemd can tell."""
    return Path("/run/systemd/system").is_dir() and _shutdown()
