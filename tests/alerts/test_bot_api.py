"""The stand-in Bot API is a program too, for tests that start whole runs."""

import json
import subprocess
import sys
from pathlib import Path

from alerts.message import Alert
from alerts.telegram import Telegram
from tests.alerts import bot_api
from tests.alerts.conftest import CANARY


def test_the_stand_in_runs_as_a_program(tmp_path: Path, token_file: Path) -> None:
    """It prints its address and writes each request down, for a run that is a process of its own."""
    record = tmp_path / "requests.jsonl"
    command = [sys.executable, str(bot_api.__file__), "0", str(record)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().strip()
            channel = Telegram.model_validate(
                {"token": {"file": str(token_file)}, "chat_id": 1, "api_base": url}
            )
            assert channel.deliver(Alert(key="k", first_line="SERVING")) == "message 1"
        finally:
            server.terminate()
    (line,) = record.read_text().splitlines()
    assert json.loads(line)["data"]["text"] == "SERVING"
    assert json.loads(line)["token"] == CANARY
