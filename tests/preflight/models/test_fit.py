"""Will it fit: the sum of the parts, what is guessed and what is learned, and what would make it fit."""

from typing import Any

import pytest

from preflight.box import FileFact, Gpu, GpuProc, GpuReading, ModelFact
from preflight.check import Deadline
from preflight.gpu.budget import GpuBudget
from preflight.models.fit import Learned, Load, Models, Unread, estimate, heaviest, read, ways
from preflight.rings import look
from preflight.verdict import State, Verdict
from tests.fakes import FakeBox, a_file, a_model, a_process

MODEL = "/m/model.gguf"
DRAFT = "/m/draft.gguf"
PROJECTOR = "/m/mmproj.gguf"
GIB = 1024
PRODUCTION = 4711


def a_load(**more: Any) -> Load:
    """A llama of four layers with 64K of context on one slot."""
    return Load.model_validate({"model": MODEL, "context": 65_536, **more})


def parts(load: Load, models: Models, gpus: int = 1) -> dict[str, float]:
    """Each part in MiB."""
    return {part.name: part.mib for part in estimate(load, models, gpus).parts}


def budget(box: FakeBox, free: int, *loads: Load, total: int = 24 * GIB, **more: Any) -> Verdict:
    """The answer on one card of which production holds all but `free`."""
    held = (GpuProc(PRODUCTION, total - free - 300, proc=a_process(PRODUCTION)),)
    box.reading = GpuReading((Gpu(0, "GPU-a", "RTX 3090", total, free, held),), source="nvml")
    check = GpuBudget(loads=loads, production_pids=(PRODUCTION,), asked=True, **more)
    return look([check], box).verdicts[0]


def test_every_part_is_counted() -> None:
    """Weights without the words, KV of four layers, compute, and what the driver takes."""
    found = parts(a_load(), Models(a_model()))
    assert found["weights"] == 4 * 200 + 112
    assert found["KV"] == 4 * 2 * 8 * 128 * 2 * 65_536 / (1 << 20)
    assert found["state"] == 0
    assert found["compute"] > 64
    assert found["driver"] == 400


def test_a_draft_brings_weights_cache_and_compute_of_its_own() -> None:
    """With cache types of its own, f16 where nothing is said."""
    load = a_load(draft=DRAFT, key="q4_0", value="q4_0")
    alone, both = parts(load, Models(a_model())), parts(load, Models(a_model(), a_model()))
    assert both["draft weights"] == 912
    assert both["draft KV"] == pytest.approx(alone["KV"] * 32 / 9)
    assert both["compute"] == pytest.approx(2 * alone["compute"])


def test_mtp_layers_have_a_context_of_full_length() -> None:
    """One layer more, as f16, and a second compute buffer; the layers are loaded only then."""
    model = a_model(blocks=(200 << 20,) * 5, mtp=(4,), keys=_keys(5))
    plain, mtp = parts(a_load(), Models(model)), parts(a_load(mtp=True), Models(model))
    assert mtp["weights"] - plain["weights"] == 200
    assert mtp["MTP KV"] == plain["KV"] / 4
    assert mtp["compute"] == pytest.approx(2 * plain["compute"])


def _keys(layers: int) -> dict[str, Any]:
    return {**a_model().keys, "llama.block_count": layers}


def test_what_stays_with_the_host_is_not_counted() -> None:
    """-nkvo keeps the cache there, -ngl the first layers, --no-mmproj-offload the projector."""
    models = Models(a_model(), projector_mib=900)
    assert parts(a_load(cache_on_host=True), models)["KV"] == 0
    half = parts(a_load(on_gpu=3), models)
    assert half["weights"] == 2 * 200 + 112
    assert half["KV"] == parts(a_load(), models)["KV"] / 2
    box = FakeBox().has(a_file(PROJECTOR, size=900 << 20))
    for on_host, mib in ((False, 900), (True, 0)):
        found = read(a_load(mmproj=PROJECTOR, mmproj_on_host=on_host), box, Deadline(1))
        assert isinstance(found, Models)
        assert found.projector_mib == mib


