"""The workers of the suite: each has a box of its own and plays what it is given, line by line."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from preflight.linux import proc
from runner.recovery import world
from tests.crash import acts, apart, power, strace
from tests.crash.box import Box
from tests.crash.cases import Case
from tests.crash.play import Play
from tests.crash.record import record

CASE_WITHIN = 150.0
Json = dict[str, Any]


def work(questions: int, answers: int, room: Path, *, is_apart: bool) -> None:
    """A worker: one box; it plays what it is given, a line at a time."""
    world.become_subreaper()
    box = Box(room, apart=is_apart)
    with os.fdopen(questions) as asked, os.fdopen(answers, "w", buffering=1) as told:
        for line in asked:
            told.write(json.dumps(_answer(box, json.loads(line))) + "\n")
            box.forget_told()
    box.end_all()


def _answer(box: Box, asked: Json) -> Json:
    if name := asked.get("record"):
        return {"places": record(box, name)}
    if "power" in asked:
        began = time.monotonic()
        count, broken = power.torn(power.record(box), box, asked["power"], asked["every"])
        took = time.monotonic() - began
        return _result("power (every state)", broken, seconds=took) | {"states": count}
    case = Case.parse(asked["case"])
    if why := impossible(case, box):
        return _result(str(case), [], seconds=0.0) | {"skipped": why}
    played = Play(box, case).whole()
    if played.violations:
        box.end_all()
    return _result(str(case), played.violations, seconds=played.seconds) | {
        "kills": played.kills,
        "reaction": played.reaction,
        "guarded": played.guarded,
        "outcome": played.outcome,
        "missed": played.missed,
    }


def impossible(case: Case, box: Box) -> str:
    """Why a case cannot be played on this machine; empty when it can."""
    if case.act and acts.ACTS[case.act].small and not box.apart:
        return "no disk of its own can be mounted here (needs root, or user namespaces)"
    if (case.inject or case.cut) and not strace.there():
        return "strace is not installed"
    return ""


def _result(case: str, violations: list[str], *, seconds: float) -> Json:
    """What the suite is told of a case."""
    return {
        "case": case,
        "violations": violations,
        "seconds": round(seconds, 2),
        "kills": 0,
        "reaction": None,
        "guarded": False,
        "outcome": "",
        "missed": False,
    }


@dataclass
class Worker:
    """A worker as the suite sees it."""

    number: int
    room: Path
    pid: int = 0
    ask: TextIO = sys.stdout
    answers: int = -1
    held: bytes = b""
    asked: Json | None = None
    since: float = 0.0

    def start(self) -> None:
        """Begin, with a box of its own."""
        in_, out = os.pipe(), os.pipe()
        room = Path(tempfile.mkdtemp(prefix=f"box-{self.number}-", dir=self.room))

        def act(is_apart: bool) -> None:
            os.close(in_[1])
            os.close(out[0])
            work(in_[0], out[1], room, is_apart=is_apart)

        self.pid = apart.worker(act)
        os.close(in_[0])
        os.close(out[1])
        self.ask, self.answers, self.held = os.fdopen(in_[1], "w", buffering=1), out[0], b""
        self.asked = None

    def give(self, question: Json) -> None:
        """Hand it the next question."""
        self.asked, self.since = question, time.monotonic()
        self.ask.write(json.dumps(question) + "\n")

    def receive(self) -> Json | None:
        """Its answer when it is whole; None before. Raises EOFError when the worker has died."""
        piece = os.read(self.answers, 65536)
        if not piece:
            raise EOFError
        self.held += piece
        if b"\n" not in self.held:
            return None
        line, _, self.held = self.held.partition(b"\n")
        self.asked = None
        answer: Json = json.loads(line)
        return answer

    def end(self) -> None:
        """End it, and with it all that lives in its namespaces."""
        self.ask.close()
        os.close(self.answers)
        who = proc.ident(self.pid)
        if who is not None:
            for pid in [*proc.descendants(self.pid), self.pid]:
                found = proc.ident(pid)
                if found is not None:
                    world.send(found, signal.SIGKILL)
        os.waitpid(self.pid, 0)


@dataclass
class Suite:
    """All cases over all workers."""

    workers: list[Worker]
    results: list[Json] = field(default_factory=list)

    def all(self, questions: list[Json]) -> Iterator[tuple[Json, Json]]:
        """Every question with its answer, in the order in which they come."""
        waiting = list(reversed(questions))
        busy = 0
        for worker in self.workers:
            if waiting:
                worker.give(waiting.pop())
                busy += 1
        while busy:
            fds = {worker.answers: worker for worker in self.workers if worker.asked}
            ready, _, _ = select.select(list(fds), [], [], 1.0)
            for worker in [fds[fd] for fd in ready] + self._hung():
                question = worker.asked or {}
                answer = self._answer(worker)
                if answer is None:
                    continue
                yield question, answer
                busy -= 1
                if waiting:
                    worker.give(waiting.pop())
                    busy += 1

    def _hung(self) -> list[Worker]:
        now = time.monotonic()
        return [one for one in self.workers if one.asked and now - one.since > CASE_WITHIN]

    def _answer(self, worker: Worker) -> Json | None:
        question = worker.asked or {}
        if time.monotonic() - worker.since <= CASE_WITHIN:
            try:
                return worker.receive()
            except EOFError:
                pass
        worker.end()
        worker.start()
        said = "the worker hung or died"
        return _result(str(question.get("case") or question), [said], seconds=CASE_WITHIN)
