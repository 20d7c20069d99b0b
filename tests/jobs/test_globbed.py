"""A pattern is refused; which files it would match now is told, so that one of them can be named."""

from pathlib import Path

import pytest

from jobs.fields import shell_leftover
from jobs.globbed import matching


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The incident's folder: weights, and the projector that the pattern found as well."""
    for name in ("prod-q4.gguf", "mmproj-prod-f16.gguf", "notes.txt"):
        (tmp_path / name).write_bytes(b"GGUF")
    return tmp_path


def test_both_files_of_the_incident_are_named(folder: Path) -> None:
    """Case 01: the message names the pattern and what it matches."""
    said = shell_leftover(f"{folder}/*.gguf")
    assert said is not None
    assert said.startswith("`*` is a glob")
    assert said.endswith("(now mmproj-prod-f16.gguf, prod-q4.gguf)")


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("prod-q?.gguf", " (now prod-q4.gguf)"),
        ("prod-q[0-9].gguf", " (now prod-q4.gguf)"),
        ("prod-q[!0-9].gguf", ""),
        ("{prod,mmproj}*.gguf", " (now mmproj-prod-f16.gguf, prod-q4.gguf)"),
        ("prod-q4.gguf[", ""),
        ("[z-a]*", ""),
        ("none-*", ""),
        ("(*", ""),
    ],
)
def test_patterns_match_as_a_shell_would(folder: Path, pattern: str, found: str) -> None:
    """And one that is no pattern at all matches nothing."""
    assert matching(f"{folder}/{pattern}") == found


def test_one_match_is_a_pattern_still(folder: Path) -> None:
    """It may match two at midnight."""
    (folder / "mmproj-prod-f16.gguf").unlink()
    assert shell_leftover(f"{folder}/*.gguf") is not None


@pytest.mark.parametrize("path", ["/no/such/folder/*.gguf", "/m/*/x-*.gguf", "*.gguf", "m/*.gguf"])
def test_where_nothing_can_be_told_nothing_is(path: str) -> None:
    """Another folder, or none."""
    assert matching(path) == ""


def test_names_with_escape_codes_are_shown_escaped(tmp_path: Path) -> None:
    """A file name must not move a cursor."""
    (tmp_path / "a\x1b[2J.gguf").write_bytes(b"")
    assert matching(f"{tmp_path}/*.gguf").isprintable()
