"""Only what a run asked to stop is its to start again."""

import dataclasses

from preflight.linux import proc
from runner.recovery.recover import recover
from tests.runner.recovery.site import Site
from tests.servers import free_port

ASKED = {"llm": {"stop_asked": True, "stopped": 1.0}}


def test_a_service_that_was_never_asked_to_stop_is_not_started(site: Site) -> None:
    """The run died between two stops; whoever stopped the other one had a reason."""
    one = site.recipe()
    other = dataclasses.replace(one, name="embed", port=free_port())
    owed = site.owed(one, other)
    assert [each.name for each in owed.due(ASKED)] == ["llm"]


def test_where_nothing_is_known_of_any_stop_all_are_due(site: Site) -> None:
    """A state file that is lost must not keep production down."""
    owed = site.owed(site.recipe())
    assert owed.due({}) == owed.stopped


def test_a_reboot_does_not_make_a_debt_of_a_stop_that_was_never_asked(site: Site) -> None:
    """It was down for another reason when the box came up again."""
    site.leave(site.owed(site.recipe(), boot="another boot"), "armed")
    done = recover(site.state_dir, clock=site.clock)
    assert done.state == "closed"
    assert not proc.owners(site.port)


def test_a_box_without_production_owes_nothing_when_its_run_dies(site: Site) -> None:
    """The candidate is ended and the run told; there is nothing to bring back, or to call serving."""
    for phase in ("armed", "candidate"):
        run = f"{site.run}-{phase}"
        site.leave(site.owed(run=run), phase)
        done = recover(site.state_dir, clock=site.clock)
        assert done.state == "closed"
        assert not site.is_owed
    assert site.told() == ["NO PRODUCTION on this box · night INTERRUPTED"] * 2
