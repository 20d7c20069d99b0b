"""Rates come from raw counts, and only from replies that can tell them."""

from dataclasses import replace

import pytest

from jobs.samples import Sample, decoding_tps, measured, poisoned, prompt_tps

REPLY = Sample("candidate", "r", 0.0, asked=35, predicted_n=35, predicted_ms=661.064)
PROMPT = Sample("candidate", "r", 0.0, prompt_n=602, prompt_ms=1909.0, cache_n=0)


def test_decoding_leaves_out_the_first_token() -> None:
    """35 tokens in 661.064 ms are 51.43 tokens/s, not the 52.94 that older builds printed."""
    assert decoding_tps(REPLY) == pytest.approx(51.43, abs=0.01)


@pytest.mark.parametrize(
    "reply",
    [
        replace(REPLY, valid=False),
        replace(REPLY, predicted_ms=None),
        replace(REPLY, predicted_ms=0.0),
        replace(REPLY, predicted_n=None),
        replace(REPLY, predicted_n=1, asked=1),
        replace(REPLY, asked=256),
        replace(REPLY, predicted_n=10, asked=12),
    ],
)
def test_a_reply_that_cannot_tell_has_no_rate(reply: Sample) -> None:
    """Failed, untimed, or ended long before what was asked for."""
    assert decoding_tps(reply) is None


def test_a_cached_prompt_says_nothing_of_reading_one() -> None:
    """The same prompt twice: 1909 ms, then 24; neither rate of the second is one."""
    assert prompt_tps(PROMPT) == pytest.approx(315.3, abs=0.1)
    cached = replace(PROMPT, prompt_n=1, cache_n=601, prompt_ms=24.1)
    assert poisoned(cached)
    assert prompt_tps(cached) is None
    assert decoding_tps(replace(REPLY, cache_n=601)) is not None


def test_a_first_token_in_the_cache_is_no_poison() -> None:
    """Every prompt begins with it."""
    assert prompt_tps(replace(PROMPT, cache_n=1, prompt_n=601)) is not None


@pytest.mark.parametrize("prompt", [replace(PROMPT, prompt_n=500), replace(PROMPT, prompt_ms=None)])
def test_short_prompts_are_not_timed(prompt: Sample) -> None:
    """They measure the start, not the reading."""
    assert prompt_tps(prompt) is None


def test_only_valid_replies_of_an_arm_count() -> None:
    """No warm-up, no failure, no other arm."""
    samples = [
        REPLY,
        replace(REPLY, warmup=True),
        replace(REPLY, valid=False),
        replace(REPLY, arm="baseline"),
    ]
    assert measured(samples, "candidate") == (REPLY,)


def test_a_sample_is_plain_json_with_its_rates() -> None:
    """As it stands in samples.jsonl."""
    said = REPLY.to_json()
    assert said["decoding_tps"] == pytest.approx(51.43, abs=0.01)
    assert said["prompt_tps"] is None
    assert PROMPT.filled == 602
    assert REPLY.filled is None
