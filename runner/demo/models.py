"""Writes the tiny models of the demo and the tests, in a second and without training.

    mtp     qwen35: a trunk and one real MTP (nextn) layer
    plain   the same trunk, byte for byte, and no MTP layer: asking it for MTP must fail
    draft   llama, one layer, the same vocabulary: for --spec-type draft-simple
    mmproj  the header of a vision projector: the wrong file for -m and for -md

The trunk's layers cost time and add a little noise; what is said, and how often a draft is right,
comes from `runner.demo.language`. With the defaults and --spec-draft-n-max 3 about 0.58 of the
drafted tokens are accepted at temperature 0. The models cannot recall: needle questions fail.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from runner.demo import gguf
from runner.demo.gguf import Array, Value
from runner.demo.language import (
    BYTES,
    CONTROL,
    PIECES,
    STARTS,
    VOCABULARY,
    WIDTH,
    WORDS,
    Dice,
    Language,
)

Kind = Literal["mtp", "plain", "draft", "mmproj"]
KINDS: tuple[Kind, ...] = get_args(Kind)

MISS = 0.20  # share of the words that a draft never gets right
LAYERS = 16  # of the trunk; the last one has attention, and with it a KV cache
NOISE = 0.02  # how much the layers add to the next-word scores
SEED = 11

_CONTEXT = 262_144  # what the file says it was trained with; a larger -c is capped by the server
_INNER = 64  # inner size of a feed-forward part
_HEAD = 32  # size of the one attention head; a quantised KV cache needs a multiple of 32
_STATE, _KEY_HEADS, _VALUE_HEADS, _CONV = 32, 1, 2, 4  # a gated-delta-net (linear attention) layer
_KEYS, _VALUES = _STATE * _KEY_HEADS, _STATE * _VALUE_HEADS
_TOKEN_NORMAL, _TOKEN_CONTROL = 1, 3  # llama_token_type
_CHAT = (
    "{%- for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{%- endfor %}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{%- endif %}"
)


def write(
    kind: Kind,
    path: Path,
    *,
    shards: int = 1,
    miss: float = MISS,
    layers: int = LAYERS,
    noise: float = NOISE,
    seed: int = SEED,
) -> tuple[Path, ...]:
    """Write one model and return its files, the one for `-m` first.

    With `shards` the files are named model-00001-of-00004.gguf and so on; the MTP layer's own
    tensors are then all in the last one. The same arguments give the same bytes.
    """
    build: dict[Kind, Callable[[], Model]] = {
        "mtp": lambda: _qwen(Language(seed), seed, layers=layers, noise=noise, miss=miss),
        "plain": lambda: _qwen(Language(seed), seed, layers=layers, noise=noise, miss=None),
        "draft": lambda: _draft(Language(seed), seed, miss=miss),
        "mmproj": lambda: _projector(seed),
    }
    model = build[kind]()
    path.parent.mkdir(parents=True, exist_ok=True)
    if shards > 1:
        return gguf.write_shards(path, model.metadata, model.tensors, shards)
    gguf.write(path, model.metadata, model.tensors)
    return (path,)


class Model:
    """Metadata and tensors on their way into a file; shapes are [out, in]."""

    def __init__(self, architecture: str, name: str, seed: int) -> None:
        self.architecture = architecture
        self.metadata: dict[str, Value] = {
            "general.architecture": architecture,
            "general.name": name,
        }
        self.tensors: dict[str, Array] = {}
        self._dice = Dice(seed)

    def say(self, **values: Value) -> None:
        """Add keys of this architecture; `__` in a keyword stands for a dot."""
        for key, value in values.items():
            self.metadata[f"{self.architecture}.{key.replace('__', '.')}"] = value

    def add(self, prefix: str = "", **weights: Array) -> None:
        """Add tensors by the names that llama.cpp gives them, without the `.weight`."""
        for name, weight in weights.items():
            self.tensors[f"{prefix}{name}.weight"] = weight

    def random(self, *shape: int, scale: float = 1.0) -> Array:
        """Weights with a variance of about scale² / inputs."""
        return self._dice.uniform(*shape) * scale * math.sqrt(3 / shape[-1])

    def describe(self, layers: int, rope: int) -> None:
        """Metadata of a language model of `layers` layers, its vocabulary included."""
        self.metadata["general.file_type"] = 0  # all float32
        self.say(block_count=layers, context_length=_CONTEXT, vocab_size=VOCABULARY)
        self.say(embedding_length=WIDTH, feed_forward_length=_INNER)
        self.say(attention__head_count=1, attention__head_count_kv=1)
        self.say(attention__key_length=_HEAD, attention__value_length=_HEAD)
        self.say(attention__layer_norm_rms_epsilon=1e-6, rope__freq_base=1e6)
        self.say(rope__dimension_count=rope)
        self.metadata |= _tokenizer()

    def feed_forward(self, layer: str, scale: float) -> None:
        """Add a layer's feed-forward part; `scale` is what it adds to the residual stream."""
        self.add(layer, ffn_gate=self.random(_INNER, WIDTH), ffn_up=self.random(_INNER, WIDTH))
        self.add(layer, ffn_down=self.random(WIDTH, _INNER, scale=scale))


