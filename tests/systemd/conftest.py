"""One box for all tests of a real systemd; booted only where these are asked for."""

import os
from collections.abc import Iterator

import pytest

from tests.systemd.box import Box
from tests.systemd.machine import cannot


@pytest.fixture(scope="session")
def installed() -> Iterator[Box]:
    """The box, installed once."""
    if why := cannot():
        pytest.exit(f"no systemd can be booted here: {why}", returncode=1)
    machine = Box(unified=os.environ.get("RUNNER_TEST_CGROUPS", "v2") == "v2")
    try:
        machine.install()
        yield machine
    finally:
        machine.close()


@pytest.fixture
def box(installed: Box) -> Box:
    """The box with production up, the daemon there, and nothing owed."""
    installed.paid()
    installed.serving()
    installed.until(lambda: installed.show("runner.service", "ActiveState") == "active")
    return installed
