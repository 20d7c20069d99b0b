"""A stand-in for llama-server: a real process that serves made-up words, and misbehaves on request.

For the demo where no real server can be installed, and for tests of what goes wrong. Standard
library only. It answers llama-server's paths in llama-server's shapes (b10434) and logs in its
form, takes its common flags by their usual spellings, and ignores those that it does not know.
What it measures is what it simulates: nothing here says anything about a model.

    --load-seconds S           answer 503 that long, then be ready
    --never-ready              answer 503 for ever
    --health-only              say 200 on /health from the start, and fail each completion
    --models-200-while-loading answer /v1/models, and nothing else, while loading
    --die-on-load              exit with 1 and no word, when the load is done
    --die-after S              exit with 1 and no word, S seconds after becoming ready
    --die-at-request N         exit with 1 and no word, instead of answering completion number N
    --fatal-line TEXT          log TEXT as an error while loading, live on, and never be ready
    --ignore-term              ignore SIGTERM and SIGINT
    --term-needs-two           ignore the first of them; exit with 1 on the second
    --hold-request TEXT        never answer a prompt with TEXT in it; give up when the client does
    --slow T                   generate T tokens per second
    --no-mtp                   accept --spec-type, draft nothing
    --wrong-model              claim to serve another model
    --shrink-ctx N             serve a context of N, whatever was asked
    --openai-only              know only /health and /v1/…, count nothing
    --spawn-child              start a child that escapes: own session, no parent, no environment
    --leave-child-on-exit      start a child that stays in the family and outlives this process
"""

import mmap
import os
import re
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

from runner.demo.standin.api import Api
from runner.demo.standin.engine import Engine, Log
from runner.demo.standin.flags import Flags, parse
from runner.demo.standin.http import Server
from runner.until import RealClock

_CLOCK = RealClock()
_CHILD_LIVES = "300"  # seconds; a child that no test found must not stay for ever


def main(argv: list[str] | None = None) -> int:
    """Serve until told to end; returns the exit code that llama-server would have."""
    words = sys.argv[1:] if argv is None else argv
    if "--version" in words:
        sys.stderr.write("version: stand-in (runner's own, not llama.cpp)\n")
        return 0
    flags = parse(words)
    log = Log()
    log("I", "cmn", "common_param", "runner's stand-in server: no model runs here")
    _misbehave(flags, log)
    if flags.spawn_child:
        log("I", "srv", "spawn_child", f"child {_escapee()}")
    if flags.leave_child_on_exit:
        log("I", "srv", "leave_child", f"child {_child()}")
    api = Api(flags, Engine(flags, log))
    try:
        listening = Server(api)
    except OSError:
        where = f"hostname: {flags.host}, port: {flags.port}"
        log("E", "srv", "start", f"couldn't bind HTTP server socket, {where}")
        log("E", "srv", "llama_server", "exiting due to HTTP server error")
        return 1
    threading.Thread(target=listening.serve_forever, args=[0.02], daemon=True).start()
    try:
        maps = _load(flags, log)
    except _CannotLoadError as problem:
        for function, text in problem.lines:
            log("E", "srv", function, text)
        log("E", "srv", "llama_server", "exiting due to model loading error")
        return 1
    _serve(api, log)
    log("I", "srv", "operator()", "operator(): cleaning up before exit...")
    listening.shutdown()
    listening.server_close()  # the port is free at once; the process waits for those still served
    while api.busy():
        _CLOCK.pause(0.02)
    for mapped in maps:
        mapped.close()
    return 0


class _CannotLoadError(Exception):
    """A file is not what it should be; `lines` are llama-server's words for it."""

    def __init__(self, *lines: tuple[str, str]) -> None:
        super().__init__(lines[-1][1])
        self.lines = lines


