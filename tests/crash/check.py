"""The independent look at a box after a case: P1 to P7, from the ledger and the world.

It must not ask the runner's own code what it thinks; `runner audit`, which it asks too, reads the
journal and the world by itself.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from preflight.linux import proc
from runner.audit import audit
from runner.until import TimedOut
from tests.crash import acts
from tests.crash.box import SERVICES, Box
from tests.crash.cases import Case

REACTION = 12.0
"""Seconds from a run's end by a kill to the next start of production, on a busy machine."""

NOTICED = 11.0
"""Seconds until a start that can never succeed has been tried twice and is told."""

JUST_BEFORE = 0.1

UNKNOWABLE = "cannot be known"

Json = dict[str, Any]


@dataclass
class Facts:
    """What is left of a case."""

    box: Box
    case: Case
    before: set[int]
    codes: list[int]
    told_down: bool
    told_after: float = 0.0

    @cached_property
    def ledger(self) -> list[Json]:
        """What happened, in order."""
        return self.box.happened()

    @cached_property
    def rows(self) -> dict[str, list[Json]]:
        """runs and outbox as they stand in the journal; empty where it cannot be read."""
        found: dict[str, list[Json]] = {"runs": [], "outbox": [], "events": []}
        path = self.box.state / "journal.db"
        if not path.exists():
            return found
        db = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5)
        db.row_factory = sqlite3.Row
        try:
            select = "SELECT * FROM {} ORDER BY n".format
            for table in found:
                found[table] = [dict(row) for row in db.execute(select(table))]
        except sqlite3.Error:
            return found
        finally:
            db.close()
        return found

    def of(self, what: str, roles: Sequence[str] = ()) -> list[Json]:
        """The lines of the ledger of this kind."""
        return [
            line
            for line in self.ledger
            if line["what"] == what and (not roles or line.get("role") in roles)
        ]

    @property
    def kills(self) -> int:
        """How many processes were ended by force."""
        hits = self.of("blow") + self.of("then")
        return sum(line["blow"] == "KILL" for line in hits) + self.codes.count(-9) * bool(
            self.case.inject
        )

    @property
    def reaction(self) -> float | None:
        """Seconds from the kill of the run to the next start of production."""
        ends = [line for line in self.of("blow") + self.of("then") if line["blow"] == "KILL"]
        hit = [line["at"] for line in ends if line["who"] == "run"]
        starts = [line["at"] for line in self.of("start", SERVICES)]
        # in a crowd the next start may be another run's own; what is hindered waits for its time
        if not hit or self.case.crowd or acts.expects(self.case).told:
            return None
        return next((at - hit[0] for at in starts if at > hit[0]), None)

    @property
    def guarded(self) -> bool:
        """Whether a guardian lived, and was free to act, when the run was killed."""
        hit = [line for line in self.of("blow") + self.of("then") if line["who"] == "guardian"]
        return not hit and "guardian" not in self.case.act and acts.expects(self.case).guarded

    @property
    def missed(self) -> bool:
        """Whether a blow was to hit the run, and did not."""
        hit = any(line["who"] == "run" for line in self.of("blow"))
        return self.case.blow("run") is not None and not hit

    @property
    def outcome(self) -> str:
        """How the first run ended, as the journal says."""
        return str(self.rows["runs"][0]["outcome"]) if self.rows["runs"] else ""

    @property
    def restarts(self) -> list[Json]:
        """Starts of production since the case began."""
        return [line for line in self.of("start", SERVICES) if line["pid"] not in self.before]

    @property
    def unknowable(self) -> bool:
        """Whether nobody can know what the candidate left: no cgroup, its keeper killed; and said."""
        hit = any(line["who"] == "guardian" for line in self.of("blow"))
        return self.case.home == "none" and hit and UNKNOWABLE in self.box.told_text()

    @property
    def stays_down(self) -> bool:
        """Whether somebody else ended production before anything of ours asked it to."""
        asked = [line["at"] for line in self.of("term", SERVICES)]
        mark = [line["at"] for line in self.of("ended by others")]
        return bool(mark) and not any(at < mark[0] for at in asked)


def violations(facts: Facts) -> list[str]:
    """Every broken promise, by its number."""
    found = [
        *_serving(facts),
        *_one_tenant(facts),
        *_no_orphans(facts),
        *_no_limbo(facts),
        *_told(facts),
        *_safe_stop(facts),
        *_idempotent(facts),
        *_how_it_ended(facts),
    ]
    if not facts.stays_down and not acts.expects(facts.case).for_ever:
        found += [f"audit {one.promise}: {one.said}" for one in audit(facts.box.state)[0]]
    return found


def _serving(facts: Facts) -> list[str]:
    if facts.stays_down:
        started = [
            line for line in facts.restarts if line["at"] > facts.of("ended by others")[0]["at"]
        ]
        found = ["P1 started what somebody else had ended"] if started else []
        if not facts.case.cut and "SERVING" in facts.box.told_text():
            found.append("P1 told as serving, and it was down")
        return found
    expected = acts.expects(facts.case)
    if expected.told and not facts.told_down:
        return ["P1 production could not come back, and nobody was told"]
    if expected.told and facts.told_after > NOTICED:
        return [f"P1 that production cannot come back was told after {facts.told_after:.0f} s"]
    if expected.for_ever:
        return []
    found = {role: facts.box.model_of(role) for role in facts.box.roles}
    return [
        f"P1 {role} does not serve: {name}"
        for role, name in found.items()
        if name != facts.box.model.name
    ]