def test_a_draft_may_stay_with_the_host_too() -> None:
    """-ngld, layer by layer: its weights and its cache."""
    models = Models(a_model(), a_model())
    none = parts(a_load(draft=DRAFT, draft_on_gpu=0), models)
    assert (none["draft weights"], none["draft KV"]) == (0, 0)
    half = parts(a_load(draft=DRAFT, draft_on_gpu=3), models)
    assert half["draft weights"] == 2 * 200 + 112
    assert half["draft KV"] == parts(a_load(draft=DRAFT), models)["draft KV"] / 2


def test_tensors_that_are_told_where_to_go_are_asked_for_each_model() -> None:
    """-ot for the model, -otd for its draft."""
    box = FakeBox()
    rules, others = (("exps", "host"),), (("ffn", "gpu"),)
    load = a_load(draft=DRAFT, overrides=rules, draft_overrides=others)
    assert isinstance(read(load, box, Deadline(5)), Models)
    assert box.overridden == {MODEL: rules, DRAFT: others}
    for several in (
        read(load, box, Deadline(5), gpus=2),
        read(load.model_copy(update={"share": 0.5}), box, Deadline(5)),
    ):
        assert several == Unread("tensors are told to go to one of several GPUs")


def test_a_command_line_that_does_not_tell_is_unknown_and_asks_for_a_number() -> None:
    """Nothing is made up for a part that goes to another machine."""
    load = a_load(untold="--rpc puts a part of it on other machines")
    verdict = budget(FakeBox(), 20 * GIB, load)
    assert verdict.state is State.UNKNOWN
    assert "cannot be estimated: --rpc puts a part" in verdict.found
    assert "free_mib" in verdict.remedy


def test_several_gpus_pay_for_compute_and_driver_each() -> None:
    """Layers and cache are split; each card has its own buffers and its own context."""
    one, two = (parts(a_load(), Models(a_model()), gpus) for gpus in (1, 2))
    assert two["weights"] == one["weights"]
    assert (two["compute"], two["driver"]) == (2 * one["compute"], 800)


def test_of_several_gpus_that_are_named_each_gets_its_share() -> None:
    """Layers and cache by the share; its own buffers and context whole."""
    whole, part = (parts(a_load(share=share), Models(a_model())) for share in (1.0, 0.25))
    assert part["weights"] == whole["weights"] / 4
    assert part["KV"] == whole["KV"] / 4
    assert part["compute"] == whole["compute"]
    assert estimate(a_load(share=0.25), Models(a_model())).words().startswith("25% of the layers: ")


def learned(**more: Any) -> Learned:
    """What an earlier start of the same model said."""
    said = {"architecture": "llama", "layers": 4, "width": 4096, "cells": 65_536, "batch": 512}
    return Learned.model_validate({**said, "compute_mib": 700, **more})


def test_compute_that_was_learned_takes_the_place_of_the_guess() -> None:
    """With a tenth more to be safe; longer contexts make the mask wider, shorter ones save nothing."""
    taught = estimate(a_load(learned=(learned(),)), Models(a_model()))
    assert taught.learned
    assert {part.name: part.mib for part in taught.parts}["compute"] == pytest.approx(770)
    longer = parts(a_load(context=131_072, learned=(learned(),)), Models(a_model()))
    assert longer["compute"] == pytest.approx(770 + 64)
    shorter = parts(a_load(context=4096, learned=(learned(),)), Models(a_model()))
    assert shorter["compute"] == pytest.approx(770)


@pytest.mark.parametrize(
    "other",
    [{"architecture": "qwen3"}, {"layers": 64}, {"width": 1}, {"batch": 2048}, {"contexts": 2}],
)
def test_what_another_start_said_teaches_nothing(other: dict[str, Any]) -> None:
    """Another model, another batch, or a draft where there is none now."""
    assert not estimate(a_load(learned=(learned(**other),)), Models(a_model())).learned


