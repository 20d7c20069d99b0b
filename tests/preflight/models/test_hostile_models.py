"""Fuzzed model files, asked through the real Box by every check that reads models.

Whatever the bytes are there is a verdict: no crash, no hang, and little memory in the child that reads.
"""

import random
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from preflight.check import Check
from preflight.files.exists import FileExists
from preflight.gpu.budget import GpuBudget
from preflight.linux.box import LinuxBox
from preflight.models.fit import Load
from preflight.models.roles import Roles
from preflight.models.shards import Shards
from preflight.rings import look
from preflight.verdict import State, Verdict
from tests.preflight.ggufs import gguf, text

WHOLE = gguf(
    {
        "general.architecture": "llama",
        "general.alignment": 32,
        "llama.block_count": 1,
        "llama.context_length": 4096,
        "llama.attention.head_count": 4,
        "llama.attention.head_count_kv": [4, 4],
        "split.count": 1,
        "tokenizer.ggml.tokens": ["a", "bc", "d"],
    },
    {"token_embd.weight": 16, "blk.0.nextn.eh_proj.weight": 8},
)
MOST_MEMORY = 64 << 20
MOST_SECONDS = 1.0


@pytest.fixture(scope="module")
def box() -> Iterator[LinuxBox]:
    """This machine."""
    with LinuxBox() as here:
        yield here


def checks(path: Path) -> list[Check]:
    """Every check that reads a model, of this file."""
    model = str(path)
    return [
        FileExists(path=model, role="weights", gguf=True),
        Shards(path=model),
        Roles(model=model, draft=model, mmproj=model, mtp=True, context=8192),
    ]


def ask(box: LinuxBox, path: Path, raw: bytes) -> list[Verdict]:
    """All answers for these bytes, each of which has to come at once and be no bug of ours."""
    path.unlink(missing_ok=True)  # another inode, so that no header is remembered
    path.write_bytes(raw)
    began = time.perf_counter()
    verdicts = [look([check], box).verdicts[0] for check in checks(path)]
    assert time.perf_counter() - began < MOST_SECONDS
    for verdict in verdicts:
        assert "fault of its own" not in verdict.found, verdict.found
        assert "died" not in verdict.found, verdict.found
        assert verdict.message().isprintable()
    return verdicts


def child_mib(box: LinuxBox) -> float:
    """The most memory that the reading child ever had, in MiB."""
    child = box._reader._child
    assert child is not None
    status = Path(f"/proc/{child.pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024


def header_length() -> int:
    """Where the tensors begin: whatever lies before is header."""
    return WHOLE.rindex(b"eh_proj.weight") + 64


def test_every_truncation_of_a_file_gets_a_verdict(box: LinuxBox, tmp_path: Path) -> None:
    """Cut anywhere before its last tensor ends it is refused."""
    needed = len(WHOLE)
    for end in range(needed):
        exists, *_ = ask(box, tmp_path / "model.gguf", WHOLE[:end])
        if end < needed - 32:  # behind that is padding only
            assert exists.state is State.FAIL, end


def test_every_flipped_byte_of_a_header_gets_a_verdict(box: LinuxBox, tmp_path: Path) -> None:
    """One bit, all bits, none."""
    dice = random.Random(7)  # noqa: S311 - the same bits in every run
    for at in range(min(header_length(), len(WHOLE))):
        for new in (0, 255, WHOLE[at] ^ 1 << dice.randrange(8)):
            raw = bytearray(WHOLE)
            raw[at] = new
            ask(box, tmp_path / "model.gguf", bytes(raw))


@pytest.mark.parametrize("absurd", [1 << 20, 1 << 40, (1 << 63) - 1, (1 << 64) - 1])
def test_absurd_counts_and_lengths_get_a_verdict(
    box: LinuxBox, tmp_path: Path, absurd: int
) -> None:
    """Wherever eight bytes are a count or a length, they can be anything."""
    for at in range(min(header_length(), len(WHOLE)) - 8):
        raw = WHOLE[:at] + struct.pack("<Q", absurd) + WHOLE[at + 8 :]
        ask(box, tmp_path / "model.gguf", raw)


def test_hostile_giants_cost_the_child_little_memory(tmp_path: Path) -> None:
    """Names, values, rows and vocabularies that would fill the memory."""
    few, many = struct.pack("<Q", 1), struct.pack("<Q", 30_000)
    head = b"GGUF\x03\0\0\0"
    long_value = b"".join(
        text(f"k{n}") + struct.pack("<I", 8) + text("\u20ac" * 1300) for n in range(9000)
    )
    rows = b"".join(
        text(f"blk.{n}.{'x' * 40}") + struct.pack("<IQIQ", 1, 8, 0, 32 * n) for n in range(30_000)
    )
    vocabulary = text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 3_000_000)
    with LinuxBox() as box:
        for raw in (
            head + bytes(8) + many + long_value,
            head + many + bytes(8) + rows,
            head + bytes(8) + few + vocabulary + bytes(8 * 3_000_000),
        ):
            for number in range(3):  # remembering several must not add up either
                ask(box, tmp_path / f"model-{number}.gguf", raw)
        assert child_mib(box) < MOST_MEMORY >> 20


def test_two_long_vocabularies_are_not_compared_for_ever(tmp_path: Path) -> None:
    """Millions of words that all differ end at the limit, as unknown."""
    count = 3_000_000
    for name, word in (("one", b"a"), ("other", b"b")):
        keys = b"GGUF\x03\0\0\0" + struct.pack("<QQ", 1, 2)
        keys += text("general.architecture") + struct.pack("<I", 8) + text("llama")
        keys += text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, count)
        keys += (struct.pack("<Q", 1) + word) * count
        keys += text("w") + struct.pack("<IQIQ", 1, 8, 0, 0)
        (tmp_path / f"{name}.gguf").write_bytes(keys + bytes(64))
    with LinuxBox() as box:
        check = Roles(model=str(tmp_path / "one.gguf"), draft=str(tmp_path / "other.gguf"))
        began = time.perf_counter()
        (verdict,) = look([check], box).verdicts
        assert time.perf_counter() - began < 5
        assert verdict.state in (State.UNKNOWN, State.FAIL)
        assert child_mib(box) < MOST_MEMORY >> 20


def test_an_estimate_of_a_hostile_model_is_a_number_or_unknown(tmp_path: Path) -> None:
    """Metadata that claims billions of everything."""
    absurd = 0x7FFFFFFF
    keys = {
        "general.architecture": "llama",
        **{
            f"llama.{name}": absurd
            for name in (
                "block_count",
                "context_length",
                "embedding_length",
                "attention.head_count",
                "attention.head_count_kv",
                "attention.key_length",
                "attention.sliding_window",
                "ssm.state_size",
                "ssm.inner_size",
            )
        },
    }
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf(keys, {"blk.4095.x": 8, "blk.99999999.x": 8, "blk..x": 8, "blk.-1.x": 8}))
    with LinuxBox() as box:
        check = GpuBudget(loads=(Load(model=str(path), slots=4, mtp=True),), asked=False)
        began = time.perf_counter()
        (verdict,) = look([check], box).verdicts
        assert time.perf_counter() - began < 5
        assert "fault of its own" not in verdict.found
