"""The candidate's time on the box: up, ready, measured, ended; one arm after the other.

Everything that it says is written down as it comes, so that what was measured before a cut or a
crash is there afterwards. It judges nothing and knows nothing of production but that it must be
watched.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jobs import workload
from jobs.ask import Asker
from jobs.evidence import Evidence, metrics_delta
from jobs.evidence import now as stamp
from jobs.job import Workload
from jobs.request import Request
from jobs.samples import Sample
from jobs.servers.base import Command, Server
from jobs.workload import Prompt
from runner.background import Background
from runner.candidate import Candidate, CandidateFailed, Ended
from runner.obligation import Obligation
from runner.placement import Placement
from runner.progress import Progress
from runner.recovery.probe import Look
from runner.until import Clock, Hopeless, TimedOut, until

WATCH_S = 1.0
REQUEST_SLACK_S = 10.0
_WHOLE_LOG = 64 << 20

Json = dict[str, Any]
Nothing = Callable[[], str | None]


@dataclass(frozen=True, slots=True)
class Arm:
    """One server to measure. A task has no server: it ends by itself."""

    name: str
    command: Command
    server: Server | None


@dataclass(frozen=True, slots=True)
class Inputs:
    """What is read while production still serves: the prompts, and the API key of each arm.

    A file that cannot be used, or that goes while the candidate loads, then costs no downtime.
    """

    texts: tuple[Prompt, ...] = ()
    keys: Mapping[str, str] = field(default_factory=dict, repr=False)


def read_inputs(arms: Sequence[Arm], work: Workload) -> Inputs:
    """Read it. Raises OSError and ValueError, which say what cannot be used."""
    servers = [(arm.name, arm.server) for arm in arms if arm.server is not None]
    texts = workload.prompts(work) if servers else ()
    for _, server in servers:
        if server.context is not None:
            workload.plan(work, texts, context=server.context)
    keys = {name: server.api_key.read() for name, server in servers if server.api_key}
    return Inputs(texts, keys)


@dataclass
class Measured:
    """What the arms brought back, in order."""

    evidence: list[Evidence] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    ready_s: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    left: tuple[int, ...] = ()

    def record(self, directory: Path, evidence: Sequence[Evidence]) -> None:
        """Keep evidence, here and on disk."""
        self.evidence.extend(evidence)
        _append(directory / "evidence.jsonl", [one.to_json() for one in evidence])


@dataclass(frozen=True, slots=True)
class Bench:
    """Where and how arms are measured: the run's directory, its limits, who watches."""

    run: str
    inputs: Inputs
    directory: Path
    obligation: Obligation
    clock: Clock
    progress: Progress
    stop: Nothing
    watch: Callable[[set[int]], str | None]
    placement: Placement


def log_name(arm: str) -> str:
    """The file an arm's output goes to."""
    return f"{arm}.log"


def measure(arms: Sequence[Arm], work: Workload, bench: Bench, into: Measured) -> None:
    """Bring each arm up, measure it, end it. What was measured stands in `into`, also on failure.

    Raises CandidateFailed, Stopped (somebody asked for an end, or time is up) and KeeperGone.
    """
    for arm in arms:
        _Session(arm, work, bench, into).hold()


