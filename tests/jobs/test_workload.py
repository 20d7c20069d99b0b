"""Which requests a run measures: planned before, and left out when they can show nothing."""

from dataclasses import replace
from pathlib import Path

import pytest

from jobs.corpus import CATEGORIES, endless, passages
from jobs.job import Workload
from jobs.request import Request
from jobs.samples import Sample
from jobs.workload import plan, prompts, size, unneeded

WORK = Workload(temperatures=(0.0, 0.7), repeats=3, fill=(0.95,), max_tokens=64, warmups=2)


def planned(work: Workload = WORK, **more: object) -> tuple[Request, ...]:
    """The requests of one arm."""
    return plan(work, prompts(work), **{"context": 200_192, "nonce": "run1", **more})  # type: ignore[arg-type] # loose on purpose


def test_everything_is_measured_prompts_times_temperatures_times_repeats() -> None:
    """After the warm-ups, and before the long ones."""
    requests = planned()
    short = [request for request in requests if not request.warmup and request.fill is None]
    assert len(short) == 3 * 2 * 3
    assert {request.prompt for request in short} == {"prose", "code", "reasoning"}
    assert [request.warmup for request in requests[:3]] == [True, True, False]
    assert len({request.id for request in requests}) == len(requests)


def test_a_level_is_filled_once_and_then_reused() -> None:
    """One cold prefill; decoding is measured behind it at each temperature."""
    deep = [request for request in planned() if request.fill is not None]
    assert [request.cached for request in deep] == [False, True, True, True, True, True]
    assert {(request.tokens, request.nonce) for request in deep} == {
        (190_182, "run1/candidate/0.95")
    }
    assert [request.temperature for request in deep] == [0.0] * 3 + [0.7] * 3


def test_a_full_level_leaves_room_for_the_answer() -> None:
    """A prompt that fills everything could not be answered."""
    (first, *_) = [r for r in planned(WORK.model_copy(update={"fill": (1.0,)})) if r.fill]
    assert first.tokens == 200_192 - 64 - 64


def test_both_arms_are_asked_the_same() -> None:
    """Same texts and seeds; only the long prompts differ in their nonce."""
    one, other = planned(), planned(arm="baseline")
    assert [(r.text, r.seed, r.temperature) for r in one] == [
        (r.text, r.seed, r.temperature) for r in other
    ]
    assert one[-1].nonce != other[-1].nonce


def test_a_fill_needs_a_context() -> None:
    """And a context needs room."""
    with pytest.raises(ValueError, match="the context, which is not known"):
        planned(context=None)
    with pytest.raises(ValueError, match="no room"):
        planned(context=100)


def test_prompts_of_a_file_stand_between_dashes(tmp_path: Path) -> None:
    """Each with a name of its own; an empty file is told."""
    file = tmp_path / "mine.txt"
    file.write_text("one\n\nstill one\n---\ntwo\n---\n\n")
    work = Workload(prompts=str(file))
    assert [(one.name, one.text) for one in prompts(work)] == [
        ("mine-1", "one\n\nstill one"),
        ("mine-2", "two"),
    ]
    file.write_text("---\n")
    with pytest.raises(ValueError, match="holds no prompt"):
        prompts(work)


def test_one_kind_of_builtin_prompt() -> None:
    """By its name."""
    assert [one.name for one in prompts(Workload(prompts="builtin:code"))] == ["code"]


def test_the_size_of_a_workload() -> None:
    """Cached prompts cost nothing to read again."""
    prompt, generated = size(planned())
    assert prompt > 190_000
    assert prompt < 200_000
    assert generated == 64 * len(planned())


def _reply(request: Request, **more: object) -> Sample:
    base = Sample(
        request.arm, request.id, request.temperature, request.prompt, fill=request.fill,
        asked=64, predicted_n=64, predicted_ms=1000.0, warmup=request.warmup,
    )  # fmt: skip
    return replace(base, **more)  # type: ignore[arg-type] # loose on purpose


def test_warming_up_ends_when_two_replies_agree() -> None:
    """Within three per cent."""
    warm = [
        request for request in planned(WORK.model_copy(update={"warmups": 5})) if request.warmup
    ]
    uneven = [_reply(warm[0]), _reply(warm[1], predicted_ms=900.0)]
    assert unneeded(warm[2], uneven) is None
    settled = [*uneven, _reply(warm[2], predicted_ms=910.0)]
    assert "agree" in (unneeded(warm[3], settled) or "")


def test_nothing_is_measured_behind_a_context_that_was_not_filled() -> None:
    """The cold prompt failed, so each further one would be cold, too."""
    cold, again, *_ = (request for request in planned() if request.fill)
    assert unneeded(cold, []) is None
    assert unneeded(again, [_reply(cold)]) is None
    assert "not filled" in (unneeded(again, [_reply(cold, valid=False)]) or "")


def test_a_server_that_does_not_reuse_prompts_is_not_asked_again() -> None:
    """Each reply would cost a whole prefill."""
    cold, second, third, *_ = (request for request in planned() if request.fill)
    first = _reply(cold, cache_n=0)
    reused = _reply(second, cache_n=190_000)
    anew = _reply(second, cache_n=0)
    assert unneeded(third, [first, reused]) is None
    assert "does not reuse" in (unneeded(third, [first, anew]) or "")


def test_the_corpus_is_varied_and_the_same_for_the_same_nonce() -> None:
    """Long prompts of one run are never those of another."""
    one, same, other = (endless(nonce) for nonce in ("a", "a", "b"))
    texts = [next(one) for _ in range(100)]
    assert texts == [next(same) for _ in range(100)]
    assert texts[:32] != [next(other) for _ in range(32)]
    assert len(set(texts)) > 60
    assert "«" not in "".join(texts)


def test_each_category_has_its_texts() -> None:
    """Prose, code and reasoning, well above ten thousand characters in all."""
    assert all(len(passages(category)) >= 10 for category in CATEGORIES)
    assert sum(len(text) for category in CATEGORIES for text in passages(category)) > 15_000


@pytest.mark.parametrize(
    ("raw", "why"),
    [(b"ol\xe9", "is not UTF-8 text"), (b"---\n \n", "holds no prompt")],
)
def test_a_file_of_prompts_that_cannot_be_used_is_told(
    tmp_path: Path, raw: bytes, why: str
) -> None:
    """With its path."""
    file = tmp_path / "prompts.txt"
    file.write_bytes(raw)
    with pytest.raises(ValueError, match=f"^{file} {why}$"):
        prompts(Workload(prompts=str(file)))


def test_a_file_of_prompts_is_never_cut(tmp_path: Path) -> None:
    """What was read would end in the middle of one of them."""
    file = tmp_path / "prompts.txt"
    file.write_text("a" * ((16 << 20) + 1))
    with pytest.raises(ValueError, match="is larger than 16 MiB"):
        prompts(Workload(prompts=str(file)))