def _tokenizer() -> dict[str, Value]:
    """Byte-level BPE whose only merges build our words; everything else is read byte by byte."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}  # GPT-2's alphabet of bytes
    others = iter(range(256, 512))
    letters = [chr(byte if byte in printable else next(others)) for byte in range(BYTES)]
    blank = letters[ord(" ")]
    words = [text.replace(" ", blank) for text in WORDS + PIECES]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": [*letters, *words, *CONTROL],
        "tokenizer.ggml.token_type": [_TOKEN_NORMAL] * (VOCABULARY - len(CONTROL))
        + [_TOKEN_CONTROL] * len(CONTROL),
        "tokenizer.ggml.merges": [
            f"{start[:-1].replace(' ', blank)} {start[-1]}" for start in STARTS
        ],
        "tokenizer.ggml.eos_token_id": VOCABULARY - 2,
        "tokenizer.ggml.padding_token_id": VOCABULARY - 1,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": _CHAT,
    }


def _qwen(language: Language, seed: int, *, layers: int, noise: float, miss: float | None) -> Model:
    """A qwen35 trunk whose last layer has attention; with `miss` also an MTP layer after it."""
    model = Model("qwen35", "tiny-plain" if miss is None else "tiny-mtp", seed)
    model.describe(layers if miss is None else layers + 1, rope=8)  # the count includes MTP
    model.say(rope__dimension_sections=[2, 1, 1, 0], full_attention_interval=layers)
    model.say(ssm__conv_kernel=_CONV, ssm__inner_size=_VALUES, ssm__state_size=_STATE)
    model.say(ssm__time_step_rank=_VALUE_HEADS, ssm__group_count=_KEY_HEADS)
    model.add(token_embd=language.embeddings(), output_norm=np.ones(WIDTH))
    model.add(output=language.output_matrix())
    for index in range(layers - 1):
        _linear_layer(model, f"blk.{index}.", noise)
    _attention_layer(model, f"blk.{layers - 1}.", noise)
    if miss is not None:
        model.say(nextn_predict_layers=1)
        _attention_layer(model, f"blk.{layers}.", 0.0)
        ones = np.ones(WIDTH)
        nextn = f"blk.{layers}.nextn."
        model.add(nextn, eh_proj=language.meter(), enorm=ones, hnorm=ones, shared_head_norm=ones)
        model.add(nextn, shared_head_head=language.draft_matrix(miss))
    return model


def _attention_layer(model: Model, layer: str, scale: float) -> None:
    ones, random = np.ones, model.random
    model.add(layer, attn_norm=ones(WIDTH), post_attention_norm=ones(WIDTH))
    model.add(layer, attn_q=random(2 * _HEAD, WIDTH))  # the query and its gate
    model.add(layer, attn_k=random(_HEAD, WIDTH), attn_v=random(_HEAD, WIDTH))
    model.add(layer, attn_output=random(WIDTH, _HEAD, scale=scale))
    model.add(layer, attn_q_norm=ones(_HEAD), attn_k_norm=ones(_HEAD))
    model.feed_forward(layer, scale)


def _linear_layer(model: Model, layer: str, scale: float) -> None:
    ones, random, mixed = np.ones, model.random, 2 * _KEYS + _VALUES
    model.add(layer, attn_norm=ones(WIDTH), post_attention_norm=ones(WIDTH))
    model.add(layer, attn_qkv=random(mixed, WIDTH), attn_gate=random(_VALUES, WIDTH))
    model.add(layer, ssm_conv1d=random(mixed, _CONV))
    model.tensors[f"{layer}ssm_dt.bias"] = np.zeros(_VALUE_HEADS)
    model.tensors[f"{layer}ssm_a"] = -ones(_VALUE_HEADS)
    model.add(layer, ssm_beta=random(_VALUE_HEADS, WIDTH), ssm_alpha=random(_VALUE_HEADS, WIDTH))
    model.add(layer, ssm_norm=ones(_STATE), ssm_out=random(WIDTH, _VALUES, scale=scale))
    model.feed_forward(layer, scale)


def _draft(language: Language, seed: int, *, miss: float) -> Model:
    """A llama of one layer that adds nothing: it says what `draft_matrix` says."""
    model = Model("llama", "tiny-draft", seed)
    model.describe(1, rope=_HEAD)
    model.add(token_embd=language.embeddings(), output_norm=np.ones(WIDTH))
    model.add(output=language.draft_matrix(miss))
    layer = "blk.0."
    model.add(layer, attn_norm=np.ones(WIDTH), ffn_norm=np.ones(WIDTH))
    model.add(layer, attn_q=model.random(_HEAD, WIDTH), attn_k=model.random(_HEAD, WIDTH))
    model.add(layer, attn_v=model.random(_HEAD, WIDTH), attn_output=np.zeros((WIDTH, _HEAD)))
    model.feed_forward(layer, 0.0)
    return model


def _projector(seed: int) -> Model:
    model = Model("clip", "tiny-mmproj", seed)
    model.metadata |= {"general.type": "mmproj"}
    model.say(has_vision_encoder=True, projector_type="mlp")
    model.say(vision__embedding_length=WIDTH, vision__block_count=1)
    model.add("v.", patch_embd=model.random(WIDTH, 3, 14, 14))
    return model