def _one_tenant(facts: Facts) -> list[str]:
    doubles = [] if facts.unknowable else facts.of("double")
    found = [
        f"P2 the GPU had two tenants: {line['role']} beside {line['holder']}" for line in doubles
    ]
    copies = {role: len(facts.box.copies(role)) for role in facts.box.roles}
    return found + [f"P2 {role} runs {count} times" for role, count in copies.items() if count > 1]


def _no_orphans(facts: Facts) -> list[str]:
    production = {pid for copy in facts.box.copies() for pid in {copy} | proc.descendants(copy)}
    box = facts.box

    def none() -> bool | None:
        return None if box.living() - production else True

    try:
        box.soon(none, within=3)  # a probe whose pipe has closed is on its way out
    except TimedOut:
        left = box.living() - production
    else:
        return []
    if facts.unknowable:
        return []
    names = [" ".join(proc.cmdline(pid) or ("?",))[-120:] for pid in sorted(left)]
    return [f"P3 still there: {name}" for name in names]


def _no_limbo(facts: Facts) -> list[str]:
    found = [
        f"P4 run {row['run']} has no outcome" for row in facts.rows["runs"] if not row["outcome"]
    ]
    for row in facts.rows["runs"]:
        ends = [
            one
            for one in facts.rows["events"]
            if one["run"] == row["run"] and one["name"] == "ended"
        ]
        if len(ends) > 1:
            found.append(f"P4 run {row['run']} ended {len(ends)} times")
    return found


def _told(facts: Facts) -> list[str]:
    found = []
    text = facts.box.told_text()
    rows = facts.rows["outbox"]
    for run in facts.rows["runs"]:
        if run["outcome"] in (None, "proven"):
            continue
        mine = [row for row in rows if row["run"] == run["run"]]
        if not mine and run["run"] not in text:
            found.append(f"P5 run {run['run']} was {run['outcome']}, and nobody was told")
    lost = [
        row
        for row in rows
        if row["sent_at"] is not None and _first_line(row) not in text and not facts.case.cut
    ]
    found += [f"P5 {row['key']} counts as sent and did not arrive" for row in lost]
    proven = [run for run in facts.rows["runs"] if run["outcome"] == "proven"] or 0 in facts.codes
    if facts.restarts and not proven and not text and not rows:
        found.append("P5 production was restarted, and nobody was told")
    return found


def _first_line(row: Json) -> str:
    body = json.loads(row["body"])
    return str(body.get("first_line") or body.get("text") or "").split("\n")[0]


def _safe_stop(facts: Facts) -> list[str]:
    """What stood and lived when production was first asked to end, unless a blow came just before."""
    if acts.expects(facts.case).refuses:
        stopped = facts.of("term", SERVICES)
        return ["P6 production was stopped although nobody guarded the run"] if stopped else []
    hit = None
    for line in facts.ledger:
        if line["what"] == "blow":
            hit = line
        if line["what"] in ("ended by others", "act") or (hit and hit["who"] == "run"):
            return []
        if line["what"] == "term" and line["role"] in SERVICES:
            if hit and line["at"] - hit["at"] < JUST_BEFORE:
                return []
            missing = [
                name
                for name, there in (("recipe", line["recipe"]), ("guardian", line["guardians"]))
                if not there
            ]
            return [f"P6 production was stopped without a {name}" for name in missing]
    return []


def _idempotent(facts: Facts) -> list[str]:
    mark = facts.of("again")
    if not mark:
        return []
    started = [line for line in facts.of("start", SERVICES) if line["at"] > mark[0]["at"]]
    found = ["P7 a second recovery restarted production"] if started else []
    asked = [line for line in facts.of("term", SERVICES) if line["pid"] not in facts.before]
    if asked and not facts.case.act and not facts.case.crowd:
        found.append("P7 a production that was back was ended again")
    if mark[0]["outbox"] != len(facts.rows["outbox"]):
        found.append("P7 a second recovery told again")
    return found


def _how_it_ended(facts: Facts) -> list[str]:
    """A run that nobody hit is proven; a fault of ours is none of the ways in which one may end."""
    known = {0, 3, 4, 5, 6, 10, 129, 130, 143, -9}
    if not facts.of("term", SERVICES):
        known.add(2)  # it could not even begin
    found = [f"a run ended with {code}" for code in facts.codes if code not in known]
    if not facts.of("blow") and not (facts.case.act or facts.case.inject or facts.case.crowd):
        wanted = 6 if "refuted" in facts.case.candidate else 0
        found += [f"an undisturbed run ended with {code}" for code in facts.codes if code != wanted]
    late = facts.reaction
    if (
        late is not None
        and late > REACTION
        and not acts.expects(facts.case).told
        and facts.case.layer != "frozen"
    ):
        found.append(f"the restore began {late:.1f} s after the kill")
    return found
