"""Split models: every file of the set, whole, and of this set."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from preflight.box import TIMEOUT, FileFact, GgufFact
from preflight.linux.box import LinuxBox
from preflight.models.shards import Shards
from preflight.rings import look
from preflight.verdict import State, Verdict
from tests.fakes import FakeBox, a_file, a_model
from tests.preflight.ggufs import gguf, write_shards
from tests.preflight.unprivileged import look_as_nobody


@pytest.fixture(scope="module")
def box() -> Iterator[LinuxBox]:
    """This machine."""
    with LinuxBox() as here:
        yield here


def shards(box: FakeBox | LinuxBox, path: str | Path) -> Verdict:
    """The answer about one set of shards."""
    return look([Shards(path=str(path))], box).verdicts[0]


def test_all_shards_of_a_set_are_wanted(box: LinuxBox, tmp_path: Path) -> None:
    """The first one is given, and every other follows from its name."""
    first, *_ = write_shards(tmp_path, "big", 3)
    verdict = shards(box, first)
    assert verdict.state is State.PASS
    assert "all 3 are there" in verdict.found


def test_a_missing_shard_is_named(box: LinuxBox, tmp_path: Path) -> None:
    """Case: part one exists, so a plain test of existence would pass."""
    first, second, _ = write_shards(tmp_path, "big", 3)
    second.unlink()
    verdict = shards(box, first)
    assert verdict.state is State.FAIL
    assert "1 of 3 is missing: big-00002-of-00003.gguf" in verdict.found
    assert any(str(second) in said for said in verdict.evidence)


def test_shards_that_were_merged_are_a_hint_only(box: LinuxBox, tmp_path: Path) -> None:
    """The incident: 33 shards became one file, which is not what the job names."""
    for path in write_shards(tmp_path, "big", 33):
        path.unlink()
    (tmp_path / "big.gguf").write_bytes(gguf())
    verdict = shards(box, tmp_path / "big-00001-of-00033.gguf")
    assert verdict.state is State.FAIL
    assert "33 of 33 are missing" in verdict.found
    assert any("beside it now: big.gguf" in said for said in verdict.evidence)


def test_what_could_be_taken_for_the_set_is_a_warning(box: LinuxBox, tmp_path: Path) -> None:
    """A merged file or shards of another count beside it: told, and never taken."""
    first, *_ = write_shards(tmp_path, "big", 3)
    (tmp_path / "bigger.gguf").write_bytes(gguf())
    write_shards(tmp_path, "mmproj", 2)
    assert shards(box, first).state is State.PASS
    (tmp_path / "big.gguf").write_bytes(gguf())
    write_shards(tmp_path, "big", 2)
    verdict = shards(box, first)
    assert verdict.state is State.WARN
    assert "all 3 are there" in verdict.found
    assert "beside them lies " in verdict.found
    assert {"big.gguf", "a set of 2"} == set(verdict.found.split(" lies ")[1].split(", "))


def test_another_shard_than_the_first_is_refused(box: LinuxBox, tmp_path: Path) -> None:
    """The server would refuse it too, after production was stopped."""
    first, second, _ = write_shards(tmp_path, "big", 3)
    verdict = shards(box, second)
    assert verdict.state is State.FAIL
    assert str(first) in verdict.remedy


def test_a_renamed_shard_is_recognised(box: LinuxBox, tmp_path: Path) -> None:
    """Under another name the server cannot derive the rest of the set."""
    first, *_ = write_shards(tmp_path, "big", 3)
    renamed = first.rename(tmp_path / "mine.gguf")
    verdict = shards(box, renamed)
    assert verdict.state is State.FAIL
    assert "is shard 1 of 3 under another name" in verdict.found


def test_a_shard_of_another_set_is_recognised(box: LinuxBox, tmp_path: Path) -> None:
    """Right name, wrong file: it counts itself differently."""
    _, other, _ = write_shards(tmp_path, "other", 3)
    first, _, third = write_shards(tmp_path, "big", 3)
    other.replace(third)
    verdict = shards(box, first)
    assert (verdict.id, verdict.state) == ("file.gguf", State.FAIL)
    assert "big-00003-of-00003.gguf says that it is shard 2 of 3" in verdict.found


def test_sets_that_were_mixed_are_recognised_by_their_tensors(tmp_path: Path) -> None:
    """The first shard promises more tensors than there are."""
    paths = [str(path) for path in write_shards(tmp_path, "big", 2)]
    box = FakeBox().has(*(a_file(path) for path in paths))
    for number, path in enumerate(paths):
        keys = {"split.no": number, "split.count": 2, "split.tensors.count": 9}
        box.headers[path] = GgufFact(path, keys=keys)
    box.models[paths[0]] = a_model(tensors=8)
    verdict = shards(box, paths[0])
    assert verdict.state is State.FAIL
    assert "hold 8 tensors, and say that there are 9" in verdict.found


def test_one_whole_file_is_no_set(box: LinuxBox, tmp_path: Path) -> None:
    """A model that was never split needs no shards."""
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf())
    assert shards(box, path).state is State.PASS


def test_an_empty_shard_is_told_by_its_name(box: LinuxBox, tmp_path: Path) -> None:
    """All are there, and one of them is nothing."""
    first, second, _ = write_shards(tmp_path, "big", 3)
    second.write_bytes(b"")
    verdict = shards(box, first)
    assert verdict.state is State.FAIL
    assert "big-00002-of-00003.gguf is empty" in verdict.found


def test_a_cut_shard_is_told_by_its_name(box: LinuxBox, tmp_path: Path) -> None:
    """Each shard's own header says how long it has to be."""
    first, second, _ = write_shards(tmp_path, "big", 3)
    second.write_bytes(second.read_bytes()[:-8])
    verdict = shards(box, first)
    assert verdict.state is State.FAIL
    assert "big-00002-of-00003.gguf is short by 8 bytes" in verdict.found


