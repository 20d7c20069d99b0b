"""The candidate's time on the box: what it says is kept as it comes."""

import json
from pathlib import Path

from jobs.evidence import Evidence
from runner.measure import Measured


def test_half_a_character_of_a_server_is_kept_as_json(tmp_path: Path) -> None:
    """It once ended the run as a bug, with production down."""
    measured = Measured()
    measured.record(tmp_path, [Evidence("log.fatal", "log", "half \ud83d")])
    (line,) = (tmp_path / "evidence.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(line)["said"] == "half \ud83d"
    assert [one.said for one in measured.evidence] == ["half \ud83d"]
