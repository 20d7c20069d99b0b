"""Memory from headers alone: what llama-server's own log said of real starts, to the MiB."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from preflight.box import ModelFact
from preflight.linux.files import LinuxFiles
from preflight.models.memory import Shape, bytes_of, cells
from tests.fakes import a_model
from tests.preflight import giants
from tests.preflight.ggufs import gguf

MIB = 1 << 20


@pytest.fixture(scope="module")
def giant(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shape]:
    """A qwen35 of 27 billion weights with one MTP layer, read from its header."""
    path = giants.write(tmp_path_factory.mktemp("giant") / "giant.gguf")
    with closing(LinuxFiles()) as files:
        yield Shape(files.model([str(path)], within=10))
    path.unlink()


def gemma() -> Shape:
    """Gemma 3 of 270 million weights: every sixth layer sees the whole context."""
    return Shape(
        a_model(
            keys={
                "general.architecture": "gemma3",
                "gemma3.block_count": 18,
                "gemma3.embedding_length": 640,
                "gemma3.feed_forward_length": 2048,
                "gemma3.attention.head_count": 4,
                "gemma3.attention.head_count_kv": 1,
                "gemma3.attention.key_length": 256,
                "gemma3.attention.value_length": 256,
                "gemma3.attention.sliding_window": 512,
            },
            blocks=(1,) * 18,
        )
    )


def tiny(**more: Any) -> Shape:
    """The qwen35 of four layers that the logs speak of, with one MTP layer."""
    keys = {
        "general.architecture": "qwen35",
        "qwen35.block_count": 5,
        "qwen35.embedding_length": 128,
        "qwen35.attention.head_count": 2,
        "qwen35.attention.head_count_kv": 1,
        "qwen35.attention.key_length": 64,
        "qwen35.attention.value_length": 64,
        "qwen35.full_attention_interval": 4,
    }
    return Shape(a_model(keys=keys | more, blocks=(1,) * 5, mtp=(4,)))


def cache(shape: Shape, layers: range, context: int, kinds: tuple[str, str], **how: Any) -> float:
    """MiB of the KV cache of these layers."""
    slots, unified = how.get("slots", 1), how.get("unified", False)
    where = cells(context, slots, unified=unified)
    window = shape.window_cells(where, 512, full=how.get("full", False))
    return round(shape.cache(layers, where, kinds, window) / MIB, 2)


@pytest.mark.parametrize(("kind", "context_mib"), [("f16", 13110), ("q8_0", 7245), ("q4_0", 4117)])
def test_a_large_hybrid_model_takes_what_its_log_said(
    giant: Shape, kind: str, context_mib: int
) -> None:
    """`memory breakdown`, column context: KV of 16 layers of attention, state of 48 with 3 drafts."""
    kv = cache(giant, range(64), 200_000, (kind, kind))
    state = giant.state(1, 3) / MIB
    assert state == 598.5
    assert int(kv + state) == context_mib


def test_its_mtp_context_is_of_full_length_and_f16(giant: Shape) -> None:
    """782 MiB in the log, whatever type the main cache has."""
    assert cache(giant, range(64, 65), 200_000, ("f16", "f16")) == 782
    assert cache(giant, range(64, 65), 200_000, ("q4_0", "q4_0")) == pytest.approx(220, abs=1)


def test_its_weights_go_to_the_gpu_without_the_words(giant: Shape) -> None:
    """The table of words stays with the host, and MTP layers are only loaded where they are used."""
    whole = giant.weights(None, mtp=True) / MIB
    assert whole == pytest.approx(14_976 - 682, abs=1)
    assert giant.weights(None, mtp=False) / MIB == pytest.approx(whole - 228, abs=1)
    assert giant.weights(0, mtp=True) == 0
    assert giant.weights(1, mtp=False) / MIB == pytest.approx(995, abs=1)  # the output alone


LOGGED = [
    # context, slots, unified, full window: MiB of the layers that see all, and of the others
    (32_768, 1, False, False, 96.0, 15.0),
    (16_384, 4, True, False, 48.0, 37.5),
    (16_384, 2, False, True, 48.0, 240.0),
]


@pytest.mark.parametrize(("context", "slots", "unified", "full", "whole", "windowed"), LOGGED)
def test_layers_that_see_a_window_take_a_window(
    context: int, slots: int, unified: bool, full: bool, whole: float, windowed: float
) -> None:
    """`llama_kv_cache: size` of Gemma 3, for each kind of layer."""
    shape = gemma()
    how = {"slots": slots, "unified": unified, "full": full}
    layers = [layer for layer in range(18) if shape.windowed(layer)]
    assert len(layers) == 15
    assert sum(cache(shape, range(n, n + 1), context, ("f16", "f16"), **how) for n in layers) == (
        windowed
    )
    everything = cache(shape, range(18), context, ("f16", "f16"), **how)
    assert everything == whole + windowed


def test_slots_cut_the_context_or_share_it() -> None:
    """Each takes whole blocks of 256 cells."""
    assert cells(4096, 4, unified=False).each == 1024
    assert cells(4096, 4, unified=True).each == 4096
    assert cells(200_000, 1, unified=False).each == 200_192
    shape = tiny()
    assert cache(shape, range(4), 200_000, ("f16", "f16")) == 48.88
    assert cache(shape, range(4), 8192, ("q8_0", "q4_0"), slots=4) == 0.81


def test_the_state_of_recurrent_layers_grows_with_slots_and_drafts() -> None:
    """0.41 MiB for one slot with 3 drafts, 2.87 for four with 6: the log's own numbers."""
    ssm = {
        "qwen35.ssm.conv_kernel": 4,
        "qwen35.ssm.inner_size": 128,
        "qwen35.ssm.state_size": 64,
        "qwen35.ssm.group_count": 1,
    }
    shape = tiny(**ssm)
    assert round(shape.state(1, 3) / MIB, 2) == 0.41
    assert round(shape.state(4, 6) / MIB, 2) == 2.87


