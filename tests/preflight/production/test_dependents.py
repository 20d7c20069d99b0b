"""What goes down with production and would stay down."""

from typing import Any

import pytest

from preflight.box import Unit
from preflight.production.dependents import Dependents
from preflight.rings import look
from preflight.verdict import State, Verdict
from tests.fakes import FakeBox
from tests.fakes_host import a_unit

WEBUI = "open-webui.service"


def ask(box: FakeBox, kind: str = "systemd", **more: Any) -> Verdict:
    """The answer about one service."""
    recipe = {"name": "llm", "supervisor": {"kind": kind, "unit": "llama.service"}}
    return look([Dependents(recipe=recipe, **more)], box).verdicts[0]


@pytest.mark.parametrize("key", ["RequiredBy", "BoundBy", "ConsistsOf", "RequisiteOf"])
def test_a_unit_that_would_stay_down_refuses(key: str) -> None:
    """systemd stops it along with production, and nobody would start it again."""
    box = FakeBox().has_units(a_unit(**{key: WEBUI}), Unit(WEBUI, {"ActiveState": "active"}))
    verdict = ask(box)
    assert verdict.state is State.FAIL
    assert WEBUI in verdict.found
    assert f"Wants=llama.service instead of Requires= in {WEBUI}" in verdict.remedy


@pytest.mark.parametrize(
    ("service", "state"),
    [({}, "inactive"), ({"Wants": WEBUI}, "active"), ({"Requires": WEBUI}, "active")],
    ids=["down-anyhow", "wanted-back", "required-back"],
)
def test_what_comes_back_or_is_not_there_is_no_trouble(service: dict[str, str], state: str) -> None:
    """A start of production brings up what production wants."""
    box = FakeBox().has_units(
        a_unit(RequiredBy=WEBUI, **service), Unit(WEBUI, {"ActiveState": state})
    )
    assert ask(box).state is State.PASS


def test_another_service_of_production_is_started_by_the_run() -> None:
    """In its turn."""
    box = FakeBox().has_units(a_unit(RequiredBy=WEBUI), Unit(WEBUI, {"ActiveState": "active"}))
    assert ask(box, production=(WEBUI,)).state is State.PASS


def test_a_target_is_no_service() -> None:
    """It has no process; what belongs to it is looked at for itself."""
    box = FakeBox().has_units(
        a_unit(RequiredBy="graphical.target"), Unit("graphical.target", {"ActiveState": "active"})
    )
    assert ask(box).state is State.PASS


def test_a_manager_that_does_not_tell_is_unknown() -> None:
    """And blocks the stop."""
    box = FakeBox().has_units(Unit("llama.service", fault="EIO", said="no bus"))
    assert ask(box).state is State.UNKNOWN


def test_a_plain_process_takes_nothing_along() -> None:
    """Nothing but systemd knows such a tie."""
    assert ask(FakeBox(), kind="process").state is State.PASS
