"""Ends its own process at one exact place: a named point, the n-th pass of a line or of a bytecode.

The code under test knows nothing of it: the place is watched for with `sys.settrace`. A place is
written as

    point/runner.recovery.recipe.write/enter#1     a function is entered, or left ("leave")
    line/runner/night.py/118#3                     a line is about to run for the third time
    opcode/runner/night.py/118+24#1                a bytecode, by its function's first line and offset

Standard library only, since the guardian carries it too.
"""

import contextlib
import importlib
import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import MappingProxyType

ROOT = Path(__file__).resolve().parents[2]
OURS = tuple(f"{ROOT / name}/" for name in ("preflight", "jobs", "alerts", "runner"))
VARIABLE = "CRASH_TRAP"
"""In the environment of a guardian: {"who", "blow", "at", "ledger"}, or {"into"}."""


def name_of(code):
    """The file of a code object as places write it; None when it is none of ours."""
    path = code.co_filename
    return path[len(str(ROOT)) + 1 :] if path.startswith(OURS) else None


class Trap:
    """One place, and what happens to the process there. It snaps once."""

    def __init__(self, at, blow, *, who, ledger):
        self.kind, _, rest = at.partition("/")
        where, _, number = rest.partition("#")
        self.left = int(number or 1)
        self.at, self.blow, self.who, self.ledger = at, blow, who, ledger
        self._watched = {}
        if self.kind == "point":
            name, _, self.when = where.rpartition("/")
            self._module, self._function = _split_name(name)
        else:
            self.file, _, spot = where.rpartition("/")
            first, _, offset = spot.partition("+")
            self.line, self.offset = int(first), int(offset or -1)

    def set(self):
        """Watch from now on, in this thread and in those to come."""
        threading.settrace(self._entered)
        sys.settrace(self._entered)

    def exists(self):
        """Whether a named point names a function that is there."""
        found = importlib.import_module(self._module)
        for name in self._function.split("."):
            found = getattr(found, name, None)
        return found is not None

    def _entered(self, frame, _event, _arg):
        code = frame.f_code
        wanted = self._watched.get(code)
        if wanted is None:
            wanted = self._watched[code] = self._is_wanted(frame, code)
        if not wanted:
            return None
        if self.kind == "point":
            if self.when == "enter":
                self._pass()
                return None
            frame.f_trace_lines = False
            return self._left
        frame.f_trace_opcodes = self.kind == "opcode"
        return self._stepped

    def _is_wanted(self, frame, code):
        if self.kind == "point":
            return (
                frame.f_globals.get("__name__") == self._module
                and code.co_qualname == self._function
            )
        if name_of(code) != self.file:
            return False
        if self.kind == "opcode":
            return code.co_firstlineno == self.line
        return any(line == self.line for _, _, line in code.co_lines())

    def _left(self, _frame, event, _arg):
        if event == "return":
            self._pass()
        return self._left

    def _stepped(self, frame, event, _arg):
        if self.kind == "line":
            if event == "line" and frame.f_lineno == self.line:
                self._pass()
        elif event == "opcode" and frame.f_lasti == self.offset:
            self._pass()
        return self._stepped

    def _pass(self):
        self.left -= 1
        if self.left == 0:
            self._snap()

    def _snap(self):
        sys.settrace(None)
        if hit_already(self.ledger, self.who):
            return  # one of a crowd, and another came first
        write(self.ledger, "blow", who=self.who, blow=self.blow, at_place=self.at)
        os.kill(os.getpid(), signal.Signals[f"SIG{self.blow}"])


def _split_name(name):
    """`runner.night.Night.told` as module and qualified name: modules are written in small letters."""
    parts = name.split(".")
    for place in range(len(parts), 0, -1):
        module = ".".join(parts[:place])
        if (ROOT / Path(*parts[:place])).with_suffix(".py").exists():
            return module, ".".join(parts[place:])
    raise ValueError(f"{name}: there is no such module")


class Record:
    """Every place that a process passes, with how often: what traps can be set at."""

    def __init__(self):
        self.passed = Counter()

    def set(self):
        """Count from now on."""
        threading.settrace(self._entered)
        sys.settrace(self._entered)

    def _entered(self, frame, _event, _arg):
        if name_of(frame.f_code) is None:
            return None
        name = f"{frame.f_globals.get('__name__')}.{frame.f_code.co_qualname}"
        self.passed[f"point/{name}"] += 1
        frame.f_trace_opcodes = True
        return self._stepped

    def _stepped(self, frame, event, _arg):
        code = frame.f_code
        if event == "line":
            self.passed[f"line/{name_of(code)}/{frame.f_lineno}"] += 1
        elif event == "opcode":
            self.passed[f"opcode/{name_of(code)}/{code.co_firstlineno}+{frame.f_lasti}"] += 1
        return self._stepped

    def save(self, path):
        """Write the counts as JSON."""
        sys.settrace(None)
        Path(path).write_text(json.dumps(dict(self.passed)))


LEFT = MappingProxyType(
    {
        "runner.journal.Journal.begin": "journal.begin",
        "runner.journal.Journal.event": "journal.event",
        "runner.journal.Journal.close": "journal.close",
        "runner.recovery.recipe.write": "recipe.write",
        "runner.recovery.recipe.close": "recipe.close",
        "runner.recovery.state.StateFile.write": "state.write",
    }
)
"""What is durable when it returns, and by which name marks say so."""


class Marks:
    """Writes down when something that must be durable has been acknowledged, among the system calls."""

    def __init__(self, path):
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND)

    def set(self):
        """Watch from now on, in this thread."""
        sys.settrace(self._entered)

    def _entered(self, frame, _event, _arg):
        name = f"{frame.f_globals.get('__name__')}.{frame.f_code.co_qualname}"
        did = LEFT.get(name)
        if did is None:
            return None
        if did == "recipe.close":
            self._write({"did": "enter recipe.close", "entered": True})
        failed = []

        def left(frame, event, _):
            frame.f_trace_lines = False
            if event == "exception":
                failed.append(True)
            elif event == "return" and not failed:
                mine = frame.f_locals.get("self")
                self._write({"did": did, "sequence": getattr(mine, "_sequence", 0)})
            return left

        return left

    def _write(self, said):
        os.write(self._fd, json.dumps(said).encode())


@contextlib.contextmanager
def watching(blow, who, ledger, into=None, marks=None):
    """A block with a trap in it, if there is a blow for this process; or recorded into a file."""
    record = Record() if into else None
    if marks is not None:
        Marks(marks).set()
    elif record is not None:
        record.set()
    elif blow is not None:
        Trap(blow.at, blow.what, who=who, ledger=str(ledger)).set()
    try:
        yield
    finally:
        sys.settrace(None)
        if record is not None:
            record.save(into)


def write(ledger, what, **more):
    """Append one line to the ledger of the box."""
    at = time.clock_gettime(time.CLOCK_BOOTTIME)
    line = json.dumps({"what": what, "pid": os.getpid(), "at": at} | more).encode() + b"\n"
    fd = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        os.write(fd, line)
    finally:
        os.close(fd)


def hit_already(ledger, who):
    """Whether this one was hit before in this case."""
    with open(ledger, encoding="utf-8") as file:
        said = [json.loads(line) for line in file]
    return any(line["what"] == "blow" and line["who"] == who for line in said)