def test_other_kinds_of_layers_are_told_apart() -> None:
    """A layer without KV heads has a state; latent attention has no V; shared layers have no cache."""
    keys = {
        "general.architecture": "jamba",
        "jamba.block_count": 4,
        "jamba.embedding_length": 1024,
        "jamba.attention.head_count": 8,
        "jamba.ssm.state_size": 16,
        "jamba.ssm.inner_size": 2048,
        "jamba.ssm.conv_kernel": 4,
    }
    lists = {"jamba.attention.head_count_kv": (0, 0, 8, 0)}
    hybrid = Shape(a_model(keys=keys, lists=lists))
    assert [hybrid.recurrent(layer) for layer in range(4)] == [True, True, False, True]
    latent = {
        "general.architecture": "deepseek2",
        "deepseek2.block_count": 2,
        "deepseek2.attention.head_count": 128,
        "deepseek2.attention.head_count_kv": 1,
        "deepseek2.attention.key_length": 576,
        "deepseek2.attention.value_length": 512,
        "deepseek2.attention.key_length_mla": 192,
    }
    assert cache(Shape(a_model(keys=latent)), range(2), 1024, ("f16", "f16")) == 2.25
    shared = {**keys, "general.architecture": "gemma4", "gemma4.block_count": 4}
    shared |= {"gemma4.attention.shared_kv_layers": 3, "gemma4.embedding_length": 1024}
    shape = Shape(a_model(keys=shared))
    assert [shape.caches(layer) for layer in range(4)] == [True, False, False, False]


@pytest.mark.parametrize(
    ("shape", "context", "logged"), [(gemma(), 32_768, 50.77), (tiny(), 200_000, 197.77)]
)
def test_the_guess_at_compute_is_near_what_logs_say(
    shape: Shape, context: int, logged: float
) -> None:
    """Mask and activations; until a run has told it is a guess, and called one."""
    guess = shape.compute(cells(context, 1, unified=False), 512, flash=True) / MIB
    assert guess == pytest.approx(logged, rel=0.05)


