"""The clock, and whether the machine will be there until the run has ended."""

import time

import pytest

from preflight.box import ClockFact
from preflight.host.timing import ClockKept, StaysUp
from preflight.linux.box import LinuxBox
from preflight.rings import look
from preflight.verdict import State, Verdict
from tests.fakes import FakeBox

SCHEDULED = "/run/systemd/shutdown/scheduled"


def shutdown(in_s: float, mode: str = "reboot") -> dict[str, str]:
    """What systemd writes down for a shutdown in so many seconds."""
    return {SCHEDULED: f"USEC={int((time.time() + in_s) * 1e6)}\nWARN_WALL=1\nMODE={mode}\n"}


def up(box: FakeBox, for_s: float = 3600) -> Verdict:
    """The answer for a run of so many seconds."""
    return look([StaysUp(for_s=for_s)], box).verdicts[0]


@pytest.mark.parametrize(
    ("fact", "state"),
    [
        (ClockFact(error_ms=12.0), State.PASS),
        (ClockFact(error_ms=16_000.0), State.WARN),
        (ClockFact(fault="EPERM", said="Operation not permitted"), State.UNKNOWN),
    ],
)
def test_a_clock_is_kept_or_it_is_said(fact: ClockFact, state: State) -> None:
    """By the rule of timedatectl: sixteen seconds."""
    assert look([ClockKept()], FakeBox(time=fact)).verdicts[0].state is state


def test_the_kernel_tells_how_good_its_clock_is() -> None:
    """adjtimex, without any daemon."""
    with LinuxBox() as box:
        assert look([ClockKept()], box).verdicts[0].state in (State.PASS, State.WARN)


def test_no_shutdown_is_a_pass() -> None:
    """Where there is no systemd, too."""
    assert up(FakeBox()).state is State.PASS


def test_a_shutdown_within_the_run_is_a_fail() -> None:
    """Production would come back only after it."""
    verdict = up(FakeBox(paper=shutdown(600)))
    assert verdict.state is State.FAIL
    assert "reboot is scheduled for" in verdict.found
    assert "before this run must have ended" in verdict.found


def test_a_shutdown_after_the_run_is_a_warning() -> None:
    """Enough time, and worth a word."""
    assert up(FakeBox(paper=shutdown(7200))).state is State.WARN


def test_a_dry_run_of_a_shutdown_is_none() -> None:
    """shutdown -k only warns people."""
    assert up(FakeBox(paper=shutdown(600, "dry-reboot"))).state is State.PASS


@pytest.mark.parametrize("text", ["MODE=reboot\n", "MODE=reboot\nUSEC=soon\n"])
def test_a_shutdown_without_a_time_is_unknown(text: str) -> None:
    """P8: it is scheduled, and nobody knows for when."""
    assert up(FakeBox(paper={SCHEDULED: text})).state is State.UNKNOWN
    assert up(FakeBox(torn={SCHEDULED: "EACCES"})).state is State.UNKNOWN


def test_a_machine_that_lets_nobody_in_is_about_to_go() -> None:
    """Five minutes before a shutdown."""
    assert up(FakeBox(paper={"/run/nologin": "The system is going down"})).state is State.FAIL


def test_a_battery_that_drains_is_a_warning() -> None:
    """A laptop, or the machine's UPS as the kernel sees it."""
    at = "/sys/class/power_supply"
    drains = {f"{at}/BAT0/status": "Discharging\n", f"{at}/AC/online": "0\n"}
    assert up(FakeBox(paper=drains)).state is State.WARN
    assert up(FakeBox(paper={**drains, f"{at}/AC/online": "1\n"})).state is State.PASS
