"""How long production was away, whatever was done to the clock meanwhile."""

from datetime import UTC, datetime, timedelta

import pytest

from preflight.linux import proc
from runner.recovery import account
from runner.recovery.account import Scale
from runner.recovery.attempt import Served
from tests.runner.recovery.site import Site

STOPPED = datetime(2026, 3, 1, 0, 30, tzinfo=UTC)


def known(boot: str) -> dict[str, object]:
    """What a stop notes, at second 1000 of its boot."""
    said = {"stopped": STOPPED.timestamp(), "stopped_moment": 1000.0, "boot": boot}
    return {"services": {"llm": said, "embed": {}}}


@pytest.mark.parametrize("hours", [-1, 0, 1])
def test_a_clock_that_is_set_while_production_is_down_lengthens_no_downtime(
    site: Site, hours: int
) -> None:
    """A time server comes back at night: half a minute stays half a minute."""
    scale = Scale(1030.0, STOPPED + timedelta(hours=hours, seconds=30))
    stops = account.stops(known(proc.boot_id()), scale)
    assert stops == {"llm": 1000.0, "embed": None}
    served = Served("llm", "serving", at=1030.0)
    said = account.service(site.recipe(), served, stopped=stops["llm"], scale=scale)
    assert said["downtime_s"] == 30.0
    assert account.down_for(account.production([said]), scale) == 30.0


def test_after_a_reboot_the_wall_clock_is_what_is_left() -> None:
    """Seconds of another boot mean nothing in this one."""
    scale = Scale(40.0, STOPPED + timedelta(seconds=300))
    assert account.stops(known("another boot"), scale)["llm"] == 40.0 - 300.0