def _load(flags: Flags, log: Log) -> list[mmap.mmap]:
    """Map the files, as llama-server does, and take the time that was asked for."""
    log("I", "srv", "load_model", f"loading model '{flags.model}'")
    maps = [
        _mapped(path, f"failed to load model, '{flags.model}'") for path in _shards(flags.model)
    ]
    _CLOCK.pause(flags.load_seconds)
    if flags.die_on_load:
        os._exit(1)
    if flags.draft:
        maps.append(_mapped(flags.draft, f"failed to load draft model, '{flags.draft}'"))
    if flags.speculates:
        adding = f"adding speculative implementation '{flags.spec_type}'"
        log("I", "spec", "common_speculative", adding)
        log("I", "spec", "common_speculative", f"- n_max={flags.n_max}, n_min=0, p_min=0.00")
        log("I", "srv", "load_model", "speculative decoding context initialized")
    context = f"n_slots = {flags.parallel}, n_ctx_slot = {flags.context}, kv_unified = 'false'"
    log("I", "srv", "load_model", f"initializing, {context}")
    return maps


def _shards(model: str) -> list[str]:
    named = re.fullmatch(r"(.*)-00001-of-(\d{5})\.gguf", model)
    if not named:
        return [model]
    numbers = range(1, int(named[2]) + 1)
    return [f"{named[1]}-{number:05d}-of-{named[2]}.gguf" for number in numbers]


def _mapped(path: str, consequence: str) -> mmap.mmap:
    where = ("load_model", consequence)
    try:
        with Path(path).open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # ValueError: an empty file cannot be mapped
        reason = os.strerror(getattr(error, "errno", None) or 22)
        opened = f"failed to open GGUF file '{path}' ({reason})"
        raise _CannotLoadError(("gguf_init_from_file", opened), where) from error
    if mapped[:4] != b"GGUF":
        magic = f"invalid magic characters: '{mapped[:4].decode('latin-1')}', expected 'GGUF'"
        raise _CannotLoadError(("gguf_init_from_reader", magic), where)
    return mapped


class _Ladder:
    """Signals as llama-server takes them: the first asks for an end, the second makes one."""

    def __init__(self, *, deaf_once: bool = False) -> None:
        self.asked = False
        self._deaf_once = deaf_once
        self._count = 0

    def __call__(self, _number: int, _: FrameType | None) -> None:
        self._count += 1
        self.asked = not self._deaf_once
        if self._count > 1:
            sys.stderr.write("Received second interrupt, terminating immediately.\n")
            os._exit(1)

    def listen(self) -> None:
        """Take the two signals from now on."""
        signal.signal(signal.SIGTERM, self)
        signal.signal(signal.SIGINT, self)


def _misbehave(flags: Flags, log: Log) -> None:
    """Set up the evil ways with signals, from the first moment on."""
    if flags.term_needs_two:
        _Ladder(deaf_once=True).listen()
    if flags.ignore_term:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda got, _: log("W", "srv", "signal", f"ignoring {got}"))


def _serve(api: Api, log: Log) -> None:
    """Serve, or never do so; return when asked to end, and die where that was ordered.

    The orderly handler comes with readiness only: until then a signal kills, as llama-server has
    it.
    """
    flags, ladder = api.flags, _Ladder()
    if flags.fatal_line:
        log("E", "srv", "load_model", flags.fatal_line)
    if not (flags.never_ready or flags.fatal_line):
        if not (flags.ignore_term or flags.term_needs_two):
            ladder.listen()
        api.ready = True
        log("I", "srv", "llama_server", "model loaded")
        log("I", "srv", "llama_server", f"listening on http://{flags.host}:{flags.port}")
    ends = _CLOCK.now() + flags.die_after
    while not ladder.asked:
        if flags.die_after and _CLOCK.now() >= ends:
            os._exit(1)
        _CLOCK.pause(0.02)


def _child() -> int:
    """Start a process that stays: our session, our environment, our child."""
    pid = os.fork()
    if pid == 0:
        os.execv("/bin/sleep", ["sleep", _CHILD_LIVES])  # noqa: S606  no shell is wanted
    return pid


def _escapee() -> int:
    """Start a process that nothing ties to us, as a daemon does it; returns its pid."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() != 0:
            os._exit(0)
        os.write(writing, str(os.getpid()).encode())
        os.execve("/bin/sleep", ["sleep", _CHILD_LIVES], {})  # noqa: S606  no shell is wanted
    os.close(writing)
    os.wait()
    pid = int(os.read(reading, 32))
    os.close(reading)
    return pid


if __name__ == "__main__":
    sys.exit(main())
