"""The suite's own tools: a suite that cannot fail proves nothing."""

import random
from pathlib import Path

import pytest

from tests.crash import mutants, points
from tests.crash.cases import Blow, Case
from tests.crash.power import SECTOR, Disk, Op
from tests.crash.trap import Trap

NEVER_SYNCED = [
    Op("create", inode=0, path="/s/file"),
    Op("write", inode=0, offset=0, content=b"one"),
]
SYNCED = [*NEVER_SYNCED, Op("sync", inode=0), Op("syncdir", path="/s")]


def test_a_case_is_played_again_from_its_line() -> None:
    """The one-line reproduction says all of it."""
    case = Case(
        "pair",
        (
            Blow("run", "KILL", "line/runner/night.py/118#3"),
            Blow("guardian", "STOP", "point/a.b/enter#1"),
        ),
        candidate="setsid",
        home="none",
    )
    assert Case.parse(str(case)) == case


def test_a_line_that_says_nothing_is_refused() -> None:
    """A slip of the pen is not played as something else."""
    with pytest.raises(ValueError, match="neither"):
        Case.parse("pair run=KILL")


def test_what_was_not_synced_may_be_lost() -> None:
    """Neither its name nor its bytes."""
    assert Disk(NEVER_SYNCED, 2, None).files == {}


def test_what_was_synced_is_there() -> None:
    """Whatever the disk does with the rest."""
    for seed in range(20):
        found = Disk(
            [*SYNCED, Op("write", inode=0, offset=3, content=b"two")], 5, random.Random(seed)
        )
        assert bytes(found.files["/s/file"]).startswith(b"one")


def test_a_name_needs_a_sync_of_its_directory() -> None:
    """The bytes alone are durable, and nobody finds them."""
    assert Disk(SYNCED, 3, None).files == {}


def test_sectors_are_torn() -> None:
    """A long write may arrive in part, and in any part."""
    long = Op("write", inode=0, offset=0, content=b"x" * (8 * SECTOR))
    states = {
        bytes(Disk([SYNCED[0], long, SYNCED[3]], 3, random.Random(seed)).files["/s/file"])
        for seed in range(40)
    }
    assert any(0 < state.count(b"x") < 8 * SECTOR for state in states)


def test_a_rename_may_come_without_the_old_name_going_first() -> None:
    """A file that is replaced is the old one or the new one, and never none."""
    ops = [
        *SYNCED,
        Op("create", inode=1, path="/s/.file.new"),
        Op("write", inode=1, offset=0, content=b"two"),
        Op("sync", inode=1),
        Op("rename", inode=1, path="/s/.file.new", other="/s/file"),
    ]
    found = {bytes(Disk(ops, len(ops), random.Random(seed)).files["/s/file"]) for seed in range(20)}
    assert found == {b"one", b"two"}


@pytest.mark.parametrize("name", sorted({*points.TRANSITIONS, *points.RECOVERY}))
def test_a_named_step_is_there(name: str) -> None:
    """A function that was renamed must not take its crash point along."""
    trap = Trap(f"point/{name}/enter#1", "KILL", who="run", ledger="")
    assert trap.exists()


@pytest.mark.parametrize("mutant", mutants.MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_fits_the_code(mutant: mutants.Mutant, tmp_path: Path) -> None:
    """The text that it takes out is there, and what it leaves is Python."""
    target = tmp_path / mutant.file
    target.parent.mkdir(parents=True)
    target.write_text((mutants.ROOT / mutant.file).read_text())
    mutants.broken(mutant, tmp_path)
    compile(target.read_text(), mutant.file, "exec")
