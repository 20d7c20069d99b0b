"""Starts runs and learns what became of them: a unit of its own under systemd, else a child.

The daemon may end at any moment; a run it has started does not notice. It must not know when.
"""

from dataclasses import dataclass, replace
from typing import Any

from runner.outcome import Outcome
from runner.recovery import unit
from runner.schedule.children import Children, Done
from runner.schedule.ledger import Ledger
from runner.schedule.slots import Slot, State
from runner.words import clock, duration

UNIT = "runner-run@{job}.service"
BEGIN_WITHIN_S = 120.0
_FOR_EVER_S = 7 * 24 * 3600.0

LATE = " late: "
"""Stands in the reason of a slot whose run began late by nobody's decision."""

Json = dict[str, Any]


def under_systemd() -> bool:
    """Whether runs are started as units: systemd is here, and the template is installed."""
    return unit.loaded(UNIT.format(job="x"))


@dataclass(frozen=True, slots=True)
class Ended:
    """A slot whose run is over: how the slot stands now, and the run's result where there is one."""

    slot: Slot
    result: Json | None


class Firing:
    """The runs that slots were started for."""

    def __init__(self, ledger: Ledger, children: Children, *, units: bool) -> None:
        self._ledger, self._children, self._units = ledger, children, units

    def start(self, slot: Slot, now: float) -> Slot:
        """Start the run of a slot, written down first so that the run finds the slot it is for."""
        starting = replace(slot, state=State.STARTING, changed=now)
        if not self._ledger.move(starting):
            return slot  # somebody else decided it
        why = self._ask(slot)
        if why is None:
            return starting
        failed = replace(starting, state=State.REFUSED, reason=f"the run cannot be started: {why}")
        self._ledger.move(failed)
        return failed

    def _ask(self, slot: Slot) -> str | None:
        if self._units:
            try:
                unit.start(UNIT.format(job=slot.job), block=False)
            except unit.Refused as refused:
                return f"systemctl start {UNIT.format(job=slot.job)}: {refused}"
            return None
        # a run that a person asked for is still the run of its slot
        trigger = "planned" if slot.trigger == "manual" else slot.trigger
        words = ["run", slot.job, "--trigger", trigger, "--json"]
        return self._children.start(f"run-{slot.job}", words, within=_FOR_EVER_S)

    def ended(self, now: float) -> list[Ended]:
        """The slots whose run has ended since the last look. A refused one may be tried again."""
        done = self._children.ended()
        found: list[Ended] = []
        for slot in self._ledger.open():
            if slot.state is State.RUNNING:
                result = self._ledger.journal.run(slot.run or "")
                if result and result.get("outcome"):
                    found.append(Ended(over(slot, result, now), result))
            elif slot.state is State.STARTING:
                why = _did_not_begin(done.get(f"run-{slot.job}"), now - slot.changed)
                if why:
                    failed = replace(slot, state=State.REFUSED, reason=why, changed=now)
                    found.append(Ended(failed, None))
        return found

    def fds(self) -> list[int]:
        """Descriptors that have news when a run ends."""
        return list(self._children.fds())


def _did_not_begin(done: Done | None, waited: float) -> str:
    """Why a run that was started is not there; empty while it may still come."""
    if done is not None:
        return f"the run did not begin: {done.error}"
    if waited > BEGIN_WITHIN_S:
        return f"the run did not begin within {duration(BEGIN_WITHIN_S)}"
    return ""


def over(slot: Slot, result: Json, now: float) -> Slot:
    """How a slot stands when its run is over, by the run's result."""
    outcome = str(result["outcome"])
    why = str(result.get("why") or "")
    if outcome == Outcome.REFUSED:
        return replace(slot, state=State.REFUSED, reason=refusals(result) or why, changed=now)
    if outcome == Outcome.SKIPPED:
        state = State.DRAINED if "drained" in why else State.BUSY
        return replace(slot, state=state, reason=why, changed=now)
    began = f"ran at {clock(result.get('started'))}: {outcome}"
    state = State.LATE if slot.trigger == "catch-up" or LATE in slot.reason else State.RAN
    return replace(
        slot, state=state, reason=", ".join(filter(None, (began, slot.reason))), changed=now
    )


def refusals(result: Json) -> str:
    """The checks that refused, as a run or a look tells them."""
    bad = [
        f"{check['id']}: {check['subject']} — {check['found']}"
        for check in result.get("checks") or []
        if check["state"] == "fail" or (check["state"] == "unknown" and not _accepted(check))
    ]
    return "; ".join(bad)


def is_traffic(result: Json) -> bool:
    """Whether nothing but requests in flight kept a run from beginning."""
    bad = {str(one["id"]) for one in result.get("checks") or [] if one["state"] == "fail"}
    return bad == {"prod.busy"}


def _accepted(check: Json) -> bool:
    return any(str(line).startswith("accepted: ") for line in check.get("evidence") or [])
