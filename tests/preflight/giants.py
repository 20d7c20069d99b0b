"""A model of 27 billion weights that takes no room: a whole header, and a file that is one large hole.

Shaped like the qwen35 of 64 layers, 16 of them with attention, and one MTP layer. For what is read of
headers; nothing could load it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from preflight.models.ggml import BLOCKS
from tests.preflight.ggufs import Value, text, value

WIDTH, INNER, LAYERS = 5120, 17_408, 64
HEADS, KV_HEADS, HEAD = 24, 4, 256
STATE, VALUE_HEADS, KEY_HEADS, KERNEL = 128, 48, 16, 4
WORDS = 248_320
_F32, _Q4_K, _Q6_K = 0, 12, 14

Rows = Iterator[tuple[str, tuple[int, ...], int]]


def keys(words: int = WORDS) -> dict[str, Value]:
    """Its metadata."""
    return {
        "general.architecture": "qwen35",
        "general.name": "giant",
        "qwen35.block_count": LAYERS + 1,
        "qwen35.context_length": 262_144,
        "qwen35.embedding_length": WIDTH,
        "qwen35.feed_forward_length": INNER,
        "qwen35.attention.head_count": HEADS,
        "qwen35.attention.head_count_kv": KV_HEADS,
        "qwen35.attention.key_length": HEAD,
        "qwen35.attention.value_length": HEAD,
        "qwen35.full_attention_interval": 4,
        "qwen35.ssm.conv_kernel": KERNEL,
        "qwen35.ssm.inner_size": STATE * VALUE_HEADS,
        "qwen35.ssm.state_size": STATE,
        "qwen35.ssm.time_step_rank": VALUE_HEADS,
        "qwen35.ssm.group_count": KEY_HEADS,
        "qwen35.nextn_predict_layers": 1,
        "tokenizer.ggml.tokens": [f"t{number}" for number in range(words)],
    }


def rows() -> Rows:
    """Its tensors: name, shape, type."""
    yield "token_embd.weight", (WIDTH, WORDS), _Q4_K
    yield "output_norm.weight", (WIDTH,), _F32
    yield "output.weight", (WIDTH, WORDS), _Q6_K
    for layer in range(LAYERS + 1):
        recurrent = layer < LAYERS and (layer + 1) % 4
        yield from _recurrent(layer) if recurrent else _attention(layer)
        for name, shape in (
            ("gate", (WIDTH, INNER)),
            ("up", (WIDTH, INNER)),
            ("down", (INNER, WIDTH)),
        ):
            yield f"blk.{layer}.ffn_{name}.weight", shape, _Q4_K
    yield f"blk.{LAYERS}.nextn.eh_proj.weight", (2 * WIDTH, WIDTH), _Q4_K
    for name in ("enorm", "hnorm", "shared_head_norm"):
        yield f"blk.{LAYERS}.nextn.{name}.weight", (WIDTH,), _F32


def _attention(layer: int) -> Rows:
    start = f"blk.{layer}."
    yield f"{start}attn_norm.weight", (WIDTH,), _F32
    yield f"{start}attn_q.weight", (WIDTH, 2 * HEAD * HEADS), _Q4_K
    yield f"{start}attn_k.weight", (WIDTH, HEAD * KV_HEADS), _Q4_K
    yield f"{start}attn_v.weight", (WIDTH, HEAD * KV_HEADS), _Q4_K
    yield f"{start}attn_output.weight", (HEAD * HEADS, WIDTH), _Q4_K


def _recurrent(layer: int) -> Rows:
    start = f"blk.{layer}."
    keys_, values = STATE * KEY_HEADS, STATE * VALUE_HEADS
    yield f"{start}attn_norm.weight", (WIDTH,), _F32
    yield f"{start}attn_qkv.weight", (WIDTH, 2 * keys_ + values), _Q4_K
    yield f"{start}attn_gate.weight", (WIDTH, values), _Q4_K
    yield f"{start}ssm_conv1d.weight", (KERNEL, 2 * keys_ + values), _F32
    yield f"{start}ssm_beta.weight", (WIDTH, VALUE_HEADS), _Q4_K
    yield f"{start}ssm_alpha.weight", (WIDTH, VALUE_HEADS), _Q4_K
    yield f"{start}ssm_out.weight", (values, WIDTH), _Q4_K


def write(path: Path) -> Path:
    """The file: a few megabytes of header, and 15 GB of nothing behind it."""
    table, offset, said = b"", 0, keys()
    count = 0
    for name, shape, kind in rows():
        table += text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        table += struct.pack("<IQ", kind, offset)
        elements = 1
        for length in shape:
            elements *= length
        block, size = BLOCKS[kind]
        offset += -(-elements // block * size // 32) * 32
        count += 1
    head = b"GGUF" + struct.pack("<IQQ", 3, count, len(said))
    head += b"".join(text(name) + value(one) for name, one in said.items()) + table
    with path.open("wb") as file:
        file.write(head + bytes(-len(head) % 32))
        file.truncate(file.tell() + offset)
    return path
