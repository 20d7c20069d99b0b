"""What each model file is used as, against what its header shows that it is."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from preflight.box import ModelFact, Vocabularies
from preflight.linux.box import LinuxBox
from preflight.models.roles import Roles, files_of
from preflight.rings import look
from preflight.verdict import State, Verdict
from runner.demo import models
from tests.fakes import FakeBox, a_model
from tests.preflight.ggufs import gguf, write_shards

MODEL, DRAFT = "/m/model.gguf", "/m/draft.gguf"


@pytest.fixture(scope="module")
def box() -> Iterator[LinuxBox]:
    """This machine."""
    with LinuxBox() as here:
        yield here


def ask(box: FakeBox | LinuxBox, **more: Any) -> Verdict:
    """The answer about one arm."""
    return look([Roles.model_validate({"model": MODEL, **more})], box).verdicts[0]


def a_box(**by_name: ModelFact) -> FakeBox:
    """A box with these models: model, draft, mmproj, lora."""
    return FakeBox(models={f"/m/{name}.gguf": model for name, model in by_name.items()})


def of(architecture: str | None = "llama", **more: Any) -> ModelFact:
    """A model of this architecture."""
    keys = {} if architecture is None else {"general.architecture": architecture}
    return a_model(keys={**keys, **more.pop("keys", {})}, **more)


def test_a_model_is_described_by_what_its_header_shows() -> None:
    """Architecture, layers, and the context that it was trained for."""
    verdict = ask(FakeBox(), context=200_000)
    assert verdict.state is State.PASS
    assert verdict.found == "llama, 4 layers, trained for 262,144 tokens"
    assert verdict.wanted == "a language model, for 200,000 tokens"


OTHERS = [
    (of("clip"), "is a vision projector"),
    (of("llama", keys={"general.type": "mmproj"}), "is a vision projector"),
    (of("llama", keys={"general.type": "adapter"}), "is a LoRA adapter"),
    (of("controlvector"), "is a control vector"),
    (of("llama", keys={"general.type": "imatrix"}), "is an importance matrix"),
    (of("llama", tensors=0), "is a vocabulary without weights"),
    (of("eagle3"), "is a draft head (eagle3)"),
]


@pytest.mark.parametrize(("model", "said"), OTHERS, ids=[said for _, said in OTHERS])
def test_another_thing_used_as_a_model_fails(model: ModelFact, said: str) -> None:
    """The incident's own mistake: the projector that a pattern found, given as the model."""
    verdict = ask(a_box(model=model))
    assert verdict.state is State.FAIL
    assert f"model.gguf {said}" in verdict.found


def test_a_bare_header_is_a_warning_and_nothing_more_is_said_of_it() -> None:
    """It says nothing of what it is, so nothing can be held against it."""
    bare = ModelFact(keys={}, tensors=0)
    verdict = ask(a_box(model=bare), mtp=True, context=200_000)
    assert verdict.state is State.WARN
    assert "is a bare header: it holds no tensors and says nothing" in verdict.found


def test_a_file_without_architecture_is_unknown() -> None:
    """No server says what becomes of it until it tries."""
    assert ask(a_box(model=of(None))).state is State.UNKNOWN


def test_mtp_is_proven_by_tensors_and_not_by_a_key() -> None:
    """The seed's silent fallback: a flag for hours, and a model that had no such layers."""
    claims = of("qwen35", keys={"qwen35.nextn_predict_layers": 1})
    verdict = ask(a_box(model=claims), mtp=True)
    assert verdict.state is State.FAIL
    assert verdict.found == (
        "the job asks for MTP, but model.gguf has no nextn tensors (its metadata says 1)"
    )
    assert verdict.remedy == "use the MTP build of the model, or set draft"
    assert ask(a_box(model=claims)).state is State.PASS
    assert ask(a_box(model=of("qwen35", mtp=(4,))), mtp=True).state is State.PASS


