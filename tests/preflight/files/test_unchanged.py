"""Did a job's files change since it last passed: touched, copied, replaced, gone."""

import os
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from preflight.box import TIMEOUT, Neighbour, Sampled
from preflight.files.exists import FileExists
from preflight.files.recorded import KnownFile, Record, difference, listing
from preflight.files.unchanged import Unchanged, Watched
from preflight.linux.box import LinuxBox
from preflight.models.shards import Shards
from preflight.rings import look
from preflight.verdict import State, Verdict
from tests.fakes import FakeBox, a_file, missing
from tests.preflight.ggufs import gguf, write_shards


@pytest.fixture(scope="module")
def box() -> Iterator[LinuxBox]:
    """This machine."""
    with LinuxBox() as here:
        yield here


def record_of(box: FakeBox | LinuxBox, *files: Path | str, roles: Sequence[str] = ()) -> Record:
    """What is recorded when a job with these files passes now."""
    paths = [str(file) for file in files]
    samples = box.sampled(paths, within=10)
    parents = {path.rpartition("/")[0] for path in paths}
    listings = {each: listing(box.neighbours(each, within=5)) for each in parents}
    return Record(
        job="night",
        at=time.time(),
        files=tuple(
            KnownFile.of(seen, role)
            for seen, role in zip(samples, [*roles, *["weights"] * len(paths)], strict=False)
        ),
        listings={each: names for each, names in listings.items() if names is not None},
    )


