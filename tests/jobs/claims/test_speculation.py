"""Speculation: proven by two counters that agree, never by a flag."""

import json
from pathlib import Path
from typing import Any

import pytest

from jobs.claims import ClaimState, Judged, Speculation
from jobs.evidence import Evidence
from jobs.samples import Sample
from jobs.servers import LlamaCpp
from tests.jobs.claims.cases import N_MAX, POSITION, STATISTICS, STEPS, counters, evidence, reply

MTP = Speculation(type="draft-mtp", acceptance_at_least=0.55)
REPLIES = [reply(112, 94), reply(111, 93), reply(112, 94)]
AGREE = [*counters(335, 281, 114), N_MAX, STATISTICS]
OFF = "E srv load_model: failed to initialize speculative decoding context: unsupported"


def judge(
    seen: list[Evidence], samples: list[Sample] | None = None, claim: Speculation = MTP
) -> Judged:
    """The judgement of a run."""
    return claim.judge(seen, REPLIES if samples is None else samples)


def test_counters_that_agree_prove_it() -> None:
    """Replies and server count the same drafts; acceptance is sum over sum."""
    found = judge(AGREE)
    assert found.state is ClaimState.PROVEN
    assert found.numbers["acceptance"] == pytest.approx(0.8388, abs=1e-4)
    assert found.found == "335 drafted, 281 accepted in 3 replies, acceptance 0.839"
    assert {item.kind for item in found.evidence} >= {"drafted", "accepted", STATISTICS.kind}
    assert found.said == "draft-mtp speculation ran, acceptance 0.84 (281 of 335)"


def test_the_same_evidence_gives_the_same_judgement() -> None:
    """To the last byte; there is no clock in it."""
    one, other = (json.dumps(judge(AGREE).to_json()) for _ in range(2))
    assert one == other


def test_too_few_accepted_refutes_it() -> None:
    """It ran, and the wish was higher."""
    found = judge(AGREE, claim=Speculation(acceptance_at_least=0.9))
    assert found.state is ClaimState.REFUTED
    assert "acceptance 0.84 (281 of 335), wanted at least 0.9" in found.said


def test_acceptance_of_one_temperature() -> None:
    """Temperature 0 and 0.7 are different cells; a warm-up is none."""
    samples = [*REPLIES, reply(100, 10, temperature=0.7), reply(50, 0, warmup=True)]
    moved = [*counters(485, 291), STATISTICS]
    cold = Speculation(acceptance_at_least=0.8, temperature=0.0)
    warm = Speculation(acceptance_at_least=0.8, temperature=0.7)
    assert judge(moved, samples, cold).state is ClaimState.PROVEN
    assert judge(moved, samples, warm).state is ClaimState.REFUTED


def test_mtp_requested_and_not_running_is_refuted_with_its_counter() -> None:
    """Flags set, replies fine, nought drafted: the log line is quoted."""
    line = evidence("log.speculation.off", None, OFF, "log:candidate.log")
    found = judge([*counters(0, 0), line], [reply()] * 3)
    assert found.state is ClaimState.REFUTED
    assert "not active: the server counted 0 drafted tokens" in found.said
    assert OFF in found.said
    assert line in found.evidence


def test_a_server_that_says_it_does_not_speculate_is_believed() -> None:
    """`/slots` is no echo of a flag."""
    found = judge([evidence("slot.speculative", False)], [reply()] * 3)
    assert (found.state, "speculative = false" in found.said) == (ClaimState.REFUTED, True)


def test_no_counter_at_all_is_unproven() -> None:
    """Not refuted: nobody counted."""
    found = judge([], [reply()] * 3)
    assert found.state is ClaimState.UNPROVEN
    assert found.said == "unproven: no counter of drafted tokens on this server"


def test_one_count_of_two_is_unproven() -> None:
    """llama-server has `/metrics`; that it does not answer is an unknown."""
    absent = evidence("metrics.absent", None, "501 Start it with --metrics")
    found = judge([absent, STATISTICS])
    assert found.state is ClaimState.UNPROVEN
    assert "only the replies count drafts; /metrics: 501 Start it" in found.said


def test_a_server_that_only_counts_in_replies_is_believed() -> None:
    """Where there is no page of counters, replies are what there is."""
    assert judge([], claim=Speculation()).state is ClaimState.PROVEN