def test_mtp_layers_may_lie_in_the_draft_file() -> None:
    """Some models come with their head in a file of its own."""
    plain = of("step35")
    heads = a_box(model=plain, draft=of("step35", mtp=(45,)))
    assert ask(heads, draft=DRAFT, mtp=True, own_words=False).state is State.PASS
    neither = a_box(model=plain, draft=of("llama"))
    verdict = ask(neither, draft=DRAFT, mtp=True, own_words=False)
    assert "neither model.gguf nor draft.gguf has nextn tensors" in verdict.found


def test_a_second_mtp_layer_aborts_this_architecture() -> None:
    """An assertion in the server, after the load."""
    verdict = ask(a_box(model=of("qwen35", mtp=(4, 5))), mtp=True)
    assert verdict.state is State.FAIL
    assert "2 MTP layers; qwen35 takes one" in verdict.found


def test_more_context_than_the_training_fails() -> None:
    """The server caps each request to it, and writes one line of warning."""
    verdict = ask(FakeBox(), context=300_000)
    assert verdict.state is State.FAIL
    assert "was trained for 262,144 tokens" in verdict.found
    assert ask(FakeBox(), context=262_144).state is State.PASS
    assert ask(FakeBox(), context=None).state is State.PASS


VOCABULARIES = [
    (Vocabularies(1000, 1000), State.PASS),
    (Vocabularies(1000, 1100), State.PASS),
    (Vocabularies(1000, 1000, 3, 997), State.WARN),
    (Vocabularies(1000, 1000, 400, 5), State.FAIL),
    (Vocabularies(1000, 1500, 0, -1), State.FAIL),
    (Vocabularies(fault="ENODATA", said="/m/draft.gguf has no vocabulary"), State.FAIL),
    (Vocabularies(fault="TIMEOUT", said="no answer within 5 s"), State.UNKNOWN),
]


@pytest.mark.parametrize(("words", "state"), VOCABULARIES, ids=str)
def test_a_draft_has_to_speak_the_models_words(words: Vocabularies, state: State) -> None:
    """A few more at the end are usual; a few others are odd; many are another family."""
    box = a_box(model=of(), draft=of())
    box.vocabulary = words
    verdict = ask(box, draft=DRAFT)
    assert verdict.state is state
    assert words.said in verdict.found


def test_a_head_needs_no_words_of_its_own() -> None:
    """EAGLE and its like draft with the model's own."""
    box = a_box(model=of(), draft=of("eagle3"))
    box.vocabulary = Vocabularies(1000, 7, 7, 0)
    assert ask(box, draft=DRAFT).state is State.PASS


def test_a_projector_as_draft_fails() -> None:
    """Another name that a pattern could have found."""
    verdict = ask(a_box(model=of(), draft=of("clip")), draft=DRAFT)
    assert verdict.state is State.FAIL
    assert "draft.gguf is a vision projector, and no draft model" in verdict.found


def test_a_model_as_projector_fails() -> None:
    """And a projector as one passes."""
    verdict = ask(a_box(model=of(), mmproj=of("llama")), mmproj="/m/mmproj.gguf")
    assert verdict.state is State.FAIL
    assert "and no vision projector" in verdict.found
    assert ask(a_box(model=of(), mmproj=of("clip")), mmproj="/m/mmproj.gguf").state is State.PASS


def test_an_adapter_has_to_be_one_and_of_this_model() -> None:
    """By its type, and by the architecture that it was trained on."""
    own, other = ({"general.type": "adapter"} for _ in range(2))
    fits = a_box(model=of(), lora=of("llama", keys=own))
    assert ask(fits, adapters=("/m/lora.gguf",)).state is State.PASS
    foreign = a_box(model=of(), lora=of("qwen3", keys=other))
    assert "is an adapter for qwen3" in ask(foreign, adapters=("/m/lora.gguf",)).found
    model = a_box(model=of(), lora=of("llama"))
    assert "is no LoRA adapter" in ask(model, adapters=("/m/lora.gguf",)).found