def test_tensors_that_are_told_where_to_go_do_not_go_with_their_layer() -> None:
    """To the host from layers of the GPU, to the GPU from layers of the host."""
    plain = a_model()
    kept = a_model(on_host=(150 << 20, 150 << 20, 0, 0), on_gpu=(7 << 20, 0, 7 << 20, 0))
    whole = Shape(plain).weights(None, mtp=False)
    assert whole - Shape(kept).weights(None, mtp=False) == 300 * MIB
    half = Shape(plain).weights(3, mtp=False)
    assert Shape(kept).weights(3, mtp=False) - half == 7 * MIB
    assert Shape(kept).weights(0, mtp=False) == 14 * MIB


def test_the_words_and_the_output_may_be_told_where_to_go() -> None:
    """The table of words lies with the host by itself, and the output with the GPU."""
    moved = a_model(placed={"token_embd.weight": "gpu", "output.weight": "host"})
    plain = Shape(a_model()).weights(None, mtp=False)
    assert Shape(moved).weights(None, mtp=False) == plain  # 112 MiB each
    assert Shape(a_model(placed={"output.weight": "host"})).weights(None, mtp=False) == 800 * MIB
    words = {"token_embd.weight": 100 * MIB}
    tied = a_model(outside=words, placed={"token_embd.weight": "gpu"})
    assert Shape(tied).weights(None, mtp=False) == 900 * MIB
    tied = a_model(outside=words, placed={"token_embd.weight": "host"})
    assert Shape(tied).weights(None, mtp=False) == 800 * MIB


def test_rules_for_tensors_are_applied_to_their_names(tmp_path: Path) -> None:
    """The first rule that fits counts, for layers and for what lies outside of them."""
    names = ["blk.0.ffn_up_exps.weight", "blk.0.ffn_up.weight", "blk.1.ffn_down_exps.weight"]
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf(tensors=dict.fromkeys([*names, "output.weight"], 1024)))
    rules = [(r"blk\.1\..*exps", "gpu"), ("exps", "host"), ("^output", "host")]
    with closing(LinuxFiles()) as files:
        fact = files.model([str(path)], within=10, overrides=rules)
        plain = files.model([str(path)], within=10)
    assert (fact.on_host, fact.on_gpu) == ((4096, 0), (0, 4096))
    assert fact.placed == {"output.weight": "host"}
    assert (plain.on_host, plain.placed) == ((0, 0), {})


def test_words_that_are_also_the_output_are_there_twice() -> None:
    """Where no output tensor is, the table of words goes to the GPU too."""
    tied = a_model(outside={"token_embd.weight": 100 * MIB, "output_norm.weight": MIB})
    assert Shape(tied).weights(None, mtp=False) == (800 + 100 + 1) * MIB


def test_a_cache_type_that_is_not_known_counts_as_f16() -> None:
    """A new type is no reason to say that it takes nothing."""
    assert bytes_of(64, "q3_k_new") == bytes_of(64, "f16") == 128
    assert bytes_of(64, "q4_0") == 36


HOSTILE = [
    {"llama.block_count": -5, "llama.attention.head_count": 0},
    {"llama.block_count": True, "llama.embedding_length": "wide"},
    {"llama.attention.head_count": 1 << 40, "llama.attention.key_length": -1},
    {"llama.attention.sliding_window": 1 << 62, "llama.context_length": 1 << 62},
    {},
]


@pytest.mark.parametrize("said", HOSTILE)
def test_absurd_metadata_gives_a_number(said: dict[str, Any]) -> None:
    """Whatever a header claims, an estimate is a number that is not negative."""
    for model in (ModelFact(keys=said), a_model(keys={"general.architecture": "llama", **said})):
        shape = Shape(model)
        where = cells(4096, 2, unified=False)
        window = shape.window_cells(where, 512, full=False)
        assert shape.cache(range(shape.layers), where, ("f16", "q8_0"), window) >= 0
        assert shape.weights(None, mtp=True) >= 0
        assert shape.state(2, 3) >= 0
        assert shape.compute(where, 512, flash=False) >= 0
