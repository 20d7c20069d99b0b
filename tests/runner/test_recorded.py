"""What is kept of a job that passed, read back, and what of it is not believed."""

import json
from pathlib import Path

import pytest

from preflight.box import Gpu, GpuReading, Neighbour
from preflight.files.unchanged import Unchanged, Watched
from preflight.models.fit import Learned
from preflight.verdict import State, Verdict
from runner import learned, recorded
from tests.fakes import FakeBox, a_file, missing

MODEL, PROGRAM = "/m/model.gguf", "/opt/llama-server"
CHECK = Unchanged(
    job="night",
    files=(Watched(path=MODEL, role="weights"), Watched(path=PROGRAM, role="binary")),
)
LOG = """\
I print_info: arch = llama
I print_info: n_embd = 4096
I print_info: n_layer = 4
I llama_context: constructing llama_context
I llama_context: n_ctx_seq = {cells}
I llama_context: n_ubatch = 512
I sched_reserve: CUDA0 compute buffer size = {mib} MiB
"""


def a_box() -> FakeBox:
    """A box with both files, their neighbours and a driver."""
    cards = (Gpu(1, "GPU-b"), Gpu(0, "GPU-a"), Gpu(0, "MIG-a", parent="GPU-a"))
    box = FakeBox(reading=GpuReading(cards, driver="580.126"))
    box.beside["/m"] = (Neighbour("model.gguf", 1 << 30, 0.0, "bob"),)
    return box.has(a_file(MODEL), a_file(PROGRAM))


def verdicts(box: FakeBox) -> list[Verdict]:
    """What the look before has answered."""
    (fact,) = box.files([MODEL], within=1)
    return [
        Verdict(
            "file.exists",
            State.PASS,
            f"model {MODEL}",
            "",
            "1.0 GiB",
            evidence=(f"path: {MODEL}",),
            seen=fact.fingerprint,
        ),
        Verdict(
            "host.binary",
            State.WARN,
            f"program {PROGRAM}",
            "",
            "version: 1 (abc); was another",
            evidence=("--version: version: 1 (abc)",),
        ),
    ]


def test_a_record_tells_files_programs_driver_and_directories(tmp_path: Path) -> None:
    """Who, when, with which runner; and it is read back as it was."""
    box = a_box()
    kept = recorded.keep(tmp_path, "night", [CHECK], verdicts(box), box, proven=True)
    assert kept is not None
    assert recorded.read(tmp_path, "night") == kept
    assert [(file.path, file.role) for file in kept.files] == [
        (MODEL, "weights"),
        (PROGRAM, "binary"),
    ]
    assert kept.programs == {PROGRAM: "version: 1 (abc)"}
    assert (kept.driver, kept.proven, kept.by) == ("580.126", True, "runner")
    assert kept.gpus == {"GPU-a": 0, "GPU-b": 1}
    assert kept.listings == {"/m": {"model.gguf": 1 << 30}}
    path = tmp_path / "recorded" / "night.json"
    assert path.stat().st_mode & 0o077 == 0


def test_a_file_that_changed_since_it_was_looked_at_is_not_recorded(tmp_path: Path) -> None:
    """It is not what has just been proven."""
    box = a_box()
    before = verdicts(box)
    box.has(a_file(MODEL, inode=99))
    assert recorded.keep(tmp_path, "night", [CHECK], before, box, proven=True) is None
    assert recorded.read(tmp_path, "night") is None


def test_a_file_that_has_gone_since_leaves_the_old_record(tmp_path: Path) -> None:
    """A later look is told the story from it."""
    box = a_box()
    first = recorded.keep(tmp_path, "night", [CHECK], verdicts(box), box, proven=True)
    box.has(missing(MODEL))
    assert recorded.keep(tmp_path, "night", [CHECK], [], box, proven=True) is None
    assert recorded.read(tmp_path, "night") == first


@pytest.mark.parametrize("text", ["", "{", "[]", '{"job": 1}', '{"job": "night", "at": "soon"}'])
def test_a_damaged_record_counts_as_none(tmp_path: Path, text: str) -> None:
    """A look without a record is a warning, and no crash."""
    (tmp_path / "recorded").mkdir()
    (tmp_path / "recorded" / "night.json").write_text(text)
    assert recorded.read(tmp_path, "night") is None


def test_a_record_of_a_newer_runner_is_read_as_far_as_it_is_known(tmp_path: Path) -> None:
    """A field that this version does not know is left alone."""
    box = a_box()
    recorded.keep(tmp_path, "night", [CHECK], verdicts(box), box, proven=False)
    path = tmp_path / "recorded" / "night.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "later": [1]}))
    found = recorded.read(tmp_path, "night")
    assert found is not None
    assert found.file(MODEL) is not None


# compute buffers


def write(path: Path, *, cells: int = 4096, mib: float = 300) -> Path:
    """A log of a start."""
    path.write_text(LOG.format(cells=cells, mib=mib))
    return path


def test_what_a_log_tells_is_kept_for_the_next_estimate(tmp_path: Path) -> None:
    """A newer start of the same kind takes the place of the older."""
    assert learned.read(tmp_path) == ()
    (found,) = learned.learn(tmp_path, "run-1", [write(tmp_path / "candidate.log")])
    assert found == Learned(
        architecture="llama",
        layers=4,
        width=4096,
        cells=4096,
        batch=512,
        compute_mib=300,
        run="run-1",
    )
    learned.learn(tmp_path, "run-2", [write(tmp_path / "candidate.log", mib=310)])
    learned.learn(tmp_path, "run-3", [write(tmp_path / "candidate.log", cells=8192)])
    assert [(one.run, one.compute_mib, one.cells) for one in learned.read(tmp_path)] == [
        ("run-2", 310, 4096),
        ("run-3", 300, 8192),
    ]


def test_logs_that_tell_nothing_leave_everything_as_it_is(tmp_path: Path) -> None:
    """A missing one, an empty one, one of a box without a card."""
    empty = tmp_path / "empty.log"
    empty.write_bytes(b"\xff\x00")
    assert learned.learn(tmp_path, "run-1", [tmp_path / "none.log", empty]) == ()
    assert not (tmp_path / learned.NAME).exists()


@pytest.mark.parametrize("text", ["", "[]", '{"compute": 1}', '{"compute": [{"layers": "x"}, 7]}'])
def test_damaged_memory_teaches_nothing(tmp_path: Path, text: str) -> None:
    """The next estimate guesses again, and says so."""
    (tmp_path / learned.NAME).write_text(text)
    assert learned.read(tmp_path) == ()


def test_only_so_much_is_kept(tmp_path: Path) -> None:
    """The newest hundred."""
    for number in range(105):
        write(tmp_path / "candidate.log", cells=256 * (number + 1))
        learned.learn(tmp_path, f"run-{number}", [tmp_path / "candidate.log"])
    kept = learned.read(tmp_path)
    assert len(kept) == 100
    assert kept[-1].run == "run-104"