def ask(
    box: FakeBox | LinuxBox,
    record: Record | None,
    *files: Path | str,
    role: str = "weights",
    **how: bool,
) -> Verdict:
    """The answer about these files."""
    watched = tuple(Watched(path=str(file), role=role) for file in files)
    return look([Unchanged(job="night", files=watched, record=record, **how)], box).verdicts[0]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model of some length, so that windows of it are samples."""
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf(tensors={"token_embd.weight": 600_000}))
    return path


def test_files_as_recorded_pass(box: LinuxBox, model: Path) -> None:
    """Equal metadata is enough: nothing is read."""
    verdict = ask(box, record_of(box, model), model)
    assert verdict.state is State.PASS
    assert verdict.found.startswith("it is as recorded at ")


def test_without_a_record_no_change_can_be_seen(box: LinuxBox, model: Path) -> None:
    """A first run is no reason to refuse, and a reason to say how to record."""
    verdict = ask(box, None, model)
    assert verdict.state is State.WARN
    assert verdict.remedy == "when they are right: runner check night --record"


def test_without_a_record_a_job_that_wants_one_is_unknown(box: LinuxBox, model: Path) -> None:
    """Whoever asks for it is refused until the files were recorded; and each of them counts."""
    verdict = ask(box, None, model, required=True)
    assert verdict.state is State.UNKNOWN
    assert verdict.remedy == "when they are right: runner check night --record"
    other = model.with_name("other.gguf")
    other.write_bytes(gguf())
    verdict = ask(box, record_of(box, model), model, other, required=True)
    assert verdict.state is State.UNKNOWN
    assert "other.gguf is not recorded yet" in verdict.found
    assert verdict.remedy.endswith("runner check night --record")
    assert ask(box, record_of(box, model), model, required=True).state is State.PASS


def test_whoever_records_is_told_what_changed_and_not_refused(box: LinuxBox, model: Path) -> None:
    """Else the way that is named to accept another file would be closed by that very file."""
    assert ask(box, None, model, required=True, recording=True).state is State.PASS
    record = record_of(box, model)
    model.write_bytes(gguf(tensors={"token_embd.weight": 300_000}))
    other = model.with_name("other.gguf")
    other.write_bytes(gguf())
    verdict = ask(box, record, model, other, required=True, recording=True)
    assert verdict.state is State.WARN
    assert "was 2.3 MiB, is 1.1 MiB" in verdict.found
    assert verdict.remedy == ""


def test_whoever_records_must_see_what_is_recorded() -> None:
    """What cannot be looked at is not validated by looking at it."""
    box = FakeBox().has(a_file("/m/model.gguf"))
    record = record_of(box, "/m/model.gguf")
    box.has(missing("/m/model.gguf", fault="EIO", said="Input/output error"))
    verdict = ask(box, record, "/m/model.gguf", recording=True)
    assert verdict.state is State.UNKNOWN
    assert verdict.remedy == "see why it cannot be looked at"


def test_a_file_that_was_touched_is_a_warning(box: LinuxBox, model: Path) -> None:
    """Another time, the same bytes."""
    record = record_of(box, model)
    os.utime(model, ns=(1, 1))
    verdict = ask(box, record, model)
    assert verdict.state is State.WARN
    assert "was touched or copied" in verdict.found
    assert "its content is equal" in verdict.found


def test_a_file_that_was_copied_in_place_is_a_warning(box: LinuxBox, model: Path) -> None:
    """A download anew: another inode, the same bytes."""
    record = record_of(box, model)
    shutil.copy(model, model.with_name("copy"))
    model.with_name("copy").replace(model)
    assert ask(box, record, model).state is State.WARN


@pytest.mark.parametrize("at", [0.0, 0.5, 1.0])
def test_other_content_of_the_same_length_fails(box: LinuxBox, model: Path, at: float) -> None:
    """A swapped file has the right name and the right size; its header or a window gives it away."""
    record = record_of(box, model)
    raw = bytearray(model.read_bytes())
    place = min(len(raw) - 1, int(len(raw) * at))
    raw[place or 60] ^= 0xFF
    model.write_bytes(bytes(raw))
    verdict = ask(box, record, model)
    assert verdict.state is State.FAIL
    assert "model.gguf changed since it was validated" in verdict.found
    assert "differs" in verdict.found


def test_a_requantised_file_fails_and_tells_who_wrote_it(box: LinuxBox, model: Path) -> None:
    """Another length, by whom, and when."""
    record = record_of(box, model)
    model.write_bytes(gguf(tensors={"token_embd.weight": 300_000}))
    verdict = ask(box, record, model)
    assert verdict.state is State.FAIL
    assert "was 2.3 MiB, is 1.1 MiB, written" in verdict.found
    assert f"by {model.owner()}" in verdict.found
    assert verdict.remedy.endswith("runner check night --record")


def test_another_build_of_a_program_is_a_warning(box: LinuxBox, tmp_path: Path) -> None:
    """Worth a look, and no other model."""
    program = tmp_path / "llama-server"
    program.write_bytes(b"\x7fELF" + bytes(100))
    record = record_of(box, program, roles=["binary"])
    program.write_bytes(b"\x7fELF" + bytes(200))
    assert ask(box, record, program, role="binary").state is State.WARN


def test_a_file_that_the_record_does_not_know_is_a_warning(box: LinuxBox, model: Path) -> None:
    """The job names another file now; nobody has validated it."""
    other = model.with_name("other.gguf")
    other.write_bytes(gguf())
    verdict = ask(box, record_of(box, model), model, other)
    assert verdict.state is State.WARN
    assert "other.gguf is not recorded yet" in verdict.found


def test_a_missing_file_is_left_to_the_check_that_looks_for_it() -> None:
    """Told once, and there with its story."""
    box = FakeBox().has(a_file("/m/model.gguf"))
    record = record_of(box, "/m/model.gguf", "/m/gone.gguf")
    assert ask(box, record, "/m/model.gguf", "/m/gone.gguf").state is State.PASS


@pytest.mark.parametrize("fault", ["EACCES", "ESTALE", TIMEOUT])
def test_what_cannot_be_looked_at_is_unknown(fault: str) -> None:
    """Not the same, as far as anybody knows."""
    box = FakeBox().has(a_file("/m/model.gguf"))
    record = record_of(box, "/m/model.gguf")
    box.has(missing("/m/model.gguf", fault=fault, said="no answer"))
    assert ask(box, record, "/m/model.gguf").state is State.UNKNOWN


def test_a_sample_that_cannot_be_taken_is_unknown() -> None:
    """The metadata differs, and nobody can say whether the content does."""
    box = FakeBox().has(a_file("/m/model.gguf"))
    record = record_of(box, "/m/model.gguf")
    box.has(a_file("/m/model.gguf", inode=8))
    box.samples["/m/model.gguf"] = Sampled("/m/model.gguf", fault="EIO", said="Input/output error")
    verdict = ask(box, record, "/m/model.gguf")
    assert verdict.state is State.UNKNOWN
    assert "Input/output error" in verdict.found


# the story of a file that is gone


def test_what_is_gone_is_told_with_what_it_was_and_what_happened_there(
    box: LinuxBox, tmp_path: Path
) -> None:
    """The incident: 33 shards were merged and the draft deleted, hours before midnight."""
    shards = write_shards(tmp_path, "big", 33)
    draft = tmp_path / "mtp-draft.gguf"
    draft.write_bytes(gguf(tensors={"token_embd.weight": 2000}))
    record = record_of(box, *shards, draft)
    for path in (*shards, draft):
        path.unlink()
    (tmp_path / "big.gguf").write_bytes(gguf())
    missing_draft = FileExists(path=str(draft), role="draft", gguf=True, record=record)
    missing_set = Shards(path=str(shards[0]), record=record)
    told, of_set = look([missing_draft, missing_set], box).verdicts
    assert told.state is State.FAIL
    assert told.found.startswith("is gone (was 7.9 KiB, validated ")
    assert "; in its directory since then: + big.gguf" in told.found
    assert "- 33 shards of big, - mtp-draft.gguf" in told.found
    assert told.remedy == "put it back, or edit the job, then: runner check night --record"
    assert "33 of 33 are missing" in of_set.found
    assert "validated" in of_set.found
    assert any("beside it now: big.gguf" in said for said in of_set.evidence)


def test_without_a_record_of_it_the_story_is_the_old_one(box: LinuxBox, tmp_path: Path) -> None:
    """Nothing is made up."""
    (tmp_path / "other").write_text("x")
    record = record_of(box, tmp_path / "other")
    check = FileExists(path=str(tmp_path / "gone.gguf"), record=record)
    assert "does not exist" in look([check], box).verdicts[0].found


def test_what_came_and_what_went_is_told_in_few_words() -> None:
    """Sets as one, long lists cut, and nothing where nothing happened."""
    before = {f"a-{n:05d}-of-00003.gguf": 1 for n in (1, 2, 3)} | {"b": 1, "c": 1}
    now = [Neighbour("b", 1, 0.0, "bob"), Neighbour("new.gguf", 64 << 30, 0.0, "bob")]
    assert difference(before, now) == "+ new.gguf 64.0 GiB, - 3 shards of a, - c"
    assert difference({"b": 1}, now[:1]) == ""
    many = [Neighbour(f"n{n}", 1, 0.0, "bob") for n in range(300)]
    assert difference({"x": 1}, many).count("+") == 3
    assert "- x" not in difference({"x": 1}, many)
    assert listing(many) is None
