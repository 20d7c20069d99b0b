"""Throughput: medians of server-timed replies, and honest comparisons."""

import pytest
from pydantic import ValidationError

from jobs.claims import ClaimState, Judged, Throughput
from jobs.samples import Sample
from tests.jobs.claims.cases import reply, speeds

FAST = [70.29, 70.64, 71.0, 71.35, 71.71]
PLAIN = [56.83, 57.11, 57.4, 57.69, 57.97]
AGAINST = Throughput(temperature=0.0, faster_than="baseline")


def judge(claim: Throughput, *samples: Sample) -> Judged:
    """The judgement of a run."""
    return claim.judge((), samples)


def test_a_median_over_the_number_is_proven() -> None:
    """From raw counts, with every rate shown."""
    found = judge(Throughput(temperature=0.0, at_least=70), *speeds("candidate", FAST))
    assert found.state is ClaimState.PROVEN
    assert found.found == "median 71.0 tokens/s of 5"
    assert found.evidence[0].value == pytest.approx(71.0)
    assert "70.29, 70.64, 71.00, 71.35, 71.71 tokens/s" in found.evidence[0].said


def test_a_median_under_the_number_is_refuted() -> None:
    """With both."""
    found = judge(Throughput(at_least=72), *speeds("candidate", FAST))
    assert found.state is ClaimState.REFUTED
    assert found.said == "refuted: decoding at temperature 0: 71.0 tokens/s, wanted 72"


def test_a_slow_start_does_not_move_the_median() -> None:
    """Warm-ups are dropped, and one slow reply is one slow reply."""
    slow = [*speeds("candidate", [5.0], warmup=True), *speeds("candidate", [40.0, *FAST])]
    found = judge(Throughput(at_least=70), *slow)
    assert found.state is ClaimState.PROVEN


def test_a_server_prints_its_rate_and_is_not_believed() -> None:
    """Only counts and milliseconds are used: (65 - 1) / ms."""
    (sample,) = speeds("candidate", [64.0])
    assert sample.predicted_ms == 1000
    found = judge(Throughput(at_least=63.9), *[sample] * 3)
    assert found.numbers["temperatures"][0]["median"] == 64.0  # type: ignore[index] # plain JSON


def test_faster_than_the_baseline() -> None:
    """+24 % with little noise, from five runs each."""
    found = judge(AGAINST, *speeds("candidate", FAST), *speeds("baseline", PLAIN))
    assert found.state is ClaimState.PROVEN
    assert "faster: +24 %" in found.said


@pytest.mark.parametrize(
    ("mine", "theirs", "state", "said"),
    [
        (PLAIN, FAST, ClaimState.REFUTED, "slower: -19 %"),
        (PLAIN, PLAIN, ClaimState.REFUTED, "even (+0 %"),
        (FAST, [40.0, 52.0, 60.0, 71.0, 90.0], ClaimState.UNPROVEN, "not enough runs"),
        (FAST, PLAIN[:2], ClaimState.UNPROVEN, "5 against 2"),
        (FAST, [], ClaimState.UNPROVEN, "5 against 0"),
    ],
)
def test_not_faster_is_told_apart(
    mine: list[float], theirs: list[float], state: ClaimState, said: str
) -> None:
    """Slower and even are answers; too few runs are none."""
    samples = [*speeds("candidate", mine), *speeds("baseline", theirs)]
    found = judge(AGAINST, *samples)
    assert found.state is state
    assert said in found.said


def test_running_and_slower_are_two_answers() -> None:
    """Drafts at 34 % acceptance, 21 against 55 tokens/s."""
    samples = [
        *speeds("candidate", [21, 21.2, 20.8, 21.1, 20.9]),
        *speeds("baseline", [55, 55.4, 54.6, 55.2, 54.8]),
    ]
    found = judge(AGAINST, *samples)
    assert found.state is ClaimState.REFUTED
    comparison = found.numbers["temperatures"][0]["comparison"]  # type: ignore[index] # plain JSON
    assert comparison["verdict"] == "slower"
    assert comparison["ratio_of_medians"] == pytest.approx(0.38, abs=0.01)