def test_a_server_that_only_counts_on_its_page_is_believed() -> None:
    """But it has no acceptance of measured replies."""
    moved = counters(335, 281)
    assert judge(moved, [reply()] * 3, Speculation()).state is ClaimState.PROVEN
    found = judge(moved, [reply()] * 3, Speculation(acceptance_at_least=0.5))
    assert (found.state, "there is no acceptance" in found.said) == (ClaimState.UNPROVEN, True)


def test_two_replies_are_too_few() -> None:
    """One may be chance."""
    found = judge([*counters(20, 10), STATISTICS], [reply(10, 5)] * 2)
    assert (found.state, "only 2 replies drafted" in found.said) == (ClaimState.UNPROVEN, True)


def test_drafts_that_are_never_accepted_refute_it() -> None:
    """They only cost."""
    found = judge([*counters(336, 0), STATISTICS], [reply(112, 0)] * 3)
    assert (found.state, "none accepted" in found.said) == (ClaimState.REFUTED, True)


@pytest.mark.parametrize(
    ("seen", "samples", "why"),
    [
        (counters(0, 0), REPLIES, "the replies count 335 drafted tokens, the server 0"),
        (counters(335, 280), REPLIES, "the replies count 281 accepted tokens, the server 280"),
        (counters(400, 281), REPLIES, "the replies count 335 drafted tokens, the server 400"),
        (counters(10, 11), [reply()] * 3, "the counters accepted 11 of 10 drafted tokens"),
        ([], [reply(10, 11)] * 3, "the replies accepted 33 of 30 drafted tokens"),
        ([*counters(335, 281, 100), N_MAX], REPLIES, "335 tokens in 100 drafts of at most 3"),
        (counters(335, 281), [*REPLIES[:2], reply(111, 94)], "drafted tokens"),
        ([*counters(335, 281), evidence(f'{POSITION}{{position="0"}}', 200)], REPLIES, "positions add up to 200"),
        ([*counters(335, 281), evidence(f'{POSITION}{{position="10"}}', 181), evidence(f'{POSITION}{{position="2"}}', 100)], REPLIES, "a later draft position"),
        ([*counters(335, 281), evidence("slot.speculative", False)], REPLIES, "/slots says speculative = false"),
        ([*counters(335, 281), evidence("log.speculation.off", None, OFF)], REPLIES, f"yet the log says: {OFF}"),
        ([*counters(335, 281), evidence("log.speculation.synthetic", None, "synthetic")], REPLIES, "yet the log says: synthetic"),
        ([*counters(335, 281), evidence("log.speculation.mtp_unused", None, "unused")], REPLIES, "yet the log says: unused"),
    ],
)  # fmt: skip
def test_counters_that_give_each_other_the_lie_are_contradicted(
    seen: list[Evidence], samples: list[Sample], why: str
) -> None:
    """Then none of them is believed."""
    found = judge([*seen, STATISTICS], samples)
    assert found.state is ClaimState.CONTRADICTED
    assert why in found.said


