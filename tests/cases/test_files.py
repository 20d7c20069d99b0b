"""Faults of files: a pattern with two matches, a shard that is gone, a page instead of a model."""

from pathlib import Path
from time import monotonic

import pytest

from preflight.linux import proc
from runner.demo import models
from tests.e2e.night import Night, Ran


def untouched(night: Night, before: proc.Ident | None, ran: Ran) -> None:
    """Refused by preflight: production is the same process, nothing was started, one alert."""
    assert ran.code == 3, str(ran)
    assert before is not None
    assert proc.ident(night.serving()) == before
    assert ran.json["production"]["stopped_at"] is None
    assert night.candidates() == []
    assert night.told().count("REFUSED") == 1


@pytest.mark.parametrize("whose", ["job", "production"])
def test_a_pattern_with_two_matches_is_refused_before_anything_is_looked_at(
    serving: Night, tmp_path: Path, whose: str
) -> None:
    """The weights and their projector lie in one folder: neither is picked, and nobody waits."""
    folder = tmp_path / "models"
    folder.mkdir()
    for name in ("prod-q4.gguf", "mmproj-prod-f16.gguf"):
        (folder / name).write_bytes(serving.model.read_bytes())
    pattern = f"{folder}/*.gguf"
    before = proc.ident(serving.serving())
    if whose == "job":
        serving.job(candidate={"model": pattern})
    else:
        serving.settings["production"][0]["model"] = pattern
        serving.write()
    began = monotonic()
    ran = serving.call("run", "night")
    assert monotonic() - began < 5
    assert ran.code == 2, str(ran)
    for word in ("model", "`*` is a glob", "mmproj-prod-f16.gguf", "prod-q4.gguf"):
        assert word in ran.err
    assert proc.ident(serving.serving()) == before
    assert serving.candidates() == []


def test_a_set_that_was_merged_fails_by_the_name_that_is_configured(
    serving: Night, tmp_path: Path
) -> None:
    """Part two is gone; then all three are, and one file is there that nobody has named."""
    parts = models.write("mtp", tmp_path / "big.gguf", shards=3)
    serving.job(candidate={"model": str(parts[0])})
    before = proc.ident(serving.serving())
    parts[1].unlink()
    ran = serving.run()
    untouched(serving, before, ran)
    assert f"missing: {parts[1].name}" in str(ran.check("file.shards", "fail"))
    assert str(parts[1]) in str(ran.check("file.shards", "fail"))
    for part in (parts[0], parts[2]):
        part.unlink()
    (merged,) = models.write("mtp", tmp_path / "big.gguf")
    ran = serving.run()
    assert ran.code == 3, str(ran)
    (verdict,) = ran.check("file.shards", "fail")
    assert str(parts[0]) in verdict["subject"]
    assert any(f"beside it now: {merged.name}" in said for said in verdict["evidence"])
    assert proc.ident(serving.serving()) == before
    assert str(merged) not in str(ran.json["artifacts"])


@pytest.mark.parametrize(
    ("content", "check", "said"),
    [
        (b"<!DOCTYPE html><html>Moved</html>", "file.gguf", "is a web page"),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 4920734272\n",
            "file.gguf",
            "is a Git LFS pointer",
        ),
        (b"", "file.exists", "is empty (0 bytes)"),
    ],
)
def test_a_file_that_only_looks_like_a_model_is_told_for_what_it_is(
    serving: Night, content: bytes, check: str, said: str
) -> None:
    """The name and the path are right; loading would have failed after production was stopped."""
    before = proc.ident(serving.serving())
    serving.model.write_bytes(content)
    ran = serving.run()
    untouched(serving, before, ran)
    (verdict,) = [one for one in ran.check(check, "fail") if str(serving.model) in one["subject"]]
    assert said in verdict["found"]
    assert said in serving.told()


def test_a_bare_header_is_whole_and_said_to_be_one(serving: Night) -> None:
    """It is no broken file; that it says nothing of what it is stands in every report."""
    serving.model.write_bytes(b"GGUF" + (3).to_bytes(4, "little") + bytes(16))
    ran = serving.call("check", "night", "--json")
    assert ran.code == 0, str(ran)
    assert ran.check("file.gguf") == []
    (role,) = ran.check("file.role", "warn")
    assert "is a bare header: it holds no tensors and says nothing" in role["found"]
