"""How much memory a model takes, from its headers alone: weights, KV cache, state, compute.

Pure. The formulas are llama.cpp's own (src/llama-kv-cache.cpp, llama-memory-recurrent.cpp,
llama-model.cpp of b11434), and agree to the MiB with what its log says of real starts. Compute
buffers cannot be derived: theirs is a guess until a run has told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from preflight.box import ModelFact
from preflight.models.model import GPU, HOST

_BLOCKS: Mapping[str, tuple[int, int]] = {
    "f32": (1, 4),
    "f16": (1, 2),
    "bf16": (1, 2),
    "q8_0": (32, 34),
    "q5_1": (32, 24),
    "q5_0": (32, 22),
    "q4_1": (32, 20),
    "q4_0": (32, 18),
    "iq4_nl": (32, 18),
}
"""Type of a KV cache → (values a block, bytes a block), as in ggml/src/ggml.c of b11434."""

_PADDING = 256  # cells; GGML_PAD of n_ctx in llama_context
_WINDOW_PERIODS: Mapping[str, int] = {
    "gemma2": 2,
    "gemma3": 6,
    "gemma3n": 5,
    "gpt-oss": 2,
    "cohere2": 4,
    "exaone4": 4,
    "olmo2": 4,
    "afmoe": 4,
    "plamo3": 8,
    "modern-bert": 3,
}
"""Every how many layers one sees the whole context, where the file does not say (src/models, b11434)."""
_INTERVALS: Mapping[str, int] = {"qwen35": 4, "qwen35moe": 4, "qwen3next": 4}
"""Every how many layers one has attention, where the file does not say."""
_RECURRENT = frozenset({"mamba", "mamba2"})
_BOTH = frozenset({"falcon-h1"})
"""Architectures whose every layer has attention and a state."""
_WORDS = "token_embd.weight"
_INPUTS = frozenset(
    {
        _WORDS,
        "per_layer_token_embd.weight",
        "position_embd.weight",
        "token_types.weight",
    }
)
"""What llama.cpp keeps in the memory of the host, however many layers go to the GPU."""


@dataclass(frozen=True, slots=True)
class Cells:
    """How the context is cut: `each` cells in each of `streams` caches, for `slots` requests."""

    each: int
    streams: int
    slots: int


def cells(context: int, slots: int, *, unified: bool) -> Cells:
    """The cells that llama.cpp allocates for a context of so many tokens."""
    whole = _padded(context)
    if unified:
        return Cells(whole, 1, slots)
    return Cells(_padded(whole // slots), slots, slots)


def _padded(count: int) -> int:
    return -(-count // _PADDING) * _PADDING


def bytes_of(values: int, kind: str) -> int:
    """How many bytes so many values take in a cache of this type; as f16 where it is not known."""
    block, size = _BLOCKS.get(kind, _BLOCKS["f16"])
    return -(-values // block) * size


class Shape:
    """The numbers of one model that its memory depends on. Hostile values count as absent."""

    def __init__(self, model: ModelFact) -> None:
        self._model = model
        self.architecture = str(model.keys.get("general.architecture") or "")
        self.mtp = len(model.mtp)
        counted = self._number("block_count") or len(model.blocks)
        self.layers = max(0, min(counted, 4096) - self.mtp)

    def _number(self, name: str) -> int | None:
        found = self._model.keys.get(f"{self.architecture}.{name}")
        fine = isinstance(found, int) and not isinstance(found, bool) and 0 <= found < 1 << 31
        return int(found) if fine else None  # type: ignore[arg-type]  # `fine` has seen to it

    def _list(self, name: str) -> Sequence[int] | None:
        found = self._model.lists.get(f"{self.architecture}.{name}")
        if not found or not all(isinstance(one, int) and 0 <= one < 1 << 31 for one in found):
            return None
        return [int(one) for one in found]

    def _each(self, name: str, layer: int) -> int | None:
        """A number that may be one for all layers, or one for each."""
        values = self._list(name)
        if values is None:
            return self._number(name)
        return values[layer] if layer < len(values) else values[-1]

    @property
    def trained(self) -> int:
        """The context it was trained for; 0 where the file does not say."""
        return self._number("context_length") or 0

    @property
    def words(self) -> int:
        """The size of its vocabulary."""
        return self._model.words or self._number("vocab_size") or 0

    def _heads(self, layer: int) -> int:
        return self._each("attention.head_count", layer) or 1

    def _key_width(self, layer: int, *, windowed: bool) -> tuple[int, int]:
        """Values of K and of V that one token leaves in this layer's cache."""
        kv = self._each("attention.head_count_kv", layer)
        heads = self._heads(layer) if kv is None else kv
        usual = (self._number("embedding_length") or 0) // max(self._heads(layer), 1)
        ending = "_swa" if windowed else ""
        key = self._each(f"attention.key_length{ending}", layer) or self._each(
            "attention.key_length", layer
        )
        value = self._each(f"attention.value_length{ending}", layer) or self._each(
            "attention.value_length", layer
        )
        width = usual if key is None else key
        # with latent attention V is a part of K, and has no cache of its own
        latent = self._number("attention.key_length_mla") is not None
        return heads * width, 0 if latent else heads * (width if value is None else value)

    def recurrent(self, layer: int) -> bool:
        """Whether this layer has a state instead of a cache."""
        if layer >= self.layers or self.architecture in _BOTH:
            return self.architecture in _BOTH
        if self.architecture in _RECURRENT:
            return True
        if self.architecture in _INTERVALS:
            interval = self._number("full_attention_interval") or _INTERVALS[self.architecture]
            return (layer + 1) % interval != 0
        return self._each("attention.head_count_kv", layer) == 0 and self._has_state

    @property
    def _has_state(self) -> bool:
        return any(self._number(name) for name in ("ssm.state_size", "shortconv.l_cache"))

    @property
    def window(self) -> int:
        """How many tokens a windowed layer sees; 0 where every layer sees all."""
        return self._number("attention.sliding_window") or 0

    def windowed(self, layer: int) -> bool:
        """Whether this layer sees a window only; where that is not known it is taken to see all."""
        if not self.window:
            return False
        pattern = self._list("attention.sliding_window_pattern")
        if pattern is not None:
            return bool(pattern[layer % len(pattern)])
        period = self._number("attention.sliding_window_pattern")
        period = _WINDOW_PERIODS.get(self.architecture) if period is None else period
        return period is not None and (period == 0 or layer % period < period - 1)

    def caches(self, layer: int) -> bool:
        """Whether this layer has a KV cache of its own; the last ones may share an earlier one's."""
        shared = self._number("attention.shared_kv_layers") or 0
        own = layer < self.layers - shared or layer >= self.layers
        return own and (not self.recurrent(layer) or self.architecture in _BOTH)

    def cache(
        self, layers: Sequence[int], where: Cells, kinds: tuple[str, str], window: int
    ) -> int:
        """Bytes of the KV cache of these layers; `window` are the cells of a windowed one."""
        total = 0
        for layer in layers:
            if not self.caches(layer):
                continue
            windowed = self.windowed(layer)
            key, value = self._key_width(layer, windowed=windowed)
            count = window if windowed else where.each
            total += (bytes_of(key, kinds[0]) + bytes_of(value, kinds[1])) * count * where.streams
        return total

    def window_cells(self, where: Cells, batch: int, *, full: bool) -> int:
        """The cells of a layer that sees a window only."""
        if full or not self.window:
            return where.each
        slots = where.slots if where.streams == 1 else 1
        return _padded(min(where.each, self.window * slots + batch))

    def state(self, slots: int, drafted: int) -> int:
        """Bytes of the state of the layers without attention; drafts need one copy a token."""
        layers = sum(self.recurrent(layer) for layer in range(self.layers))
        inner, size = self._number("ssm.inner_size") or 0, self._number("ssm.state_size") or 0
        groups = self._number("ssm.group_count") or 0
        tail = (self._number("ssm.conv_kernel") or 1) - 1
        one = tail * (inner + 2 * groups * size) * 4 + size * inner * 4
        short = self._number("shortconv.l_cache")
        if short:
            one += (short - 1) * (self._number("embedding_length") or 0) * 4
        return one * layers * slots * (1 + drafted)

    def compute(self, where: Cells, batch: int, *, flash: bool) -> int:
        """A guess at the bytes of the compute buffer: the mask, and what a batch leaves on its way.

        Within 5 % of what llama.cpp b10434 says of a 27B and of a 0.27B model on its CPU backend.
        """
        width = self._number("embedding_length") or 0
        inner = self._each("feed_forward_length", 0) or 4 * width
        mask = where.each * batch * 2
        scores = 0 if flash else where.each * batch * 4 * self._heads(0)
        return mask + scores + batch * 4 * (2 * inner + 8 * width)

    def weights(self, on_gpu: int | None, *, mtp: bool) -> int:
        """Bytes of the weights that go to the GPU: the last `on_gpu` layers, all where None.

        Tensors that were told where to go do not go with their layer.
        """
        model = self._model
        total = self.layers + 1  # the output counts as a layer, and goes first
        first = 0 if on_gpu is None else max(total - on_gpu, 0)
        size = 0
        for layer, amount in enumerate(model.blocks):
            if layer >= self.layers and layer in model.mtp and not mtp:
                continue  # these are not even loaded
            told = model.on_host if layer >= first else model.on_gpu
            moved = told[layer] if layer < len(told) else 0
            size += amount - moved if layer >= first else moved
        for name, amount in model.outside.items():
            with_its_kind = HOST if name in _INPUTS or first >= total else GPU
            size += amount if model.placed.get(name, with_its_kind) == GPU else 0
        tied = "output.weight" not in model.outside and _WORDS not in model.placed
        if tied and first < total:  # the words themselves are the output, a second time
            size += model.outside.get(_WORDS, 0)
        return size
