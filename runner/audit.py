"""Whether the promises hold: an independent look at journal, state directory and the world.

It shares no judgement with the code that makes the promises: the database is read by its tables,
files as JSON, processes from /proc. Each finding names the promise it breaks, and counts when two
looks agree, since a run may be on its way.
"""

import contextlib
import json
import re
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from preflight.linux import proc
from runner.outcome import MEANINGS
from runner.recovery import probe
from runner.recovery.files import read_json
from runner.until import Clock, RealClock, rest

_GATE_S = 10.0
_TABLES = ("runs", "results", "events", "verdicts", "outbox", "incidents")
_DECIDED = ("paused", "not applicable")  # a person's own decision is not told
_STANDS = ("SERVING", "DOWN", "DEGRADED", "PRODUCTION UNKNOWN")
_TOKEN = re.compile(r"\b\d{6,12}:[A-Za-z0-9_-]{30,}\b")

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Broken:
    """One promise that does not hold (P1 to P10), and how one can see it."""

    promise: str
    said: str


class Audit:
    """One look. What cannot be read stands in `unknown`, and breaks no promise."""

    def __init__(self, state_dir: Path) -> None:
        self.unknown: list[str] = []
        self._dir = state_dir
        self._owed: Json = read_json(state_dir / "recovery.json") or {}
        good: Json = read_json(state_dir / "last-good.json") or {}
        services: Any = self._owed.get("services") or good.values()
        self._services: list[Json] = list(services)
        self._rows: dict[str, list[Json]] = {name: [] for name in _TABLES}
        self._by_run: dict[tuple[str, str | None], list[Json]] = {}
        if (state_dir / "journal.db").exists():
            self._read(state_dir / "journal.db")
        self._tagged: dict[str, set[int]] = {}
        for pid in proc.pids():
            run = (proc.environ(pid) or {}).get(proc.TAG)
            if run and proc.ident(pid) is not None:
                self._tagged.setdefault(run, set()).add(pid)

    def _read(self, path: Path) -> None:
        try:
            with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
                db.row_factory = sqlite3.Row
                db.execute("BEGIN")  # one moment for all tables, or a run seems half told
                select = "SELECT * FROM {}".format
                for name in _TABLES:
                    for row in map(dict, db.execute(select(name))):
                        self._rows[name].append(row)
                        self._by_run.setdefault((name, row["run"]), []).append(row)
        except sqlite3.Error as error:
            self._rows, self._by_run = {name: [] for name in _TABLES}, {}
            self.unknown.append(f"{path} cannot be read: {error}")

    def broken(self) -> Iterator[Broken]:
        """Every promise that does not hold now."""
        looks = {"P1": self._serving, "P2": self._one_tenant, "P3": self._no_orphans}
        looks |= {"P4": self._no_limbo, "P5": self._told, "P6": self._safe_stop}
        for promise, look in (looks | {"P9": self._proof, "P10": self._secret}).items():
            yield from (Broken(promise, said) for said in look())

    def _serving(self) -> Iterator[str]:
        lines = [str(json.loads(row["body"]).get("first_line")) for row in self._rows["outbox"]]
        known = [line for line in lines if line.startswith(_STANDS)]
        told = bool(known) and not known[-1].startswith("SERVING")  # the last is what people know
        told |= any(not it["resolved"] for it in self._rows["incidents"] if it["key"] != "journal")
        for one in self._services:
            why = "" if told or self.unknown else _not_serving(one)
            if why and not self._somebody_works():
                yield f"{one['name']} does not serve as before ({why}), and nobody has been told"

    def _somebody_works(self) -> bool:
        """Whether a run or a recovery lives: it restores, and tells if it cannot."""
        lines = [proc.cmdline(pid) or () for pid in proc.pids()]
        verbs = {"run", "recover", "restore", "guardian"}
        at_work = any(verbs & set(line) and str(self._dir) in " ".join(line) for line in lines)
        return at_work or any(_lives(run) for run in self._rows["runs"] if not run["outcome"])

    def _one_tenant(self) -> Iterator[str]:
        candidates = self._tagged.get(str(self._owed.get("run")))
        for one in self._services:
            if len(copies := _copies(one)) > 1:
                yield f"{one['name']} runs {len(copies)} times: pids {sorted(copies)}"
            if copies and candidates and one["name"] in self._owed.get("stops", ()):
                yield f"{one['name']} and a candidate live at once: pids {sorted(candidates)}"

    def _no_orphans(self) -> Iterator[str]:
        for run, pids in self._tagged.items():
            if any(row["outcome"] for row in self._of("runs", run)):
                yield f"run {run} has ended, and pids {sorted(pids)} of its candidate live"

    def _no_limbo(self) -> Iterator[str]:
        for run in self._rows["runs"]:
            name, outcome, code = run["run"], run["outcome"], run["exit_code"]
            if outcome is None:
                if name != self._owed.get("run") and not _lives(run):
                    yield f"run {name} has no outcome, no process and no debt"
                continue
            if MEANINGS.get(code, ("",))[0] != outcome:
                yield f"run {name} is {outcome} with exit code {code}"
            ends = [row for row in self._of("events", name) if row["name"] == "ended"]
            if len(ends) != 1:
                yield f"run {name} has ended {len(ends)} times"

    def _told(self) -> Iterator[str]:
        for run in self._rows["runs"]:
            decided = any(word in (run["headline"] or "") for word in _DECIDED)
            if run["outcome"] in (None, "proven") or decided or self._of("outbox", run["run"]):
                continue
            if not any(run["job"] in row["text"] for row in self._rows["incidents"]):
                yield f"run {run['run']} was {run['outcome']}, and no alert says so"

    def _of(self, table: str, run: str) -> list[Json]:
        return self._by_run.get((table, run), [])

    def _safe_stop(self) -> Iterator[str]:
        for row in (each for each in self._rows["events"] if each["name"] == "stopping"):
            said, detail = f"run {row['run']} stopped production", json.loads(row["detail"])
            verdicts = [json.loads(one["body"]) for one in self._of("verdicts", row["run"])]
            if not verdicts:
                yield f"{said} without a preflight"
            for one in verdicts:
                accepted = "accepted:" in str(one.get("evidence"))
                if one["state"] == "fail" or (one["state"] == "unknown" and not accepted):
                    yield f"{said} although {one['id']} was {one['state']}"
            if not 0 <= detail.get("gate_age_s", -1) < _GATE_S:
                yield f"{said} on a gate of {detail.get('gate_age_s')} s ago"
            if not detail.get("guardian"):
                yield f"{said} without a guardian"

    def _proof(self) -> Iterator[str]:
        for row in self._rows["results"]:
            said = json.loads(row["body"])
            claims = said.get("claims") or [{"state": said.get("outcome"), "kind": "it"}]
            for one in claims:
                if one.get("state") == "proven" and not one.get("evidence"):
                    yield f"run {row['run']}: {one.get('kind')} is proven without evidence"

    def _secret(self) -> Iterator[str]:
        for name, rows in self._rows.items():
            if _TOKEN.search(json.dumps(rows)):
                yield f"the journal's table {name} holds what looks like a token"
        for path in (self._dir / name for name in ("recovery.json", "journal.db")):
            if path.exists() and path.stat().st_mode & 0o077:
                yield f"{path} can be read by others"


