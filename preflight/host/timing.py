"""The clock, and whether the machine will be there until the run has ended."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import ClassVar, Literal

from preflight.box import Box, Text
from preflight.check import Check, Deadline, Explained
from preflight.files.paths import Trouble
from preflight.verdict import BlastRadius, State, Verdict
from preflight.wording import when

_KEPT_WITHIN_MS = 16_000
"""timedated(8) calls a clock synchronised while the kernel's largest error is below this."""
_SCHEDULED = "/run/systemd/shutdown/scheduled"
_NOLOGIN = "/run/nologin"
_SUPPLIES = tuple(
    f"/sys/class/power_supply/{name}/{what}"
    for name in ("AC", "ADP0", "ADP1", "ACAD", "BAT0", "BAT1")
    for what in ("online", "status")
)
_MOVES = ("poweroff", "halt", "reboot", "kexec", "soft-reboot")
_ORDER = (State.FAIL, State.UNKNOWN, State.WARN)


class ClockKept(Check):
    """The clock is kept by somebody: schedules and times told to people rest on it."""

    id: ClassVar[str] = "self.clock"
    radius: ClassVar[BlastRadius] = BlastRadius.SELF
    explains: ClassVar[tuple[Explained, ...]] = (
        Explained(
            "self.clock",
            reads="what the kernel was told of its clock's largest error: adjtimex(2)",
            passes="somebody keeps the clock; the error is below 16 s",
            warns="nobody keeps it: a schedule may fire early or late",
            unknown="the kernel does not tell",
            remedies=("timedatectl set-ntp true, or start chrony",),
        ),
    )

    kind: Literal["clock"] = "clock"

    @property
    def subject(self) -> str:
        """The one there is."""
        return "the clock"

    def look(self, box: Box) -> Verdict:
        """The same question that timedatectl answers, without asking it."""
        fact, wanted = box.clock(within=self.deadline_s), "a clock that somebody keeps"
        if fact.fault:
            found = f"the kernel does not tell how good it is: {fact.said}"
            return self.says(State.UNKNOWN, found, wanted=wanted, remedy="try: timedatectl")
        if fact.error_ms >= _KEPT_WITHIN_MS:
            found = "nobody keeps it: it is not synchronised"
            remedy = "timedatectl set-ntp true, or start chrony"
            return self.says(State.WARN, found, wanted=wanted, remedy=remedy)
        return self.says(State.PASS, f"kept to within {fact.error_ms:.0f} ms", wanted=wanted)


class StaysUp(Check):
    """The machine goes on until the run has ended: no shutdown is scheduled, and it has power."""

    id: ClassVar[str] = "host.shutdown"
    radius: ClassVar[BlastRadius] = BlastRadius.HOST
    explains: ClassVar[tuple[Explained, ...]] = (
        Explained(
            "host.shutdown",
            reads=f"{_SCHEDULED}, {_NOLOGIN} and /sys/class/power_supply",
            passes="no shutdown is scheduled, and it does not run on a battery",
            warns="a shutdown is scheduled for later than the run can last; it runs on a battery",
            fails="a shutdown is scheduled before the run must have ended",
            unknown="a shutdown is scheduled, and when cannot be read",
            remedies=("shutdown -c, or run it after the reboot",),
        ),
    )

    kind: Literal["stays_up"] = "stays_up"
    for_s: float = 0.0
    """How long the run may take, in seconds from now."""

    @property
    def subject(self) -> str:
        """This machine."""
        return "this machine"

    def look(self, box: Box) -> Verdict:
        """What systemd was told, and where the power comes from."""
        limit = Deadline(self.deadline_s)
        texts = box.texts([_SCHEDULED, _NOLOGIN, *_SUPPLIES], within=limit.left())
        scheduled, nologin, *supplies = texts
        troubles = [*self._shutdown(scheduled, nologin), *_battery(supplies)]
        wanted = "up until the run has ended"
        if not troubles:
            return self.says(State.PASS, "no shutdown is scheduled", wanted=wanted)
        state, found, remedy = min(troubles, key=lambda trouble: _ORDER.index(trouble.state))
        return self.says(state, found, wanted=wanted, remedy=remedy)

    def _shutdown(self, scheduled: Text, nologin: Text) -> Iterator[Trouble]:
        remedy = "shutdown -c, or run it afterwards"
        if scheduled.absent:
            if not nologin.fault:
                found = "it lets nobody log in any more (/run/nologin): it is about to go down"
                yield Trouble(State.FAIL, found, "wait until it is up again")
            return
        said = dict(line.partition("=")[::2] for line in scheduled.text.splitlines())
        mode, usec = said.get("MODE", "shutdown"), said.get("USEC", "")
        if mode not in _MOVES and not scheduled.fault:
            return  # a dry run
        if scheduled.fault or not usec.isdigit():
            why = scheduled.said or "it names no time"
            yield Trouble(
                State.UNKNOWN, f"a shutdown is scheduled, but when is not told: {why}", remedy
            )
            return
        at = int(usec) / 1e6
        if at <= time.time() + self.for_s:
            found = f"{mode} is scheduled for {when(at)}, before this run must have ended"
            yield Trouble(State.FAIL, found, remedy)
        else:
            yield Trouble(State.WARN, f"{mode} is scheduled for {when(at)}", remedy)


def _battery(supplies: list[Text]) -> Iterator[Trouble]:
    online = [text.text.strip() for text in supplies if text.path.endswith("online")]
    draining = any(text.text.strip() == "Discharging" for text in supplies)
    if draining and "1" not in online:
        yield Trouble(State.WARN, "it runs on its battery", "plug it in")