def test_each_way_to_fit_is_told_with_what_it_saves() -> None:
    """What is enough comes first; what is not is told as that."""
    load = a_load(context=262_144, slots=2, mmproj=PROJECTOR)
    models = Models(a_model(), projector_mib=200)
    now = estimate(load, models).mib
    found = ways(load, models, 1, now - 2000)
    assert "q8_0 KV saves 1.9 GiB (-ctk q8_0 -ctv q8_0), not enough" in found
    assert any(one.startswith("q4_0 KV saves 2.9 GiB (-ctk q4_0 -ctv q4_0)") for one in found)
    assert any("one slot instead of 2 saves" in one for one in found)
    assert any("no vision projector saves 200 MiB" in one for one in found)
    assert any(one.startswith("a context of ") and one.endswith(" fits") for one in found)
    enough = [not one.endswith("not enough") for one in found]
    assert enough == sorted(enough, reverse=True)


def test_the_longest_context_that_fits_really_fits() -> None:
    """And one block more would not."""
    load, models = a_load(context=262_144), Models(a_model())
    room = 2500
    (said,) = [one for one in ways(load, models, 1, room) if one.startswith("a context")]
    most = int(said.removeprefix("a context of ").removesuffix(" fits").replace(",", ""))
    fits = load.model_copy(update={"context": most})
    over = load.model_copy(update={"context": most + 256})
    assert estimate(fits, models).mib <= room < estimate(over, models).mib


def test_the_heaviest_arm_counts() -> None:
    """Arms come one after the other, so the largest has to fit."""
    small, large = a_load(arm="baseline"), a_load(context=131_072)
    found = heaviest([small, large], FakeBox(), 1, Deadline(1))
    assert not isinstance(found, Unread)
    assert found[0] is large


# against what is free, and what production gives back


def test_an_estimate_that_fits_passes_and_tells_its_parts() -> None:
    """Free and production's share minus the headroom, against all parts."""
    verdict = budget(FakeBox(), 1000, a_load())
    assert verdict.state is State.PASS
    (said,) = [one for one in verdict.evidence if one.startswith("estimated: ")]
    assert "weights 912 MiB + KV 1.0 GiB" in said
    assert said.endswith("for the candidate")
    assert any("a guess at compute buffers" in one for one in verdict.evidence)


def test_a_learned_estimate_is_no_guess() -> None:
    """Nothing is said of guessing then."""
    verdict = budget(FakeBox(), 1000, a_load(learned=(learned(),)))
    assert verdict.state is State.PASS
    assert not any("guess" in one for one in verdict.evidence)


def test_what_does_not_fit_is_told_by_how_much_and_what_would_help() -> None:
    """200K of context on a small card: the numbers, the shortage and the flags."""
    load = a_load(context=262_144)
    verdict = budget(FakeBox(), 1000, load, total=6 * GIB)
    assert verdict.state is State.FAIL
    assert "short by" in verdict.found
    assert "q8_0 KV saves 1.9 GiB (-ctk q8_0 -ctv q8_0)" in verdict.remedy


def test_what_can_never_fit_is_told_as_that() -> None:
    """Even an empty card is too small."""
    verdict = budget(FakeBox(), 1000, a_load(context=262_144), total=3 * GIB)
    assert verdict.state is State.FAIL
    assert "can never fit" in verdict.found
    assert verdict.remedy.startswith("a context of 66,304 fits")


def test_a_header_that_cannot_be_read_is_unknown_and_asks_for_a_number() -> None:
    """No estimate is made up."""
    box = FakeBox(models={MODEL: ModelFact(fault="EIO", said="Input/output error")})
    verdict = budget(box, 1000, a_load())
    assert verdict.state is State.UNKNOWN
    assert "it cannot be estimated: /m/model.gguf: Input/output error" in verdict.found
    assert "free_mib" in verdict.remedy


def test_a_projector_that_is_gone_is_unknown_too() -> None:
    """file.exists has told why; the estimate says that it lacks it."""
    box = FakeBox().has(FileFact(PROJECTOR, fault="ENOENT", said="No such file"))
    verdict = budget(box, 1000, a_load(mmproj=PROJECTOR))
    assert verdict.state is State.UNKNOWN
    assert PROJECTOR in verdict.found


def test_a_number_that_was_named_is_not_estimated() -> None:
    """Whoever measured knows better."""
    verdict = budget(FakeBox(), 1000, a_load(context=1 << 20), need_mib=2000)
    assert verdict.state is State.PASS
    assert not any("estimated" in one for one in verdict.evidence)
