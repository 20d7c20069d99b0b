"""On which line of a TOML file a key stands."""

from pathlib import Path

import pytest

from jobs.errors import ConfigError
from jobs.toml_lines import Document, Key, parse, read

TEXT = b"""# a comment
question = "x"
a.b."c d" = 3

[candidate]
set = { "--x" = "1" }
args = [
  "a", # ] no bracket
  \"\"\"two
  ]]] lines\"\"\",
]
port = 1

[[claim]]
kind = "a"
[[claim]]   # the second
kind = 'b # no comment'
[claim.sub]
x = 1
[[claim]]
kind = "c"
"""


@pytest.fixture
def document() -> Document:
    """The text above."""
    return parse(TEXT, file="f.toml")


@pytest.mark.parametrize(
    ("key", "line"),
    [
        (("question",), 2),
        (("a", "b", "c d"), 3),
        (("candidate",), 5),
        (("candidate", "set"), 6),
        (("candidate", "args"), 7),
        (("candidate", "port"), 12),
        (("claim", 0), 14),
        (("claim", 1, "kind"), 17),
        (("claim", 1, "sub", "x"), 19),
        (("claim", 2, "kind"), 21),
    ],
)
def test_each_key_has_its_line(document: Document, key: Key, line: int) -> None:
    """Headers, dotted keys, multi-line values and arrays of tables are told apart."""
    assert document.line(key) == line


def test_what_has_no_line_of_its_own_takes_that_of_what_holds_it(document: Document) -> None:
    """A key of an inline table, and a key that is missing."""
    assert document.line(("candidate", "set", "--x")) == 6
    assert document.line(("claim", 1, "missing")) == 16
    assert document.line(("nowhere",)) is None


def test_a_syntax_error_names_its_line() -> None:
    """tomllib knows the place; it is told as file:line."""
    with pytest.raises(ConfigError, match=r"f\.toml:2: is not TOML") as caught:
        parse(b"a = 1\nb = = 2\n[[[", file="f.toml")
    assert caught.value.problems[0].line == 2


def test_a_key_written_twice_is_told() -> None:
    """TOML forbids it; the person gets a line."""
    with pytest.raises(ConfigError, match=r"f\.toml:\d: is not TOML: Cannot overwrite"):
        parse(b"a = 1\na = 2\n", file="f.toml")


def test_bytes_that_are_no_text_are_told() -> None:
    """A binary file named by mistake."""
    with pytest.raises(ConfigError, match=r"f\.toml:2: is not UTF-8"):
        parse(b"a = 1\n\xff\xfe", file="f.toml")


def test_missing_and_strange_files_are_told(tmp_path: Path) -> None:
    """No file, a directory, and something far too large."""
    with pytest.raises(ConfigError, match="no such file"):
        read(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="is a directory"):
        read(tmp_path)
    (tmp_path / "large.toml").write_bytes(b"#" * (1 << 20 | 1))
    with pytest.raises(ConfigError, match="larger than 1 MiB"):
        read(tmp_path / "large.toml")