class _Session:
    """One arm while it is on the box."""

    def __init__(self, arm: Arm, work: Workload, bench: Bench, into: Measured) -> None:
        self._arm, self._work, self._bench, self._into = arm, work, bench, into
        self._log = bench.directory / log_name(arm.name)
        self._next_watch = 0.0
        server = arm.server
        self._key = bench.inputs.keys.get(arm.name)
        secret = server.api_key.env if server is not None and server.api_key else None
        self._candidate = Candidate(
            arm.command,
            run=bench.run,
            keeper=bench.obligation.keeper,
            clock=bench.clock,
            log=self._log,
            fatal=server.fatal_lines if server is not None else (),
            secrets={secret: self._key} if secret and self._key else {},
        )

    def hold(self) -> None:
        """From start to gone; gone also when something fails on the way."""
        self._bench.progress.phase(f"starting the {self._arm.name}")
        self._bench.placement.begin()
        try:
            self._candidate.start()
            self._remember()
            if self._arm.server is None:
                self._task()
            else:
                self._serve(self._arm.server)
        finally:
            self._bench.progress.phase(f"ending the {self._arm.name}")
            self._ended(self._candidate.end())

    def _remember(self) -> None:
        """Where recovery finds it, should we die now."""
        who = self._candidate.who
        self._bench.obligation.memory.note(
            phase="candidate",
            candidate={
                "who": who.to_json() if who else None,
                "cgroup": self._bench.obligation.keeper.cgroup,
            },
        )

    def _ended(self, ended: Ended) -> None:
        self._into.notes.extend(ended.notes)
        self._into.left = ended.left
        if ended.left:
            pids = ", ".join(map(str, ended.left))
            raise CandidateFailed(f"the {self._arm.name} does not end: pid {pids}")

    def _watch(self) -> str | None:
        """Production back, or a stranger on the GPU: at most once a second."""
        now = self._bench.clock.now()
        if now < self._next_watch:
            return None
        self._next_watch = now + WATCH_S
        return self._bench.watch(set(self._bench.obligation.keeper.look().left))

    def _hopeless(self) -> str | None:
        return self._candidate.died() or self._watch()

    def _task(self) -> None:
        within = float(self._work.request_within)
        self._bench.progress.phase(f"{self._arm.name} works", within)
        code = self._candidate.finished(within=within, stop=self._bench.stop, watch=self._watch)
        # only here: the code of a task that was ended from outside says nothing of its work
        source = f"exit code of {self._arm.command.argv[0]}"
        self._record([Evidence("exit_code", source, str(code), code, stamp(), self._arm.name)])

    def _serve(self, server: Server) -> None:
        began = self._bench.clock.now()
        within = float(server.ready_within)
        self._bench.progress.phase(f"{self._arm.name} loads", within)
        look = self._candidate.ready(
            server.ready(api_key=server.key_spec()),
            server.port or 0,
            within=within,
            stop=self._bench.stop,
            watch=self._watch,
        )
        took = self._bench.clock.now() - began
        self._into.ready_s[self._arm.name] = round(took, 3)
        self._bench.progress.note(f"{self._arm.name} ready after {took:.1f} s")
        ours = set(self._bench.obligation.keeper.look().left)
        missing = self._bench.placement.missing(self._arm.name, ours, self._candidate.log_text())
        if missing is not None:
            raise CandidateFailed(missing)
        before = self._observe(server)
        self._send_all(server, _context(look, server))
        after = self._observe(server)
        self._record([*before, *after, *metrics_delta(before, after)])

    def _observe(self, server: Server) -> tuple[Evidence, ...]:
        return server.observe(server.url(), self._key, arm=self._arm.name)

    def _send_all(self, server: Server, context: int | None) -> None:
        try:
            requests = workload.plan(
                self._work,
                self._bench.inputs.texts,
                context=context,
                nonce=self._bench.run,
                arm=self._arm.name,
            )
        except ValueError as error:  # the context is not what was asked for, or nobody tells it
            raise CandidateFailed(str(error)) from error
        asker = Asker(server, server.url(), api_key=self._key, told=self._bench.progress.tokens)
        within = float(self._work.request_within)
        for number, request in enumerate(requests, start=1):
            if workload.unneeded(request, self._into.samples):
                continue
            self._bench.progress.phase(
                f"{self._arm.name}: request {number} of {len(requests)} ({request.prompt})", within
            )
            self._keep(self._send(asker, request, within))

    def _send(self, asker: Asker, request: Request, within: float) -> Sample:
        """One request in a thread of its own, so that a death or a cut is not waited out."""
        work = Background(lambda: asker.send(request, deadline_s=within))
        try:
            (sample,) = until(
                work.answer,
                within=within + REQUEST_SLACK_S,
                clock=self._bench.clock,
                every=0.01,
                hopeless=self._hopeless,
                stop=self._bench.stop,
                wake=self._candidate.wake,
            )
        except Hopeless as error:
            raise CandidateFailed(error.reason) from error
        except TimedOut:
            return Sample.of(request).invalid(f"no answer within {within:g} s")
        return sample

    def _keep(self, sample: Sample) -> None:
        self._into.samples.append(sample)
        _append(self._bench.directory / "samples.jsonl", [sample.to_json()])

    def _record(self, evidence: Sequence[Evidence]) -> None:
        self._into.record(self._bench.directory, evidence)


def read_logs(arms: Sequence[Arm], directory: Path, into: Measured) -> None:
    """What the arms' logs say, once nobody writes to them any more and production is back."""
    for arm in arms:
        path = directory / log_name(arm.name)
        if arm.server is None or not path.exists():
            continue
        with path.open("rb") as file:
            text = file.read(_WHOLE_LOG).decode("utf-8", "replace")
        source = f"log:{log_name(arm.name)}"
        into.record(directory, arm.server.log_evidence(text, source=source, arm=arm.name))


def _context(look: Look, server: Server) -> int | None:
    """How many tokens one request may use: as the server says, else as it was asked."""
    said = look.identity.get("context")
    return said if isinstance(said, int) else server.context


def _append(path: Path, rows: Sequence[Json] | Sequence[dict[str, object]]) -> None:
    """Add JSON lines. A full disk loses them here; they stay in memory for the verdict."""
    try:
        # as `\ud83d`, which is JSON as well, where a server's text is half a character
        with path.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    except OSError:
        return
