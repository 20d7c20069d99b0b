"""Drives a plain process of our own user: detached, its output in a log file."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Mapping
from pathlib import Path

from preflight.linux import proc
from preflight.linux.proc import Ident
from runner.recovery import world
from runner.recovery.drivers.standing import Standing
from runner.recovery.recipe import Recipe

SERVICE = "RUNNER_SERVICE"
"""The environment variable by which a service that we started is known again, whatever its start
script turned itself into; a crash between the start and the note of it must not end in two copies.
"""

_CLOCKS_AGREE_S = 2.0
_INTERPRETER = re.compile(r"(python|pypy|bash|dash|sh|zsh|ksh|perl|ruby|node|env)[0-9.]*")


def _interprets(words: tuple[str, ...], script: str) -> bool:
    """Whether these words in front of a script are what runs it. An editor that has it open is not,
    however much its command line looks like it.
    """
    program = os.path.basename(words[0])
    if all(word.startswith("-") for word in words[1:]) and _INTERPRETER.fullmatch(program):
        return True
    try:
        with Path(script).open("rb") as file:
            first = file.readline(256).decode("utf-8", "replace")
    except OSError:
        return False
    named = first.removeprefix("#!").split() if first.startswith("#!") else []
    return tuple(named[-len(words) :]) == words


def same_command(pid: int, argv: tuple[str, ...]) -> bool:
    """Whether this process was started with this command.

    A script shows its interpreter in front of it, and a shell that found the program by PATH shows
    its bare name; the file that runs is the same.
    """
    line = proc.cmdline(pid)
    if not line or len(line) < len(argv):
        return False
    before, shown = line[: len(line) - len(argv)], line[len(line) - len(argv) :]
    if shown[1:] != argv[1:]:
        return False
    if before:
        return shown[0] == argv[0] and _interprets(before, argv[0])
    return shown[0] == argv[0] or proc.exe(pid) == os.path.realpath(argv[0])


class ProcessDriver:
    """A plain process of our own user: detached, its output in a log file.

    It is recognised by its argument vector, so that a copy that somebody else brought up is never
    doubled, be it by the start script or by what that becomes; by the mark we gave it; and by the
    process this run started, whatever became of its title.
    """

    patient = None
    grace = 0.0

    def __init__(self, recipe: Recipe, started: Ident | None = None) -> None:
        supervisor = recipe.supervisor
        self._argv = tuple(supervisor["argv"])
        # what a start script turned itself into, as it was seen while it served
        self._became = tuple(map(str, recipe.identity.get("argv") or ()))
        self._env: Mapping[str, str] = supervisor.get("env") or {}
        self._cwd: str | None = supervisor.get("cwd")
        self._log = Path(supervisor.get("log") or os.devnull)
        self._pidfile: str | None = supervisor.get("pidfile")
        self._known = {who for who in (started, Ident.from_json(recipe.identity.get("who"))) if who}
        self._mark = f"{recipe.name}:{recipe.port}"
        self.started = started

    def standing(self) -> Standing:
        """Active while a process that is this service lives."""
        heads = {who for who in self._known if proc.alive(who)}
        if self.started not in heads:  # else there is no need to look at every process of the box
            heads |= self._running(self._argv)
            heads |= {who for who in [self._named_by_pidfile()] if who is not None}
        if not heads and self._became not in {(), self._argv}:
            heads = self._running(self._became)
        return Standing("active" if heads else "inactive", frozenset(heads))

    def _running(self, argv: tuple[str, ...]) -> set[Ident]:
        """Every process that is this service, by this command or by our mark."""
        return {who for pid in proc.pids() if (who := self._recognised(pid, argv)) is not None}

    def _recognised(self, pid: int, argv: tuple[str, ...]) -> Ident | None:
        """Who this process is, if it is this service."""
        who = proc.ident(pid)
        if who is None or proc.uid(pid) != os.getuid() or pid == os.getpid():
            return None
        known = proc.environ(pid) or {}
        # a candidate may run the same command; its tag tells it apart
        if proc.TAG in known:
            return None
        found = proc.stat(pid)
        marked = known.get(SERVICE) == self._mark and found is not None and found.session == pid
        if not marked and not same_command(pid, argv):
            return None
        return who if proc.alive(who) else None

    def _named_by_pidfile(self) -> Ident | None:
        """Who the pidfile names, unless that number was given away again since it was written."""
        if self._pidfile is None:
            return None
        try:
            written = os.stat(self._pidfile).st_mtime
            pid = int(Path(self._pidfile).read_text(encoding="ascii"))
        except (OSError, ValueError):
            return None
        who, since = proc.ident(pid) if pid > 1 else None, proc.started_at(pid)
        if who is None or since is None or since > written + _CLOCKS_AGREE_S:
            return None
        ours = proc.uid(pid) == os.getuid() and proc.TAG not in (proc.environ(pid) or {})
        return who if ours and proc.alive(who) else None

    def orphans(self) -> frozenset[Ident]:
        """What a start of ours has left behind, engines that outlived their server for one."""

        def marked() -> set[int]:
            return {
                pid
                for pid in proc.pids()
                if proc.uid(pid) == os.getuid()
                and (known := proc.environ(pid) or {}).get(SERVICE) == self._mark
                and proc.TAG not in known
            }

        return world.identified(marked)

    def start(self) -> str | None:
        """Start it in a session of its own, so that it survives us and our terminal."""
        environment = {name: value for name, value in self._env.items() if name != proc.TAG}
        try:
            child = world.spawn(
                self._argv,
                environment=environment | {SERVICE: self._mark},
                cwd=self._cwd,
                log=self._log if _can_log(self._log) else Path(os.devnull),
            )
        except OSError as error:
            return f"cannot start {self._argv[0]}: {error.strerror} ({error.filename or self._cwd})"
        self.started = proc.ident(child.pid)
        if self.started is not None:
            self._known.add(self.started)
            self._write_pidfile(child.pid)
        # it is meant to outlive us: nobody here will wait for it
        child.returncode = 0
        return None

    def _write_pidfile(self, pid: int) -> None:
        if self._pidfile is None:
            return
        try:
            Path(self._pidfile).write_text(f"{pid}\n", encoding="ascii")
        except OSError:
            return  # a convenience for people; the way back does not depend on it

    def stop(self) -> str | None:
        """Ask its first process to end."""
        for who in self.standing().heads:
            world.send(who, signal.SIGTERM)
        return None


def _can_log(path: Path) -> bool:
    """Whether output can go there. A full disk or a log somebody removed costs the log, and not
    production.
    """
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o600))
    except OSError:
        return False
    return True
