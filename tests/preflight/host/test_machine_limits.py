"""The checks of the machine when everything hangs, and when hardly anything may be seen."""

import json
import os
import time
from pathlib import Path

import pytest

from preflight.check import Check
from preflight.gpu.budget import GpuBudget
from preflight.gpu.driver import GpuDriver, GpuPending
from preflight.gpu.health import GpuHealthy
from preflight.gpu.identity import GpuIdentity
from preflight.host.limits import HostLimits
from preflight.host.others import OthersAtWork
from preflight.host.pressure import Quiet
from preflight.host.ram import HostRam
from preflight.host.timing import ClockKept, StaysUp
from preflight.linux import probe
from preflight.linux.box import LinuxBox
from preflight.ports.activation import Activation
from preflight.ports.containers import Published
from preflight.ports.leftover import Leftovers
from preflight.ports.owner import ExpectedOwner, PortOwner
from preflight.production.busy import Busy
from preflight.production.control import MayControl
from preflight.production.stoptime import StopTime
from preflight.rings import look
from preflight.verdict import State
from tests.preflight.unprivileged import look_as_nobody

SHORT_S = 0.4
RECIPE = {
    "name": "llm",
    "port": 1,
    "supervisor": {"kind": "systemd", "unit": "llama.service", "scope": "system"},
    "probe": {"base": "http://127.0.0.1:1", "identity": [{"path": "/props", "at": ["x"]}]},
    "identity": {"pid": os.getpid(), "uid": os.geteuid()},
}


def checks(**more: float) -> list[Check]:
    """Every check of the machine, each asked on its own."""
    llm = ExpectedOwner(name="llm", unit="llama.service")
    return [
        ClockKept(**more),
        PortOwner(port=1, expect=llm, **more),
        Published(port=1, **more),
        Leftovers(models=("/m/x.gguf",), **more),
        OthersAtWork(**more),
        Activation(recipe=RECIPE, **more),
        GpuDriver(asked=True, **more),
        GpuIdentity(gpus=(0,), asked=True, **more),
        GpuBudget(need_mib=1, asked=True, **more),
        GpuHealthy(**more),
        GpuPending(**more),
        HostRam(copied=("/m/x.gguf",), **more),
        HostLimits(locked=("/m/x.gguf",), **more),
        Quiet(**more),
        StaysUp(**more),
        MayControl(recipe=RECIPE, **more),
        StopTime(recipe=RECIPE, **more),
        Busy(recipe=RECIPE, waited=True, **more),
    ]


class Stuck(LinuxBox):
    """A machine on which no child of ours ever answers."""

    def __init__(self) -> None:
        super().__init__(reader="nvml")
        self._reader = probe.Helper(("/bin/sleep", "60"))
        self._nvml = probe.Helper(("/bin/sleep", "60"))


def test_when_everything_hangs_it_takes_no_longer_than_all_deadlines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each child is given up in its time; nothing is waited for twice, and nothing is a pass of itself."""
    for name in ("systemctl", "modinfo", "journalctl", "squeue", "canhazgpu", "docker"):
        (tmp_path / name).write_text("#!/bin/sh\nexec sleep 60\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    asked = checks(deadline_s=SHORT_S)
    with Stuck() as box:
        began = time.monotonic()
        verdicts = [look([check], box).verdicts[0] for check in asked]
        took = time.monotonic() - began
    # what is left beside is the killing of children on a busy machine
    assert took < len(asked) * (SHORT_S + 0.6)
    wrong = [one.message() for one in verdicts if "fault of its own" in one.found]
    assert wrong == []
    states = {one.id: one.state for one in verdicts}
    for name in ("self.clock", "gpu.driver", "gpu.budget", "host.ram", "host.limits", "host.load"):
        assert states[name] is State.UNKNOWN, name
    for name in ("port.activation", "lock.others", "prod.permission", "prod.stoptime"):
        assert states[name] is State.UNKNOWN, name


LOOK = """
import json, sys
from preflight.linux.box import LinuxBox
from preflight.rings import AnyCheck, look
from pydantic import TypeAdapter
checks = [TypeAdapter(AnyCheck).validate_python(one) for one in json.loads(sys.argv[1])]
with LinuxBox() as box:
    print(json.dumps([look([check], box).verdicts[0].to_json() for check in checks]))
"""


def test_a_real_unprivileged_user_is_told_what_it_may_not_see() -> None:
    """No check fails by itself, and what is hidden from nobody is unknown or told to be so."""
    asked = [json.loads(check.model_dump_json()) for check in checks()]
    said = {one["id"]: one for one in look_as_nobody(LOOK, json.dumps(asked))}
    assert [one["message"] for one in said.values() if "fault of its own" in one["found"]] == []
    assert said["proc.leftover"]["state"] in ("pass", "unknown")
    assert said["host.load"]["state"] in ("pass", "warn")
    assert said["host.shutdown"]["state"] == "pass"
    assert said["self.clock"]["state"] in ("pass", "warn")
    assert said["lock.others"]["state"] in ("pass", "warn", "fail")
    # production's unit does not exist here, and nobody may not make it up
    assert said["prod.permission"]["state"] == "unknown"
    assert said["port.activation"]["state"] == "unknown"
