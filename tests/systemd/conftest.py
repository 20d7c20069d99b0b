"""One box for all tests of a real systemd.

One of these tests is in every `make test`, where it is skipped aloud when no systemd can be booted.
Where they are asked for by name, that is a failure: a test that silently does nothing proves nothing.
"""

import os
import subprocess
from collections.abc import Iterator
from typing import NoReturn

import pytest

from runner.until import TimedOut
from tests.systemd.box import Box
from tests.systemd.machine import cannot


@pytest.fixture(scope="session")
def installed() -> Iterator[Box]:
    """The box, installed once."""
    asked_for = bool(os.environ.get("RUNNER_TEST_SYSTEMD"))
    if why := cannot():
        _not_here(why, asked_for=asked_for)
    machine = Box(unified=os.environ.get("RUNNER_TEST_CGROUPS", "v2") == "v2")
    try:
        try:
            machine.install()
        except (AssertionError, OSError, subprocess.SubprocessError, TimedOut) as error:
            if asked_for:
                raise
            _not_here(str(error)[-300:], asked_for=False)
        yield machine
    finally:
        machine.close()


def _not_here(why: str, *, asked_for: bool) -> NoReturn:
    said = f"no systemd can be booted here: {why}"
    if asked_for:
        pytest.exit(said, returncode=1)
    pytest.skip(said)


@pytest.fixture
def box(installed: Box) -> Box:
    """The box with production up, the daemon there, and nothing owed."""
    installed.paid()
    installed.serving()
    installed.until(lambda: installed.show("runner.service", "ActiveState") == "active")
    return installed
