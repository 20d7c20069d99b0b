"""Telling on the box: file, terminal, command."""

import json
import os
import pty
import resource
import sys
import threading
import time
from pathlib import Path

import pytest

from alerts import plain
from alerts.channel import DeliveryError
from alerts.command import Command
from alerts.local import File, Terminal
from alerts.message import Alert

ALERT = Alert(
    key="run-1:refused",
    first_line="SERVING, never touched",
    text="draft.gguf is gone",
    at="2026-01-01T00:00:00+00:00",
    kind="refused",
)


def test_a_file_grows_by_a_block_of_text(tmp_path: Path) -> None:
    """Each alert is appended whole, with its time, and nothing before it is touched."""
    path = tmp_path / "alerts.txt"
    channel = File(path=str(path))
    assert channel.deliver(ALERT) == f"written to {path}"
    channel.deliver(ALERT)
    block = "2026-01-01T00:00:00+00:00\nSERVING, never touched\ndraft.gguf is gone\n\n"
    assert path.read_text() == block * 2


def test_a_file_can_hold_a_line_of_json_an_alert(tmp_path: Path) -> None:
    """For programs: one object a line, with the key and the kind."""
    path = tmp_path / "alerts.jsonl"
    File(path=str(path), format="json").deliver(ALERT)
    (line,) = path.read_text().splitlines()
    assert json.loads(line) == {
        "at": ALERT.at,
        "key": "run-1:refused",
        "kind": "refused",
        "text": "SERVING, never touched\ndraft.gguf is gone",
    }


def test_a_full_disk_is_a_failed_delivery() -> None:
    """What could not be written is not told."""
    with pytest.raises(DeliveryError, match="/dev/full: No space left on device"):
        File(path="/dev/full").deliver(ALERT)


def test_a_file_that_cannot_be_opened_says_why(tmp_path: Path) -> None:
    """A missing directory is named, and so is a directory in the place of the file."""
    with pytest.raises(DeliveryError, match="No such file or directory"):
        File(path=str(tmp_path / "no" / "alerts.txt")).deliver(ALERT)
    with pytest.raises(DeliveryError, match="Is a directory"):
        File(path=str(tmp_path)).deliver(ALERT)


def test_a_queue_without_a_reader_does_not_hang(tmp_path: Path) -> None:
    """Opening such a queue would wait for ever."""
    path = tmp_path / "queue"
    os.mkfifo(path)
    with pytest.raises(DeliveryError, match="No such device"):
        File(path=str(path)).deliver(ALERT)


def test_recovery_appends_in_the_same_way(tmp_path: Path) -> None:
    """The spec of a file channel is enough for the standard library."""
    path = tmp_path / "alerts.txt"
    (channel,) = plain.channels([File(path=str(path), on=("refused",)).spec(), {"kind": "future"}])
    assert channel.on == ("refused",)
    assert not channel.far
    channel.deliver(ALERT, within=5)
    assert path.read_text().startswith("2026-01-01T00:00:00+00:00\nSERVING")


def test_an_unknown_kind_of_spec_is_refused() -> None:
    """A spec of a newer version is an error with a name, not a guess."""
    with pytest.raises(DeliveryError, match="no such kind of channel: pigeon"):
        plain.deliver({"kind": "pigeon"}, "text")


def test_the_terminal_shows_the_alert(monkeypatch: pytest.MonkeyPatch) -> None:
    """A person in front of the terminal reads it there, and JSON on standard output stays clean."""
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as screen:
        monkeypatch.setattr(sys, "stderr", screen)
        assert Terminal().deliver(ALERT) == "shown on the terminal"
        assert b"SERVING, never touched\r\ndraft.gguf" in os.read(ours, 1000)
    os.close(ours)


def test_no_terminal_is_no_delivery() -> None:
    """Under cron nobody looks at standard error."""
    with pytest.raises(DeliveryError, match="no terminal"):
        Terminal().deliver(ALERT)


def test_a_command_gets_the_text_and_what_it_is_about(tmp_path: Path) -> None:
    """The text on standard input, key and kind in the environment."""
    out = tmp_path / "out"
    script = f'{{ echo "$RUNNER_ALERT_KIND $RUNNER_ALERT_KEY"; cat; }} > {out}'
    channel = Command(command=("/bin/sh", "-c", script))
    assert channel.deliver(ALERT) == "/bin/sh took it"
    assert out.read_text() == "refused run-1:refused\nSERVING, never touched\ndraft.gguf is gone"


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "x" * 200_000])
def test_a_name_that_no_environment_can_carry_is_told(tmp_path: Path, name: str) -> None:
    """It is cleaned and cut as the text is: the alert goes out, and is not "an error of Popen"."""
    told = tmp_path / "told"
    channel = Command(
        command=("/bin/sh", "-c", f'cat > {told}; test -n "$RUNNER_ALERT_FIRST_LINE"')
    )
    alert = Alert(key=f"key {name}", first_line=f"{name} is gone", kind="broken")
    assert channel.deliver(alert) == "/bin/sh took it"
    assert told.stat().st_size > 0


def test_recovery_runs_the_same_command(tmp_path: Path) -> None:
    """A mailer may be the only way to a person, also in the night of a broken upgrade."""
    path = tmp_path / "mail"
    spec = Command(command=("/bin/sh", "-c", f"cat > {path}")).spec()
    (channel,) = plain.channels([spec])
    assert channel.far
    assert channel.deliver(ALERT, within=5) == "/bin/sh took it"
    assert path.read_text() == ALERT.sendable


def test_a_command_that_fails_has_not_delivered(capfd: pytest.CaptureFixture[str]) -> None:
    """The exit code is told, its output is not: it may hold a password."""
    script = "echo password >&2; exit 3"
    with pytest.raises(DeliveryError, match="/bin/sh: exit code 3") as caught:
        Command(command=("/bin/sh", "-c", script)).deliver(ALERT)
    assert not caught.value.permanent
    assert "password" not in "".join(capfd.readouterr())


def test_a_command_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    """After its time the whole group is gone: the queue that its child held open is free."""
    path = tmp_path / "held"
    os.mkfifo(path)
    ended = threading.Event()

    def wait_for_the_end() -> None:
        path.read_bytes()
        ended.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    began = time.monotonic()
    with pytest.raises(DeliveryError, match=r"not done within 0\.3 s"):
        Command(command=("/bin/sh", "-c", f"sleep 60 > {path} & wait")).deliver(ALERT, within=0.3)
    assert time.monotonic() - began < 5
    assert ended.wait(5)


def test_a_command_that_is_not_there_is_named() -> None:
    """A missing program is for a person to mend."""
    with pytest.raises(DeliveryError, match="/no/such/mailer: No such file") as caught:
        Command(command=("/no/such/mailer",)).deliver(ALERT)
    assert caught.value.permanent


def test_half_an_alert_is_none(tmp_path: Path) -> None:
    """A disk that fills up within a line: nothing of it stays, or it would spoil the next one."""
    path = tmp_path / "alerts"
    File(path=str(path), format="json").deliver(ALERT)
    before = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 20, hard))
    try:
        with pytest.raises(DeliveryError, match="written in part, the disk is full"):
            File(path=str(path), format="json").deliver(ALERT)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == before