def test_metadata_of_the_wrong_type_is_no_crash() -> None:
    """Keys are as hostile as everything else in the file."""
    path = "/m/big-00001-of-00002.gguf"
    other = "/m/big-00002-of-00002.gguf"
    box = FakeBox().has(a_file(path), a_file(other))
    box.headers[path] = GgufFact(path, keys={"split.no": "zero", "split.count": [2]})
    assert shards(box, path).state is State.FAIL


def test_shards_on_a_dead_mount_take_one_deadline_and_not_thirty_three() -> None:
    """After the first one that hangs nobody asks for the others."""
    path = "/nfs/big-00001-of-00033.gguf"
    hung = FileFact("", fault=TIMEOUT, said="no answer within 10 s")

    class Hung(FakeBox):
        def files(self, paths: object, *, within: float) -> tuple[FileFact, ...]:
            del within
            return tuple(replace(hung, path=name) for name in paths)

    verdict = shards(Hung(), path)
    assert verdict.state is State.UNKNOWN
    assert "no answer within 10 s" in verdict.found


def test_a_tensor_that_is_there_twice_gives_a_mixed_set_away(box: LinuxBox, tmp_path: Path) -> None:
    """Every shard counts itself rightly, and one of them is of another cut of the same model."""
    first, second, _ = write_shards(tmp_path, "big", 3)
    keys = {"split.no": 1, "split.count": 3, "split.tensors.count": 3}
    second.write_bytes(gguf(keys, {"blk.0.weight": 16}))
    verdict = shards(box, first)
    assert verdict.state is State.FAIL
    assert "blk.0.weight is in more than one of the shards" in verdict.found


def test_shards_that_disagree_on_their_number_of_tensors_are_mixed(
    box: LinuxBox, tmp_path: Path
) -> None:
    """Each of them says how many there are in all."""
    first, second, _ = write_shards(tmp_path, "big", 3)
    keys = {"split.no": 1, "split.count": 3, "split.tensors.count": 40}
    second.write_bytes(gguf(keys, {"blk.1.weight": 16}))
    verdict = shards(box, first)
    assert verdict.state is State.FAIL
    assert "the shards disagree on how many tensors there are: 3, 40" in verdict.found


