"""The demo box's processes: production, and the stranger of the incident. Knows no run.

Production is started exactly as a run would start it again, from the same configuration, so that
the run finds its own production there.
"""

import os
import signal
import sys
from collections.abc import Callable
from typing import NoReturn

from jobs import wire
from preflight.linux import proc
from preflight.linux.proc import Ident
from runner.demo.box import Box, CannotPlay
from runner.recovery import world
from runner.settings import load_settings
from runner.until import Hopeless, RealClock, TimedOut, until

QUESTION = "Roses are red, violets are"
_CLOCK = RealClock()
_READY_WITHIN = 120.0
_ENDS_WITHIN = 15.0


def production(box: Box) -> Ident | None:
    """Who serves now, if it is ours: started by the demo, or started again by one of its runs."""
    for pid in sorted(proc.owners(box.notes.production_port)):
        ours = list(proc.cmdline(pid) or ()) == box.notes.production_argv
        if ours and proc.uid(pid) == os.getuid():
            return proc.ident(pid)
    return None


def note(box: Box) -> Ident | None:
    """Write down who serves now, so that it can be ended by what was written down."""
    if (who := production(box)) is not None:
        box.notes.add("production", who)
        box.notes.write(box.directory)
    return who


def start_production(box: Box) -> Ident:
    """Production, started where it does not run; raises CannotPlay."""
    if (serving := note(box)) is not None:
        return serving
    service = load_settings(box.config).production[0]
    recipe = service.supervisor.recipe(service.command_line())
    box.notes.production_argv = list(recipe["argv"])
    url = service.url()
    return _start(
        box,
        "production",
        box.notes.production_argv,
        lambda _: wire.get(url, "/health", api_key=None, within_s=2).ok,
        environment=recipe["env"],
    )


def start_stranger(box: Box) -> Ident:
    """Somebody's proxy on the candidate's port; raises CannotPlay."""
    port = box.notes.candidate_port
    argv = [sys.executable, "-I", "-m", "http.server", "--bind", "127.0.0.1", str(port)]
    return _start(box, "stranger", argv, lambda pid: pid in proc.owners(port))


def ask(box: Box, tokens: int = 8) -> str:
    """Production's greedy answer to the one question; in brackets what came instead."""
    body = {"prompt": QUESTION, "n_predict": tokens, "temperature": 0.0, "cache_prompt": False}
    base = f"http://127.0.0.1:{box.notes.production_port}"
    reply = wire.post(base, "/completion", body, api_key=None, within_s=60)
    said = reply.json() if reply.ok else None
    return str(said["content"]) if isinstance(said, dict) else f"[{reply.said()}]"


def end(box: Box, what: str | None = None) -> list[Ident]:
    """End what the box started, one sort or all of it: TERM, TERM again, KILL. Returns whom."""
    note(box)
    ended = box.notes.alive(what)
    for who in ended:
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
            world.send(who, number)
            if _gone(who):
                break
    if box.notes.started:
        box.notes.forget_dead()
        box.notes.write(box.directory)
    return ended


def _gone(who: Ident) -> bool:
    fd = world.open_pidfd(who)
    if fd is None:
        return True
    try:
        return until(
            lambda: True if world.ended(fd) else None, within=_ENDS_WITHIN, clock=_CLOCK, wake=[fd]
        )
    except TimedOut:
        return False
    finally:
        world.close_all([fd])


def _start(
    box: Box,
    what: str,
    argv: list[str],
    there: Callable[[int], bool],
    environment: dict[str, str] | None = None,
) -> Ident:
    log = box.logs / f"{what}.log"
    child = world.spawn(argv, environment=environment or os.environ, cwd="/", log=log)
    who = proc.ident(child.pid)
    if who is not None:
        box.notes.add(what, who)
        box.notes.write(box.directory)
    try:
        until(
            lambda: there(child.pid) or None,
            within=_READY_WITHIN,
            clock=_CLOCK,
            hopeless=lambda: None if child.poll() is None else f"exit {child.returncode}",
        )
    except (Hopeless, TimedOut) as error:
        end(box, what)
        said = log.read_text(encoding="utf-8", errors="replace").splitlines()[-1:]
        why = " ".join([f"{what} does not start: {error}", *said])
        raise CannotPlay(why, f"see {log}", 70) from error
    child.returncode = 0  # it is meant to outlive us: nobody here will wait for it
    return who or _nobody(what)


def _nobody(what: str) -> NoReturn:
    raise CannotPlay(f"{what} ended at once", "look into the logs folder of the demo box", 70)
