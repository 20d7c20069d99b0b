"""The header reader: right about whole files, and never surprised by any others."""

import random
import struct
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from preflight.models.gguf import Array, BadGguf, Header, read_header
from preflight.models.shard_names import shard_name
from tests.preflight.ggufs import gguf, text

KEYS = {
    "general.architecture": "qwen35",
    "general.alignment": 32,
    "qwen35.context_length": 262_144,
    "qwen35.rope.freq_base": 1.5,
    "tokenizer.ggml.tokens": ["a", "bc", "", "d" * 300],
    "qwen35.attention.head_count_kv": [4, 4, 2],
}
WHOLE = gguf(KEYS, {"token_embd.weight": 64, "blk.0.nextn.eh_proj.weight": 10})
MOST_MEMORY = 64 << 20


def read(path: Path, raw: bytes) -> Header | BadGguf:
    """The answer for these bytes, which has to come at once."""
    path.write_bytes(raw)
    began = time.perf_counter()
    found = read_header(str(path))
    assert time.perf_counter() - began < 1
    return found


def test_a_whole_file_tells_its_keys_tensors_and_length(tmp_path: Path) -> None:
    """Everything of the header is read, and nothing is missing behind it."""
    found = read(tmp_path / "model.gguf", WHOLE)
    assert isinstance(found, Header)
    assert found.architecture == "qwen35"
    assert found.number("qwen35.context_length") == 262_144
    assert found.keys["qwen35.rope.freq_base"] == 1.5
    assert found.keys["tokenizer.ggml.tokens"] == Array(4)
    assert found.keys["qwen35.attention.head_count_kv"] == Array(3, (4, 4, 2))
    assert [row.name for row in found.tensors] == [
        "token_embd.weight",
        "blk.0.nextn.eh_proj.weight",
    ]
    assert found.tensors[1].size == 40
    assert found.missing == 0


def test_a_file_that_is_one_byte_short_says_so(tmp_path: Path) -> None:
    """The last tensor ends 24 bytes before the padding does, so that is where it starts to hurt."""
    path = tmp_path / "model.gguf"
    needed = read(path, WHOLE)
    assert isinstance(needed, Header)
    cut = read(path, WHOLE[: needed.needed_size - 1])
    assert isinstance(cut, Header)
    assert cut.missing == 1


def test_every_truncation_is_bad_or_short(tmp_path: Path) -> None:
    """Cut anywhere, the file is never taken for a whole one, and never crashes the reader."""
    path = tmp_path / "model.gguf"
    whole = read(path, WHOLE)
    assert isinstance(whole, Header)
    for end in range(whole.needed_size):
        found = read(path, WHOLE[:end])
        assert isinstance(found, BadGguf) or found.missing > 0, end


def test_every_flipped_byte_of_the_header_is_survived(tmp_path: Path) -> None:
    """Whatever a byte becomes, the answer is a Header or a BadGguf."""
    path = tmp_path / "model.gguf"
    dice = random.Random(1)  # noqa: S311 - the same bits in every run
    whole = read(path, WHOLE)
    assert isinstance(whole, Header)
    for at in range(whole.data_start):
        for new in (0, 255, WHOLE[at] ^ 1 << dice.randrange(8)):
            raw = bytearray(WHOLE)
            raw[at] = new
            read(path, bytes(raw))


@pytest.mark.parametrize("absurd", [1 << 20, 1 << 40, (1 << 63) - 1, (1 << 64) - 1])
def test_absurd_counts_and_lengths_are_survived(tmp_path: Path, absurd: int) -> None:
    """A count or length can be anything, wherever eight bytes of the header are one."""
    path = tmp_path / "model.gguf"
    whole = read(path, WHOLE)
    assert isinstance(whole, Header)
    for at in range(whole.data_start - 8):
        read(path, WHOLE[:at] + struct.pack("<Q", absurd) + WHOLE[at + 8 :])


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(tail=st.binary(max_size=400))
def test_random_bytes_behind_the_magic_are_survived(tmp_path: Path, tail: bytes) -> None:
    """Anything may follow the magic letters."""
    read(tmp_path / "model.gguf", b"GGUF\x03\0\0\0" + tail)


