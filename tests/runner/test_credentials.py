"""Credentials of the units, lent to a verb that root runs by hand."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from runner import credentials

ASK = """\
import json, os, sys
from pathlib import Path
from runner import who
from runner.recovery import sight, world
who.become_owner(Path(sys.argv[1]), config=Path(sys.argv[2]), sight=sys.argv[3] == "sight")
room = Path(os.environ["CREDENTIALS_DIRECTORY"])
status = dict(line.split(":\\t", 1) for line in Path("/proc/self/status").read_text().splitlines())
child = world.spawn(["/bin/cat", "/proc/self/status"], environment={}, cwd="/",
                    log=Path(sys.argv[1]) / "child")
child.wait()
said = (Path(sys.argv[1]) / "child").read_text()
handed = dict(line.split(":\\t", 1) for line in said.splitlines())
print(json.dumps({"uid": os.getuid(), "token": (room / "token").read_text(),
                  "mode": oct(room.stat().st_mode), "room": str(room), "eff": status["CapEff"],
                  "handed": handed["CapEff"], "ambient": handed["CapAmb"]}))
"""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
NOBODY = 65534
SIGHT = f"{sum(1 << number for number in (2, 19, 34)):016x}"
NONE = f"{0:016x}"


def test_every_credential_of_the_configuration_is_found() -> None:
    """Tokens of channels and keys of servers, however deep."""
    said = {
        "alerts": {"channel": [{"token": {"credential": "telegram-token"}}]},
        "production": [{"api_key": {"credential": "llm-key"}}, {"credential": "x", "other": 1}],
    }
    assert sorted(credentials.named(said)) == ["llm-key", "telegram-token"]


@needs_root
@pytest.mark.parametrize(("how", "wanted"), [("blind", NONE), ("sight", SIGHT)])
def test_root_becomes_the_owner_and_takes_along_what_the_units_have(how: str, wanted: str) -> None:
    """The secrets, and for a look the sight; what is started from there is handed neither."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as room:
        said = _ask(Path(room), how)
    assert (said["uid"], said["token"], said["mode"]) == (NOBODY, "very-secret", "0o40700")
    assert (said["eff"], said["handed"], said["ambient"]) == (wanted, NONE, NONE)
    assert not Path(said["room"]).exists()


def _ask(room: Path, how: str) -> dict[str, Any]:
    """What a process sees that began as root and became nobody, in a room that nobody may reach."""
    state, config = room / "state", room / "etc" / "runner.toml"
    state.mkdir()
    config.parent.mkdir(mode=0o700)
    os.chown(state, NOBODY, NOBODY)
    room.chmod(0o755)
    config.write_text('[[alerts.channel]]\ntoken = { credential = "token" }\n')
    (config.parent / "token").write_text("very-secret")
    (config.parent / "token").chmod(0o600)
    ran = subprocess.run(
        [sys.executable, "-c", ASK, str(state), str(config), how],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        cwd=Path(__file__).parents[2],
    )
    said: dict[str, Any] = json.loads(ran.stdout)
    return said


def test_nobody_but_root_is_lent_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is a unit, which has its own."""
    monkeypatch.setenv(credentials.VARIABLE, "/run/credentials/x")
    credentials.lend(tmp_path / "runner.toml", 0, 0)
    assert os.environ[credentials.VARIABLE] == "/run/credentials/x"


@needs_root
@pytest.mark.parametrize(("before", "lent"), [("", True), ("/run/credentials/x", False)])
def test_what_systemd_has_given_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, *, lent: bool
) -> None:
    """A unit has its own; and a name with a slash in it is no name of a file beside the config."""
    (tmp_path / "etc").mkdir()
    secret = f"secret-{tmp_path.name}"  # of this test alone, also where the lent ones lie
    (tmp_path / secret).write_text("of somebody else")
    (tmp_path / "etc" / "token").write_text("very-secret")
    config = tmp_path / "etc" / "runner.toml"
    config.write_text('a = { credential = "token" }\nb = { credential = "../' + secret + '" }\n')
    monkeypatch.setenv(credentials.VARIABLE, before)
    credentials.lend(config, os.geteuid(), os.getegid())
    room = os.environ[credentials.VARIABLE]
    assert (room != before) is lent
    if lent:
        assert [file.name for file in Path(room).iterdir()] == ["token"]
        assert not (Path(room).parent / secret).exists()
