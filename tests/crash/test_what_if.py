"""docs/how-to/what-if.md names a test for each answer, and each of them is there."""

import re
from pathlib import Path

import pytest

from tests.crash.choose import MAKERS

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "how-to" / "what-if.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", TEXT)))
LAYERS = sorted(set(re.findall(r"`crash: (\w+)`", TEXT)))


@pytest.mark.parametrize(("file", "test"), NAMED, ids="::".join)
def test_a_test_that_is_named_is_there(file: str, test: str) -> None:
    """An answer without its test would be a promise like any other."""
    path = ROOT / file
    assert path.exists()
    assert not test or f"def {test}(" in path.read_text()


def test_every_layer_that_is_named_is_played() -> None:
    """And the other way round: each layer shows something that the page tells."""
    assert {*LAYERS} == {*MAKERS}


def test_every_row_names_a_test() -> None:
    """No row says only what ought to happen."""
    rows = [line for line in TEXT.splitlines() if line.startswith("| ") and "What if" not in line]
    assert rows
    assert [row for row in rows if "`tests/" not in row and "`crash: " not in row] == []