def test_hostile_files_cost_little_memory(tmp_path: Path) -> None:
    """Names, values and rows that would fill the memory are refused before they do."""
    few, many = struct.pack("<Q", 1), struct.pack("<Q", 30_000)
    long_value = b"".join(
        text(f"k{n}") + struct.pack("<I", 8) + text("x" * 4096) for n in range(9000)
    )
    lists = b"".join(
        text(f"k{n}") + struct.pack("<IIQ", 9, 0, 1024) + bytes(1024) for n in range(30_000)
    )
    vocabulary = text("t") + struct.pack("<IIQ", 9, 8, 9_000_000) + bytes(8 * 9_000_000)
    head = b"GGUF\x03\0\0\0" + bytes(8)
    for raw in (head + many + long_value, head + many + lists, head + few + vocabulary):
        path = tmp_path / "model.gguf"
        path.write_bytes(raw)
        del raw
        tracemalloc.start()
        found = read_header(str(path))
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert isinstance(found, BadGguf)
        assert most < MOST_MEMORY


def test_a_sparse_giant_of_zeros_ends_at_once(tmp_path: Path) -> None:
    """A preallocated file that claims a terabyte of empty words is refused within its limit."""
    path = tmp_path / "model.gguf"
    head = b"GGUF\x03\0\0\0" + struct.pack("<QQ", 0, 1) + text("t")
    path.write_bytes(head + struct.pack("<IIQ", 9, 8, 1 << 36))
    with path.open("r+b") as file:
        file.truncate(1 << 40)
    began = time.perf_counter()
    found = read_header(str(path), max_bytes=8 << 20)
    assert isinstance(found, BadGguf)
    assert "longer than 8 MiB" in found.why
    assert time.perf_counter() - began < 1


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "magic"),
        (b"GG", "magic"),
        (b"<!DOCTYPE html>", "magic"),
        (gguf(version=1), "version 1"),
        (gguf(version=0x03000000), "big-endian"),
        (gguf({"general.alignment": 24}), "alignment"),
        (
            gguf({"a": 1})[:-1].replace(b"\x01\0\0\0\0\0\0\0a", b"\x01\0\0\0\0\0\0\0a", 1)[:40],
            "cut off",
        ),
    ],
)
def test_what_is_no_gguf_is_told_apart(tmp_path: Path, raw: bytes, why: str) -> None:
    """Each way of not being a model file has words of its own."""
    found = read(tmp_path / "model.gguf", raw)
    assert isinstance(found, BadGguf)
    assert why in found.why


def test_a_key_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    """The server refuses it too, and which one counts would be a guess."""
    raw = bytearray(gguf({"a": 1, "b": 2}))
    raw[raw.index(b"b\x04\0\0\0")] = ord("a")
    found = read(tmp_path / "model.gguf", bytes(raw))
    assert isinstance(found, BadGguf)
    assert "twice" in found.why


def test_a_tensor_of_an_unknown_type_is_no_reason_to_refuse(tmp_path: Path) -> None:
    """New quantisations come with every release: what is not known is not counted."""
    raw = bytearray(gguf({}, {"w": 64}))
    at = raw.index(text("w")) + len(text("w")) + 4 + 8
    raw[at : at + 4] = struct.pack("<I", 99)
    found = read(tmp_path / "model.gguf", bytes(raw))
    assert isinstance(found, Header)
    assert found.tensors[0].size is None
    assert found.missing == 0


def test_a_large_vocabulary_is_passed_over_quickly(tmp_path: Path) -> None:
    """248,000 words are read past without being kept."""
    path = tmp_path / "model.gguf"
    words = [f"word{number}" for number in range(248_000)]
    path.write_bytes(gguf({"tokenizer.ggml.tokens": words, "after": 5}))
    began = time.thread_time()
    found = read_header(str(path))
    assert time.thread_time() - began < 0.3
    assert isinstance(found, Header)
    assert found.keys["tokenizer.ggml.tokens"] == Array(248_000)
    assert found.number("after") == 5


def test_the_names_of_a_set_follow_from_any_one_of_it() -> None:
    """The server derives every other shard from the first one's name, and so do we."""
    name = shard_name("/m/big-00002-of-00003.gguf")
    assert name is not None
    assert (name.stem, name.number, name.count) == ("/m/big", 2, 3)
    assert name.paths() == tuple(f"/m/big-0000{n}-of-00003.gguf" for n in (1, 2, 3))


@pytest.mark.parametrize(
    "path",
    [
        "/m/big.gguf",
        "/m/big-1-of-3.gguf",
        "/m/big-00004-of-00003.gguf",
        "/m/big-00000-of-00003.gguf",
    ],
)
def test_other_names_are_no_shards(path: str) -> None:
    """Only the exact form counts, with a number that can be."""
    assert shard_name(path) is None