def test_each_temperature_is_judged_by_itself() -> None:
    """Without one the worst of them counts; another temperature's replies never do."""
    samples = [*speeds("candidate", FAST), *speeds("candidate", PLAIN, temperature=0.7)]
    both = judge(Throughput(at_least=60), *samples)
    assert both.state is ClaimState.REFUTED
    assert "decoding at temperature 0: 71.0" in both.said
    assert "decoding at temperature 0.7: 57.4" in both.said
    assert judge(Throughput(temperature=0.0, at_least=60), *samples).state is ClaimState.PROVEN


def test_depth_is_another_measurement() -> None:
    """Decoding behind a filled context counts there, and only there; a cached prompt is fine for it."""
    deep = speeds("candidate", [25.0, 25.1, 24.9], fill=0.95, prompt_n=4, cache_n=189_996)
    samples = [*speeds("candidate", FAST), *deep]
    found = judge(Throughput(at_least=20, depth=0.95), *samples)
    assert (found.state, "median 25.0 tokens/s of 3" in found.found) == (ClaimState.PROVEN, True)
    assert judge(Throughput(at_least=60), *samples).state is ClaimState.PROVEN


def test_reading_a_prompt_is_measured_on_cold_ones_only() -> None:
    """A cached prompt would show eighty times the speed."""
    cold = [reply(prompt_n=1000, prompt_ms=2000.0)] * 3
    cached = [reply(prompt_n=1, cache_n=999, prompt_ms=1.0)] * 9
    claim = Throughput(of="prompt", at_least=400)
    found = judge(claim, *cold, *cached)
    assert (found.state, found.found) == (ClaimState.PROVEN, "median 500.0 tokens/s of 3")
    found = judge(claim, *cached)
    assert found.state is ClaimState.UNPROVEN
    assert "9 of 9 prompts were cached" in found.said


def test_a_server_that_times_nothing_proves_nothing() -> None:
    """Said, so that nobody waits for another night."""
    found = judge(Throughput(at_least=1), *[reply(predicted_ms=None)] * 5)
    assert (found.state, "does not time its replies" in found.said) == (ClaimState.UNPROVEN, True)


def test_two_replies_are_too_few() -> None:
    """And none at all."""
    found = judge(Throughput(at_least=1), *speeds("candidate", FAST[:2]))
    assert "2 replies count, at least 3 are needed" in found.said
    assert judge(Throughput(at_least=1)).said == "unproven: no reply was measured"


def test_failed_replies_do_not_count() -> None:
    """They are kept, and judge nothing."""
    found = judge(Throughput(at_least=1), *speeds("candidate", FAST, valid=False))
    assert found.state is ClaimState.UNPROVEN


def test_the_claim_in_words() -> None:
    """For a plan; and a claim of nothing is refused."""
    both = Throughput(temperature=0.7, at_least=20, faster_than="baseline", depth=0.95)
    assert both.wanted == (
        "decoding at temperature 0.7, 95 % of the context filled: "
        "at least 20 tokens/s and faster than the baseline"
    )
    with pytest.raises(ValidationError, match="claims nothing"):
        Throughput()


def timed(arm: str, told: float, *, first: float, wall: float) -> list[Sample]:
    """Five replies with the server's decoding time beside ours, in milliseconds."""
    times = {"predicted_n": 257, "predicted_ms": told, "ttft_ms": first, "wall_ms": wall}
    return [reply(arm=arm, asked=257, **times)] * 5