def test_all_troubles_are_told_the_worst_first() -> None:
    """One look names everything."""
    box = FakeBox(vocabulary=Vocabularies(1000, 1000, 3, 997))
    verdict = ask(box, draft=DRAFT, mtp=True, context=300_000)
    assert verdict.state is State.FAIL
    assert len(verdict.evidence) == 3


@pytest.mark.parametrize(
    ("model", "state", "said"),
    [
        (ModelFact(fault="ENOENT", said="gone"), State.SKIPPED, "see file.exists"),
        (ModelFact(fault="EACCES", said="denied"), State.SKIPPED, "see file.exists"),
        (ModelFact(bad="the header is cut off"), State.SKIPPED, "see file.gguf"),
        (ModelFact(fault="ESTALE", said="Stale file handle"), State.UNKNOWN, "Stale file handle"),
    ],
)
def test_what_cannot_be_read_is_told_by_whom_it_belongs_to(
    model: ModelFact, state: State, said: str
) -> None:
    """A missing file is told once, by the check that looks for it."""
    for box, more in (
        (a_box(model=model), {}),
        (a_box(model=of(), draft=model), {"draft": DRAFT}),
    ):
        verdict = ask(box, **more)
        assert verdict.state is state
        assert said in verdict.found


# with real files


def test_real_models_are_what_they_are(box: LinuxBox, tmp_path: Path) -> None:
    """The demo's own: a model with an MTP layer, one without, a draft, a projector."""
    (mtp,) = models.write("mtp", tmp_path / "mtp.gguf")
    (plain,) = models.write("plain", tmp_path / "plain.gguf")
    (draft,) = models.write("draft", tmp_path / "draft.gguf")
    (mmproj,) = models.write("mmproj", tmp_path / "mmproj.gguf")
    assert ask(box, model=str(mtp), mtp=True).state is State.PASS
    assert "has no nextn tensors" in ask(box, model=str(plain), mtp=True).found
    assert ask(box, model=str(plain), draft=str(draft)).state is State.PASS
    assert "is a vision projector" in ask(box, model=str(mmproj)).found
    assert ask(box, model=str(plain), mmproj=str(mmproj)).state is State.PASS


def test_mtp_layers_in_the_last_shard_are_found(box: LinuxBox, tmp_path: Path) -> None:
    """The first file has all the metadata, and none of those tensors."""
    first, *_ = models.write("mtp", tmp_path / "mtp.gguf", shards=4)
    assert ask(box, model=str(first), mtp=True).state is State.PASS


def test_real_vocabularies_are_compared_word_by_word(box: LinuxBox, tmp_path: Path) -> None:
    """Equal bytes are equal words; other words are counted."""
    words = [f"word{number}" for number in range(500)]
    for name, tokens in (
        ("model", words),
        ("same", words),
        ("more", [*words, "one", "two"]),
        ("few", [*words[:10], "x", *words[11:]]),
        ("other", [f"w{number}" for number in range(500)]),
        ("none", None),
    ):
        keys = {"general.architecture": "llama"}
        said = keys if tokens is None else {**keys, "tokenizer.ggml.tokens": tokens}
        (tmp_path / f"{name}.gguf").write_bytes(gguf(said, {"token_embd.weight": 8}))

    def state(draft: str) -> State:
        model = str(tmp_path / "model.gguf")
        return ask(box, model=model, draft=str(tmp_path / f"{draft}.gguf")).state

    assert [state(name) for name in ("same", "more", "few", "other", "none")] == [
        State.PASS,
        State.PASS,
        State.WARN,
        State.FAIL,
        State.FAIL,
    ]


def test_the_files_of_a_model_follow_from_its_first(tmp_path: Path) -> None:
    """All shards of a set, or the one file."""
    paths = write_shards(tmp_path, "big", 3)
    assert files_of(str(paths[0])) == tuple(map(str, paths))
    assert files_of(MODEL) == (MODEL,)
