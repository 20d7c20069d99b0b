"""`recovery.state` and the files beside it: whole or not there, on a bad disk too."""

import json
import os
from pathlib import Path

import pytest

from runner.recovery import files, recipe, state
from runner.recovery.state import StateFile
from tests.runner.recovery.site import Site

SLOT = 64 * 1024


def test_what_is_written_is_read_and_added_to(tmp_path: Path) -> None:
    """Each write keeps what was known."""
    memory = StateFile(tmp_path)
    memory.begin({"run": "r1", "phase": "armed"})
    memory.write(phase="stopping")
    assert state.read(tmp_path) == {"run": "r1", "phase": "stopping"}
    memory.close()
    again = StateFile(tmp_path)
    assert again.said == {"run": "r1", "phase": "stopping"}
    again.begin({"run": "r2"})
    assert state.read(tmp_path) == {"run": "r2"}
    again.close()


@pytest.mark.parametrize("torn", range(0, 40, 3))
def test_a_torn_write_leaves_the_one_before(tmp_path: Path, torn: int) -> None:
    """Power fails in the middle of a slot: the other slot is whole, and is never overwritten."""
    memory = StateFile(tmp_path)
    memory.begin({"phase": "armed"})
    memory.write(phase="stopping")
    memory.close()
    path = tmp_path / state.NAME
    raw = bytearray(path.read_bytes())
    for start in (0, SLOT):
        if b"stopping" in raw[start : start + 200]:
            raw[start + torn : start + torn + 8] = b"\xff" * 8
    path.write_bytes(raw)
    assert state.read(tmp_path) == {"phase": "armed"}
    after = StateFile(tmp_path)
    after.write(phase="restoring")
    after.close()
    assert state.read(tmp_path)["phase"] == "restoring"
    raw = bytearray(path.read_bytes())
    newest = 0 if b"restoring" in raw[:200] else SLOT
    raw[newest : newest + 8] = b"\0" * 8
    path.write_bytes(raw)
    assert state.read(tmp_path)["phase"] == "armed"


@pytest.mark.parametrize(
    "content", [b"", b"x", bytes(range(256)) * (SLOT // 128), b"\0" * SLOT * 2]
)
def test_a_state_file_of_nonsense_is_as_none(tmp_path: Path, content: bytes) -> None:
    """Best effort: recovery looks at the world first."""
    (tmp_path / state.NAME).write_bytes(content)
    assert state.read(tmp_path) == {}
    memory = StateFile(tmp_path)
    memory.begin({"run": "r1"})
    memory.close()
    assert state.read(tmp_path) == {"run": "r1"}


def test_a_family_of_many_workers_fits(tmp_path: Path) -> None:
    """An engine with hundreds of processes must not make the stop unrecordable."""
    memory = StateFile(tmp_path)
    who = {"boot": "e6a8bbfb-7ca1-4240-80cf-365274484413", "pid": 4194304, "start": 10**9}
    memory.begin({"services": {"llm": {"family": [who] * 400}}})
    assert len(state.read(tmp_path)["services"]["llm"]["family"]) == 400
    with pytest.raises(OSError, match="holds at most"):
        memory.write(family=[who] * 4000)
    assert not memory.note(family=[who] * 4000)
    memory.close()


def test_the_space_is_taken_before_it_is_needed(tmp_path: Path) -> None:
    """Rewriting allocated bytes works on a full disk."""
    memory = StateFile(tmp_path)
    blocks = os.stat(tmp_path / state.NAME).st_blocks
    memory.begin({"phase": "armed"})
    memory.close()
    assert blocks * 512 >= 2 * SLOT
    assert os.stat(tmp_path / state.NAME).st_mode & 0o777 == 0o600


def test_a_replaced_file_is_the_old_one_or_the_new(tmp_path: Path) -> None:
    """And nobody else may read it: a recipe holds production's environment."""
    path = tmp_path / "file"
    files.write_durably(path, b"old")
    files.write_durably(path, b"new")
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["file"]
    files.remove_durably(path)
    files.remove_durably(path)
    assert files.read_json(path) is None


def test_some_space_is_kept_back_for_the_telling(site: Site) -> None:
    """It is given back once."""
    site.leave(site.owed(site.recipe()))
    assert os.stat(site.state_dir / files.RESERVE).st_blocks * 512 >= 1 << 20
    assert not files.free_reserve(site.state_dir)  # the disk is not full
    assert (site.state_dir / files.RESERVE).exists()
    assert files.free_reserve(site.state_dir, sure=True)
    assert not files.free_reserve(site.state_dir)


def test_a_closed_debt_leaves_no_copy_of_itself(site: Site) -> None:
    """And the recipes that were seen serving are the last-known-good."""
    one = site.recipe()
    site.leave(site.owed(one))
    recipe.close(site.state_dir, [one])
    assert recipe.read(site.state_dir) is None
    assert not (site.state_dir / recipe.COPY).exists()
    assert recipe.last_good(site.state_dir) == {"llm": one}


def test_an_old_copy_is_never_taken_for_a_debt(site: Site) -> None:
    """Only the file itself opens one."""
    site.leave(site.owed(site.recipe()))
    (site.state_dir / recipe.NAME).unlink()
    assert recipe.read(site.state_dir) is None


def test_last_known_goods_that_cannot_be_read_are_none(site: Site) -> None:
    """Each recipe by itself."""
    one = site.recipe()
    recipe.remember(site.state_dir, [one])
    path = site.state_dir / recipe.LAST_GOOD
    known = files.read_json(path)
    assert known is not None
    files.write_durably(path, json.dumps(known | {"other": {}, "more": 3}).encode())
    assert list(recipe.last_good(site.state_dir)) == ["llm"]
    path.write_bytes(b"[]")
    assert recipe.last_good(site.state_dir) == {}
