"""Context: as the running server says it, and filled by a real prompt."""

from dataclasses import replace

import pytest

from jobs.claims import ClaimState, Context, Judged
from jobs.evidence import Evidence
from jobs.samples import Sample
from tests.jobs.claims.cases import evidence, reply

CLAIM = Context(tokens=200_000)
PROPS = evidence("n_ctx", 200_192, "default_generation_settings.n_ctx = 200192", "GET /props")
SLOT = evidence("slot.n_ctx", 200_192, "slot 0 n_ctx = 200192", "GET /slots")
FULL = reply(request="candidate/fill-0.95/t0/1", fill=0.95, depth=190_000, prompt_n=190_000)


def judge(*seen: Evidence, samples: tuple[Sample, ...] = (FULL,), claim: Context = CLAIM) -> Judged:
    """The judgement of a run."""
    return claim.judge(seen, samples)


def test_allocated_and_filled_is_proven() -> None:
    """Both numbers are shown with their sources."""
    found = judge(PROPS, SLOT)
    assert found.state is ClaimState.PROVEN
    assert found.found == "n_ctx 200192 per request, 190000 tokens filled (95 %)"
    assert [item.source for item in found.evidence] == [
        "GET /props", "GET /slots", "timings of candidate/fill-0.95/t0/1",
    ]  # fmt: skip
    assert found.numbers == {"n_ctx": 200192, "filled": 190000, "filled_share": 0.95}


def test_a_shrunken_context_is_refuted_with_both_numbers() -> None:
    """Asked 200000, got 65536, though every request succeeded."""
    found = judge(evidence("n_ctx", 65_536, source="GET /props"))
    assert found.state is ClaimState.REFUTED
    assert found.said == "refuted: context 65,536, wanted 200,000 (GET /props)"


def test_the_line_about_a_capped_context_is_shown() -> None:
    """`-c 200000` on a model of 4096: the log knew."""
    line = evidence("log.context.capped", None, "exceeds the training context - capping")
    found = judge(evidence("slot.n_ctx", 4096, source="GET /slots"), line)
    assert (found.state, line in found.evidence) == (ClaimState.REFUTED, True)


@pytest.mark.parametrize("filled", [10_000, 179_999])
def test_allocated_but_not_filled_is_unproven_and_said(filled: int) -> None:
    """A little less than was asked for is less."""
    found = judge(PROPS, SLOT, samples=(replace(FULL, prompt_n=filled),))
    assert found.state is ClaimState.UNPROVEN
    assert f"200,192 tokens are allocated, but only {filled:,} were filled" in found.said
    assert "wanted 180,000" in found.said


def test_what_the_cache_held_counts_as_filled() -> None:
    """A second reply behind the same prompt holds it, too."""
    again = replace(FULL, prompt_n=4, cache_n=189_996)
    assert judge(PROPS, samples=(again,)).state is ClaimState.PROVEN


def test_a_small_share_may_be_enough() -> None:
    """The demo fills five per cent, and says so."""
    claim = Context(tokens=200_000, filled_at_least=0.05)
    found = judge(PROPS, samples=(replace(FULL, prompt_n=10_010),), claim=claim)
    assert (found.state, "(5.0 %)" in found.said) == (ClaimState.PROVEN, True)


def test_a_failed_fill_says_why() -> None:
    """The reason of the reply that should have filled it."""
    lost = replace(FULL, valid=False, why="the server took 4096 of 190000 prompt tokens")
    found = judge(PROPS, samples=(reply(), lost))
    assert found.state is ClaimState.UNPROVEN
    assert found.said.endswith("candidate/fill-0.95/t0/1: " + lost.why)


def test_pages_that_disagree_are_contradicted() -> None:
    """`/props` and `/slots` of one server name two sizes."""
    found = judge(PROPS, replace(SLOT, value=262_144))
    assert found.state is ClaimState.CONTRADICTED
    assert "GET /props says 200192, GET /slots says 262144" in found.said


def test_more_used_than_there_is_is_contradicted() -> None:
    """A prompt and an answer cannot be longer than their context."""
    found = judge(PROPS, samples=(replace(FULL, prompt_n=200_190, predicted_n=64),))
    assert found.state is ClaimState.CONTRADICTED
    assert "used 200254 tokens of a context of 200192" in found.said


def test_a_truncated_prompt_is_contradicted() -> None:
    """The server says it holds so much, and cut what was sent."""
    found = judge(PROPS, samples=(replace(FULL, truncated=True, valid=False),))
    assert (found.state, "truncated the prompt" in found.said) == (ClaimState.CONTRADICTED, True)


def test_a_server_that_does_not_say_how_large_it_is() -> None:
    """Only a prompt of the whole size would prove it."""
    found = judge()
    assert found.state is ClaimState.UNPROVEN
    assert "does not say how large its context is; 190,000 tokens were filled" in found.said
    assert judge(samples=(replace(FULL, prompt_n=200_000),)).state is ClaimState.PROVEN


def test_the_other_arm_proves_nothing() -> None:
    """Neither its pages nor its prompts."""
    pages = replace(PROPS, arm="baseline")
    assert judge(pages, samples=(replace(FULL, arm="baseline"),)).state is ClaimState.UNPROVEN


def test_the_claim_in_words() -> None:
    """For a plan."""
    assert CLAIM.wanted == ("at least 200000 tokens for one request, of which 180000 filled (90 %)")


def test_a_slot_that_is_smaller_than_the_whole_refutes() -> None:
    """The page of the server says 200,192; what one request may use says less."""
    found = judge(PROPS, evidence("slot.n_ctx", 50_048, source="GET /slots"))
    assert found.state is ClaimState.REFUTED
    assert "context 50,048, wanted 200,000 (GET /slots)" in found.said