def _lives(run: Json) -> bool:
    who = proc.Ident.from_json(json.loads(run["ident"] or "null"))
    return who is not None and proc.alive(who)


def _copies(service: Json) -> set[int]:
    """The first processes of a service, where its command tells which these are."""
    argv = tuple((service.get("supervisor") or {}).get("argv") or ())
    alike = {pid for pid in proc.pids() if argv and proc.cmdline(pid) == argv and proc.ident(pid)}
    alike = {pid for pid in alike if proc.TAG not in (proc.environ(pid) or {})}
    return {pid for pid in alike if (found := proc.stat(pid)) and found.ppid not in alike}


def _not_serving(service: Json) -> str:
    """Why a service does not serve as it did; empty when it does."""
    look = probe.health(service["probe"], within=5)
    if not look.serving:
        return look.why
    known: Json = (service.get("identity") or {}).get("said") or {}
    now = probe.identity(service["probe"]).identity
    changed = [name for name, was in known.items() if now.get(name) != was]
    return "; ".join(f"{name} was {known[name]}, is {now.get(name)}" for name in changed)


def audit(state_dir: Path, *, clock: Clock | None = None) -> tuple[list[Broken], list[str]]:
    """Every broken promise on which two looks agree, and what could not be looked at."""
    first = Audit(state_dir)
    broken = list(first.broken())
    if broken:
        rest(0.5, clock=clock or RealClock())
        again = set(Audit(state_dir).broken())
        broken = [one for one in broken if one in again]
    return broken, first.unknown