def test_a_mean_length_beyond_the_limit_is_inconsistent() -> None:
    """Acceptance .615 at a mean length of 3.2 would mean 3.58 tokens a draft of at most 3."""
    steps = 1000
    accepted, drafted = round(2.2 * steps), round(2.2 / 0.615 * steps)
    samples = [
        reply(drafted // 2, accepted // 2),
        reply(drafted - drafted // 2, accepted - accepted // 2),
    ]
    bad = [*counters(drafted, accepted, steps), N_MAX, STATISTICS]
    assert judge(bad, [*samples, reply(0, 0)]).state is ClaimState.CONTRADICTED
    drafted = round(1.83 / 0.615 * steps)
    good = [*counters(drafted, 1830, steps), N_MAX, STATISTICS]
    samples = [reply(drafted - 2, 1828), reply(1, 1), reply(1, 1)]
    assert judge(good, samples).state is ClaimState.PROVEN


def test_a_reply_that_never_came_may_have_moved_the_counters() -> None:
    """Then more is counted on the page than in the replies, and that is no lie."""
    lost = reply(None, None, predicted_n=None, valid=False, why="no answer")
    assert judge([*counters(400, 300), STATISTICS], [*REPLIES, lost]).state is ClaimState.PROVEN


def test_counters_of_the_other_arm_prove_nothing() -> None:
    """Nor do its replies."""
    other = [
        Evidence(item.kind, item.source, item.said, item.value, item.at, "baseline")
        for item in AGREE
    ]
    samples = [reply(112, 94, arm="baseline")] * 3
    assert judge(other, samples).state is ClaimState.UNPROVEN


def test_another_implementation_is_not_the_claimed_one() -> None:
    """With several, the counters mix them; the statistics line does not."""
    line = evidence("log.statistics.ngram-mod", 335, "statistics ngram-mod: …")
    found = judge([*counters(335, 281), line])
    assert found.state is ClaimState.REFUTED
    assert "ngram-mod drafted, not draft-mtp" in found.said
    idle = evidence("log.statistics.draft-mtp", 0, "statistics draft-mtp: …")
    assert judge([*counters(335, 281), line, idle]).state is ClaimState.REFUTED
    assert judge([*counters(335, 281), line, STATISTICS]).state is ClaimState.PROVEN


def test_a_log_that_does_not_name_the_implementation_leaves_it_unproven() -> None:
    """The line that a model was given is no proof; `adding …` is only an intent."""
    added = evidence("log.speculation.type", "draft-mtp", "adding speculative implementation")
    found = judge([*counters(335, 281), added])
    assert (found.state, "no line of the log says" in found.said) == (ClaimState.UNPROVEN, True)
    assert judge(counters(335, 281), claim=Speculation()).state is ClaimState.PROVEN


def test_checkpoints_are_no_contradiction() -> None:
    """Slow, and yet it ran."""
    line = evidence(
        "log.speculation.checkpoints", None, "speculative decoding will use checkpoints"
    )
    assert judge([*AGREE, line]).state is ClaimState.PROVEN


def test_unused_mtp_layers_are_fine_with_another_draft() -> None:
    """A separate draft model leaves the model's own layer idle."""
    line = evidence("log.speculation.mtp_unused", None, "unused")
    assert judge([*counters(335, 281), line], claim=Speculation()).state is ClaimState.PROVEN


@pytest.mark.parametrize("name", ["no_mtp_layers", "plain_on_mtp_model"])
def test_logs_of_real_servers_that_did_not_draft(name: str) -> None:
    """Two ways in which MTP was not there."""
    log = (Path(__file__).parents[1] / "logs" / f"{name}.log").read_text()
    found = judge([*LlamaCpp().log_evidence(log)], [reply()] * 3)
    assert (found.state, "the log says: " in found.said) == (ClaimState.REFUTED, True)


def test_the_claim_in_words() -> None:
    """For a plan."""
    assert MTP.wanted == "draft-mtp drafts made and accepted, at least 0.55 of them"
    assert Speculation().wanted == "drafts made and accepted"


def test_a_judgement_is_plain_json() -> None:
    """With its evidence."""
    said: dict[str, Any] = json.loads(json.dumps(judge(AGREE).to_json(), allow_nan=False))
    assert list(said) == ["kind", "state", "said", "wanted", "found", "numbers", "evidence"]
    drafted = next(item for item in said["evidence"] if item["kind"] == "drafted")
    assert (drafted["value"], drafted["source"]) == (335, "timings of 3 replies")


def test_a_server_that_counts_less_than_its_replies_is_contradicted() -> None:
    """A reply that never came can only have moved the counter further."""
    lost = reply(predicted_n=None, valid=False)
    found = judge([*counters(300, 281), STATISTICS], [*REPLIES, lost])
    assert found.state is ClaimState.CONTRADICTED
    assert "the replies count 335 drafted tokens, the server 300" in found.said


def test_tokens_in_no_draft_are_contradicted() -> None:
    """Drafted, without one step of drafting."""
    found = judge([*AGREE[:2], evidence(STEPS, 0), STATISTICS])
    assert found.state is ClaimState.CONTRADICTED
    assert "335 tokens in no draft at all" in found.said


@pytest.mark.parametrize(
    ("wanted", "state"), [(0.5, ClaimState.PROVEN), (0.505, ClaimState.REFUTED)]
)
def test_exactly_what_was_wanted_is_enough(wanted: float, state: ClaimState) -> None:
    """And half a per cent less is not."""
    replies = [reply(100, 50)] * 3
    found = judge([*counters(300, 150)], replies, Speculation(acceptance_at_least=wanted))
    assert found.state is state
