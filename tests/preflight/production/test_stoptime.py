"""The time that a stop may take, beside the time there is."""

from typing import Any

import pytest

from preflight.box import Unit
from preflight.production.stoptime import StopTime, timespan
from preflight.rings import look
from preflight.verdict import State, Verdict
from tests.fakes import FakeBox
from tests.fakes_host import a_unit

UNIT = {"kind": "systemd", "unit": "llama.service", "scope": "system"}


def ask(box: FakeBox, supervisor: dict[str, Any] | None = None, **more: Any) -> Verdict:
    """The answer about one service."""
    recipe = {"name": "llm", "supervisor": supervisor or UNIT}
    return look([StopTime(recipe=recipe, **more)], box).verdicts[0]


@pytest.mark.parametrize(
    ("timeout", "left", "slowest", "state", "said"),
    [
        ("20s", 600.0, None, State.PASS, "llama.service gives it up to 20 s"),
        ("1min 30s", 600.0, None, State.PASS, "90 s"),
        ("5min", 600.0, None, State.WARN, "300 s"),
        ("20s", 600.0, 18.0, State.WARN, "it took 18 s once"),
        ("1min 30s", 60.0, None, State.WARN, "60 s are there beside the way back"),
        ("1min 30s", 60.0, 70.0, State.FAIL, "it took 70 s once, and 60 s are there"),
        ("1min 30s", -5.0, None, State.FAIL, "0 s are there"),
        ("1min 30s", None, None, State.PASS, ""),
        ("infinity", 600.0, None, State.FAIL, "what hangs is never ended"),
        ("", 600.0, None, State.UNKNOWN, "no TimeoutStopUSec"),
    ],
)
def test_a_unit_grants_its_stop_a_time(
    timeout: str, left: float | None, slowest: float | None, state: State, said: str
) -> None:
    """Our deadline follows it, so the night has to be long enough for it."""
    box = FakeBox().has_units(a_unit(TimeoutStopUSec=timeout))
    verdict = ask(box, left_s=left, slowest_s=slowest)
    assert verdict.state is state, verdict.message()
    assert said in verdict.found


@pytest.mark.parametrize(("kind", "longest"), [("process", 25), ("command", 60)])
def test_the_other_supervisors_have_a_time_of_their_own(kind: str, longest: int) -> None:
    """TERM, TERM and KILL; or the user's own command."""
    assert ask(FakeBox(), {"kind": kind}, left_s=longest + 1.0).state is State.PASS
    assert ask(FakeBox(), {"kind": kind}, left_s=float(longest)).state is State.WARN


def test_a_systemd_that_does_not_tell_is_unknown_for_good() -> None:
    """Nobody may wave it through."""
    box = FakeBox().has_units(Unit("llama.service", fault="EIO", said="no bus"))
    assert ask(box).state is State.UNKNOWN
    assert not StopTime(recipe={"supervisor": UNIT}).acceptable


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1min 30s", 90),
        ("500ms", 0.5),
        ("1h 2min", 3720),
        ("2d", 172_800),
        ("infinity", None),
        ("", None),
        ("5 parsecs", None),
        ("1.2.3s", None),
    ],
)
def test_times_as_systemd_writes_them(text: str, seconds: float | None) -> None:
    """What is no time is none."""
    assert timespan(text) == seconds
