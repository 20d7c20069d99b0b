"""The console script: recovery and its kin before any third-party import, then everything else.

A broken upgrade of a library must not stop production from coming back, so `recover`, `restore`,
`guardian` and `status` are told apart here with the standard library alone.
"""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from runner import __version__

if TYPE_CHECKING:
    from pathlib import Path

    from runner.where import Found

_WITH_VALUE = ("--config",)
_USAGE = 2
_INTERRUPTED = 130
_NOBODY_READS = 141  # what a shell reports for a program ended by SIGPIPE


def main() -> None:
    """Run the command line and exit with its code."""
    argv = sys.argv[1:]
    try:
        code = run(argv)
    except KeyboardInterrupt:  # while it was loading, or in a verb that takes no signal as a wish
        place, remedy = split(argv)[1] or "runner", "to see what stands open: runner status"
        as_json = "--json" in argv
        code = _complain("interrupted", place, remedy, as_json=as_json, code=_INTERRUPTED)
    _decided()
    sys.exit(code)


def _decided() -> None:
    """From now on no signal that was taken as a wish changes the exit code.

    On its way out Python gives those signals their deadly default back.
    """
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        taken = signal.getsignal(number)
        if callable(taken) and taken is not signal.default_int_handler:
            signal.signal(number, signal.SIG_IGN)


def run(argv: Sequence[str]) -> int:
    """Run one command; returns the exit code of the table in `runner.outcome`."""
    globals_, verb, rest = split(argv)
    if verb is None and "--version" in globals_:
        return _flushed(_version)
    if verb in {"recover", "restore", "guardian", "status"} and _known(globals_):
        return _flushed(lambda: _without_third_parties(verb, [*_config(globals_), *rest]))
    from runner.cli.app import main as everything_else  # noqa: PLC0415 - after the dispatch above

    return _flushed(lambda: everything_else(list(argv)))


def split(argv: Sequence[str]) -> tuple[list[str], str | None, list[str]]:
    """The options before the verb, the verb, and what follows it."""
    words = list(argv)
    place = 0
    while place < len(words) and words[place].startswith("-"):
        place += 2 if words[place] in _WITH_VALUE else 1
    verb = words[place] if place < len(words) else None
    return words[:place], verb, words[place + 1 :]


def _known(words: list[str]) -> bool:
    """Whether each option before the verb is one that there is; click tells about others."""
    plain = [word for word in words if word not in _config(words)]
    return all(word == "--verbose" or word.strip("v") == "-" for word in plain)


def _config(words: list[str]) -> list[str]:
    """The `--config` among the options before the verb."""
    kept: list[str] = []
    for place, word in enumerate(words):
        if word in _WITH_VALUE:
            kept += words[place : place + 2]
        elif word.startswith(tuple(f"{name}=" for name in _WITH_VALUE)):
            kept.append(word)
    return kept


def _version() -> int:
    print(f"runner {__version__}")
    return 0


def _without_third_parties(verb: str, argv: list[str]) -> int:
    from runner import where, who  # noqa: PLC0415 - `--version` needs none of it
    from runner.recovery.command import main as command  # noqa: PLC0415 - likewise

    as_json = "--json" in argv
    try:
        if (nowhere := _nowhere(verb, argv)) is not None:
            remedy = "name it with --config; `runner doctor` shows where it is looked for"
            return _complain(nowhere.missing, nowhere.paths, remedy, as_json=as_json)
        # Whoever else asks for the status reads what is published; root could read it all.
        if verb != "status" or os.geteuid() == 0:
            config = where.find_config(_option("--config", argv)).path
            who.become_owner(_state_dir(argv), config=config)
        return command(verb, argv)
    except who.NotOwner as error:
        return _complain(error.message, error.where, error.remedy, as_json=as_json)


def _nowhere(verb: str, argv: Sequence[str]) -> "Found | None":
    """Where a configuration was looked for, if it is not there, and what we would say be wrong.

    A configuration that was deleted hides no debt: where its usual state directory is there, that
    one is recovered. But "serving" or "nothing is owed" must not mean that a path was misspelt.
    """
    from runner import where  # noqa: PLC0415 - as above

    asked = {"-h", "--help"} & set(argv) or _option("--state-dir", argv)
    found = where.find_config(_option("--config", argv))
    if asked or found.path is not None or "STATE_DIRECTORY" in os.environ:
        return None
    named = len(found.looked) == 1
    return found if (named and verb == "status") or not _state_dir(argv).is_dir() else None


def _state_dir(argv: Sequence[str]) -> "Path":
    """The state directory that a verb of recovery is about."""
    from pathlib import Path  # noqa: PLC0415 - as above

    from runner import where  # noqa: PLC0415 - as above

    if named := _option("--state-dir", argv):
        return Path(named)
    return where.state_dir_of(where.find_config(_option("--config", argv)).meant)


def _option(name: str, argv: Sequence[str]) -> str | None:
    """The last value of an option, written as `--name value` or `--name=value`."""
    found = None
    for place, word in enumerate(argv):
        if word == name and place + 1 < len(argv):
            found = argv[place + 1]
        elif word.startswith(f"{name}="):
            found = word.partition("=")[2]
    return found


def _complain(message: str, place: str, remedy: str, *, as_json: bool, code: int = _USAGE) -> int:
    from runner.recovery.command import tell  # noqa: PLC0415 - as above

    if as_json:
        import json  # noqa: PLC0415 - as above

        error = {"code": code, "where": place, "message": message, "remedy": remedy}
        tell(json.dumps({"error": error}, indent=2))
    else:
        tell(f"runner: {place}: {message} → {remedy}", error=True)
    return code


def _flushed(verb: Callable[[], int]) -> int:
    """Run the verb; a full disk or a reader who left behind standard output changes no exit code."""
    try:
        code = verb()
    except BrokenPipeError:  # a verb that was still printing: nobody reads on
        code = _NOBODY_READS
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        # What is left in the buffer would make Python exit with a code of its own.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code