def test_a_set_that_cannot_be_put_together_is_unknown() -> None:
    """The file system stopped answering in between."""
    path = "/m/big-00001-of-00002.gguf"
    other = "/m/big-00002-of-00002.gguf"
    box = FakeBox().has(a_file(path), a_file(other))
    for number, name in enumerate((path, other)):
        box.headers[name] = GgufFact(name, keys={"split.no": number, "split.count": 2})
    box.models[path] = a_model(fault="EIO", said="Input/output error")
    verdict = shards(box, path)
    assert verdict.state is State.UNKNOWN
    assert "Input/output error" in verdict.found


def test_a_header_that_gives_no_answer_may_be_one_of_many() -> None:
    """The name says nothing of shards, and the file cannot say it."""
    box = FakeBox().has(a_file("/m/model.gguf"))
    box.headers["/m/model.gguf"] = GgufFact("/m/model.gguf", fault=TIMEOUT, said="no answer")
    verdict = shards(box, "/m/model.gguf")
    assert verdict.state is State.UNKNOWN
    assert verdict.found == "its header does not say: no answer (timeout)"


@pytest.mark.parametrize("fault", ["ENOENT", "EACCES"])
def test_a_file_that_cannot_be_opened_is_left_to_the_check_that_tells_it(fault: str) -> None:
    """Told once; and production's own weights may be closed to us without refusing anything."""
    box = FakeBox()
    box.headers["/m/model.gguf"] = GgufFact("/m/model.gguf", fault=fault, said="no")
    assert shards(box, "/m/model.gguf").state is State.SKIPPED


@pytest.mark.parametrize(("owner", "state"), [("job", State.FAIL), ("production", State.WARN)])
def test_shards_that_only_production_may_read_are_its_own_business(
    owner: str, state: State
) -> None:
    """They are there, and the user that has to read them is another one."""
    path, other = "/m/big-00001-of-00002.gguf", "/m/big-00002-of-00002.gguf"
    box = FakeBox().has(*(a_file(one, read_fault="EACCES") for one in (path, other)))
    check = Shards.model_validate({"path": path, "owner": owner})
    assert look([check], box).verdicts[0].state is state


def test_an_odd_shard_is_a_warning_and_the_others_are_looked_at(
    box: LinuxBox, tmp_path: Path
) -> None:
    """Bytes behind the last tensor do not hide that a later shard is cut."""
    first, _, third = write_shards(tmp_path, "big", 3)
    first.write_bytes(first.read_bytes() + bytes(100))
    verdict = shards(box, first)
    assert (verdict.id, verdict.state) == ("file.gguf", State.WARN)
    third.write_bytes(third.read_bytes()[:-8])
    assert shards(box, first).state is State.FAIL


LOOK = """
import json, sys
from preflight.files.exists import FileExists
from preflight.linux.box import LinuxBox
from preflight.models.shards import Shards
from preflight.rings import look
about = {"path": sys.argv[1], "owner": "production"}
with LinuxBox() as box:
    looked = look([FileExists(gguf=True, role="weights", **about), Shards(**about)], box)
print(json.dumps({"states": [one.state.value for one in looked.verdicts], "passed": bool(looked.passed)}))
"""


def test_a_real_user_is_not_refused_for_weights_that_only_production_may_read(
    open_room: Path,
) -> None:
    """A model of mode 0600 of another user, alone and split: a warning, and no unknown."""
    (open_room / "model.gguf").write_bytes(gguf())
    paths = [open_room / "model.gguf", *write_shards(open_room, "big", 2)]
    for path in paths:
        path.chmod(0o600)
    assert look_as_nobody(LOOK, str(paths[0])) == {"states": ["warn", "skipped"], "passed": True}
    assert look_as_nobody(LOOK, str(paths[1])) == {"states": ["warn", "warn"], "passed": True}