@pytest.mark.parametrize(
    ("told", "first", "wall", "state"),
    [
        (4000.0, 100.0, 4150.0, ClaimState.PROVEN),
        (4000.0, 100.0, 6000.0, ClaimState.PROVEN),  # a busy machine hands over late
        (4000.0, 4090.0, 4100.0, ClaimState.PROVEN),  # a proxy hands all of it over at the end
        (12.0, 100.0, 4150.0, ClaimState.CONTRADICTED),
        (2000.0, 100.0, 4150.0, ClaimState.CONTRADICTED),
        (9000.0, 100.0, 4150.0, ClaimState.CONTRADICTED),
    ],
)
def test_a_servers_time_is_held_against_ours(
    told: float, first: float, wall: float, state: ClaimState
) -> None:
    """A server that says 12 ms for what took four seconds here has proven no speed."""
    replies = timed("candidate", told, first=first, wall=wall)
    found = judge(Throughput(at_least=1), *replies)
    assert found.state is state
    assert (f"the server says {told:.0f} ms" in found.said) is (state is ClaimState.CONTRADICTED)


def test_one_late_reply_is_no_contradiction() -> None:
    """The machine was busy once; the others tell."""
    replies = timed("candidate", 4000, first=100, wall=4150)[:4]
    late = timed("candidate", 4000, first=100, wall=60_000)[:1]
    assert judge(Throughput(at_least=1), *replies, *late).state is ClaimState.PROVEN


def test_a_baseline_that_makes_itself_slow_proves_nothing() -> None:
    """The comparison would be won against a number that nobody saw."""
    mine = timed("candidate", 4000, first=100, wall=4150)
    theirs = timed("baseline", 8000, first=100, wall=4150)
    found = judge(AGAINST, *mine, *theirs)
    assert found.state is ClaimState.CONTRADICTED
    assert "baseline: the server says 8000 ms a reply, and 4150 ms passed here" in found.said


def test_a_prompt_is_timed_until_its_first_token() -> None:
    """A thousand tokens in a millisecond, and two seconds until the first word came."""
    times = {"prompt_n": 1000, "ttft_ms": 2100.0, "wall_ms": 4000.0}
    claim = Throughput(of="prompt", at_least=400)
    told = judge(claim, *[reply(prompt_ms=2000.0, **times)] * 3)
    assert told.state is ClaimState.PROVEN
    lied = judge(claim, *[reply(prompt_ms=1.0, **times)] * 3)
    assert lied.state is ClaimState.CONTRADICTED


def test_a_reply_in_one_piece_holds_the_reading_of_its_prompt() -> None:
    """Nobody saw its first token: what the server read before is taken off, if it says how long."""
    times = {"predicted_n": 257, "asked": 257, "predicted_ms": 1000.0, "wall_ms": 9100.0}
    claim = Throughput(at_least=1)
    assert judge(claim, *[reply(prompt_ms=8000.0, **times)] * 3).state is ClaimState.PROVEN
    assert judge(claim, *[reply(prompt_ms=10.0, **times)] * 3).state is ClaimState.CONTRADICTED
    assert judge(claim, *[reply(prompt_ms=None, **times)] * 3).state is ClaimState.PROVEN


def test_a_temperature_without_one_good_reply_is_not_forgotten() -> None:
    """All of them timed out: each temperature must hold, and this one is not shown."""
    failed = speeds("candidate", FAST, temperature=0.7, valid=False)
    found = judge(Throughput(at_least=60), *speeds("candidate", FAST), *failed)
    assert found.state is ClaimState.UNPROVEN
    assert "temperature 0.7: 0 replies count" in found.said


def test_a_thousand_rates_do_not_fill_a_line() -> None:
    """They stand in samples.jsonl; the evidence shows a hundred, and how many more there are."""
    found = judge(Throughput(at_least=1), *speeds("candidate", [50.0] * 1000))
    assert found.evidence[0].said.count("50.00") == 100
    assert found.evidence[0].said.endswith("50.00 and 900 more tokens/s")


def test_faster_than_the_baseline_and_still_too_slow_is_refuted() -> None:
    """Both must hold."""
    claim = Throughput(at_least=100, faster_than="baseline")
    found = judge(claim, *speeds("candidate", FAST), *speeds("baseline", PLAIN))
    assert found.state is ClaimState.REFUTED
    assert "71.0 tokens/s, wanted 100, faster: +24 %" in found.said
