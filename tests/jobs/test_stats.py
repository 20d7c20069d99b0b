"""Statistics of speeds, against numbers that were worked out beforehand."""

import json
import math
import random
import time
from statistics import median

import pytest

from jobs import stats
from jobs.stats import Comparison, compare, hl_ratio, interval, pooled, runs_for_even


def spread(middle: float, share: float, count: int) -> list[float]:
    """`count` evenly spaced speeds over middle ± share, rounded to two places."""
    step = 2 * middle * share / (count - 1)
    return [round(middle * (1 - share) + step * place, 2) for place in range(count)]


WIN = ([70.29, 70.64, 71.0, 71.35, 71.71], [56.83, 57.11, 57.4, 57.69, 57.97])


def test_a_clear_win_is_faster() -> None:
    """Temperature 0, one per cent of noise: +24 % from five runs each."""
    found = compare(*WIN)
    assert found.verdict == "faster"
    assert found.ratio_of_medians == pytest.approx(1.2369, abs=1e-4)
    assert found.interval_95 == pytest.approx((1.2186, 1.2555), abs=1e-4)
    assert found.p_different == pytest.approx(0.0079, abs=1e-4)
    assert found.text().startswith("faster: +24 %")


@pytest.mark.parametrize(
    ("count", "matters", "verdict", "bound"),
    [
        (5, 0.20, "not_enough_runs", 0.245),
        (7, 0.05, "parity", 0.175),
        (9, 0.10, "parity", 0.146),
        (31, 0.10, "even", 0.075),
        (31, 0.05, "parity", 0.075),
    ],
)
def test_noise_of_a_fifth_needs_runs(
    count: int, matters: float, verdict: str, bound: float
) -> None:
    """Temperature 0.7: what is provable depends on how often it was measured, and is said."""
    found = compare(spread(55.3, 0.2, count), spread(54.3, 0.2, count), matters)
    assert found.verdict == verdict
    assert found.ratio_of_medians == pytest.approx(1.0184, abs=1e-4)
    assert found.bound == pytest.approx(bound, abs=1e-3)


def test_the_intervals_are_those_of_the_fixtures() -> None:
    """90 % intervals at 5, 7 and 9 runs, and the p of even at 20 %."""
    found = {n: compare(spread(55.3, 0.2, n), spread(54.3, 0.2, n), 0.2) for n in (5, 7, 9)}
    assert found[5].interval_90 == pytest.approx((0.8332, 1.2447), abs=1e-4)
    assert found[7].interval_90 == pytest.approx((0.8827, 1.1751), abs=1e-4)
    assert found[9].interval_90 == pytest.approx((0.9053, 1.1457), abs=1e-4)
    assert [found[n].p_even for n in (5, 7, 9)] == pytest.approx([0.111, 0.0364, 0.0157], abs=2e-3)


def test_a_slow_arm_is_slower() -> None:
    """The incident's 2.7 times slower draft without rollback."""
    found = compare(spread(21, 0.05, 5), spread(57.4, 0.01, 5))
    assert found.verdict == "slower"
    assert found.ratio_of_medians == pytest.approx(0.3659, abs=1e-4)
    assert "-63 %" in found.text()


def test_the_same_twice_is_even() -> None:
    """An A/A control, with the smallest difference that it rules out."""
    found = compare(spread(57.4, 0.01, 5), spread(57.5, 0.01, 5))
    assert found.verdict == "even"
    assert found.bound == pytest.approx(0.012, abs=1e-3)
    assert found.p_even == pytest.approx(0.004, abs=1e-3)
    assert found.text() == "even (+0 %; no difference beyond ±1.2 %, and ±5 % is what matters)"


def test_real_but_negligible_is_even() -> None:
    """Three per cent, surely; but five is what matters."""
    found = compare(spread(59.1, 0.01, 7), spread(57.4, 0.01, 7))
    assert found.verdict == "even"
    assert found.interval_95 is not None
    assert found.interval_95[0] > 1


def test_a_regression_is_slower() -> None:
    """Fourteen per cent."""
    found = compare(spread(48, 0.02, 5), spread(55.6, 0.02, 5))
    assert (found.verdict, round(found.hl_ratio or 0, 4)) == ("slower", 0.8633)
    assert found.interval_95 is not None
    assert found.interval_95[1] == pytest.approx(0.8895, abs=1e-4)


def test_three_runs_can_only_show_large_differences() -> None:
    """By a t-test, tagged as few; rank tests can never show anything with three."""
    assert interval([1, 2, 3], [1, 2, 3]) is None
    found = compare([value[0] for value in zip(WIN[0], range(3), strict=False)], WIN[1][:3])
    assert (found.verdict, found.small, found.bound) == ("faster", True, None)
    assert "from 3 runs only" in found.text()
    assert compare(spread(57, 0.01, 3), spread(54, 0.01, 3)).verdict == "not_enough_runs"


@pytest.mark.parametrize(("a", "b"), [([], []), ([1.0], [2.0]), ([1.0, 2.0], [3.0] * 9)])
def test_fewer_than_three_is_not_enough(a: list[float], b: list[float]) -> None:
    """Whatever the numbers."""
    found = compare(a, b)
    assert found.verdict == "not_enough_runs"
    assert "not enough runs" in found.text()


def test_identical_speeds_are_even() -> None:
    """A stand-in server has no noise at all."""
    assert compare([20.0] * 5, [20.0] * 5).verdict == "even"
    assert compare([30.0] * 3, [20.0] * 3).verdict == "faster"


def test_a_speed_of_nought_is_a_bug() -> None:
    """It would be a ratio without end."""
    with pytest.raises(ValueError, match="over nought"):
        compare([1, 0, 1], [1, 1, 1])


def test_noisy_samples_of_three_arms() -> None:
    """One slow first run changes nothing: B against A is no difference, C against A0 is +24 %."""
    a, b = [41.0, 54.3, 48.9, 61.2, 55.0, 54.1], [38.2, 55.3, 64.0, 47.1, 55.9, 54.8]
    a0, c = [44.9, 57.4, 57.5, 57.3, 57.4, 57.6], [52.0, 71.0, 71.1, 70.9, 71.0, 71.2]
    assert compare(b, a).verdict in {"parity", "not_enough_runs"}
    assert compare(c, a0).ratio_of_medians == pytest.approx(1.237, abs=1e-3)


def test_runs_that_would_be_enough() -> None:
    """The formula, at scatters of ±20 % and of 3 %."""
    assert [runs_for_even(0.1165, margin) for margin in (0.1, 0.2)] == [27, 8]
    assert runs_for_even(0.1165, 0.05) == pytest.approx(102, abs=1)
    assert runs_for_even(0.03, 0.05) == 7


def test_acceptance_is_sum_over_sum() -> None:
    """Not a mean of rates: long replies count for more."""
    assert pooled([(1, 2), (90, 100)]) == (91, 102, pytest.approx(91 / 102))
    assert pooled([]) == (0, 0, None)


def _mirrored(found: Comparison) -> str:
    return {"faster": "slower", "slower": "faster"}.get(found.verdict, found.verdict)


def test_properties_of_the_verdict() -> None:
    """Swapping arms mirrors it, scaling changes nothing, and few samples never prove `even`."""
    chance = random.Random(7)  # noqa: S311 - a seeded simulation
    for _ in range(150):
        n_a, n_b = chance.randint(3, 12), chance.randint(3, 12)
        a = [50 * chance.uniform(0.7, 1.3) for _ in range(n_a)]
        b = [chance.choice([40, 50, 60]) * chance.uniform(0.7, 1.3) for _ in range(n_b)]
        found, swapped = compare(a, b), compare(b, a)
        assert swapped.verdict == _mirrored(found)
        assert (swapped.hl_ratio or 0) == pytest.approx(1 / (found.hl_ratio or 1))
        assert compare([7 * x for x in a], [7 * x for x in b]).verdict == found.verdict
        assert found.verdict != "even" or min(n_a, n_b) >= 5
        json.dumps(found.to_json(), allow_nan=False)


def test_two_equal_arms_are_rarely_called_different() -> None:
    """About one in twenty at most, in five hundred seeded tries."""
    chance = random.Random(11)  # noqa: S311 - a seeded simulation
    wrong = 0
    for _ in range(500):
        a, b = ([chance.gauss(50, 2) for _ in range(7)] for _ in range(2))
        wrong += compare(a, b).verdict in {"faster", "slower"}
    assert wrong <= 40


def test_the_interval_is_made_of_ratios_that_were_seen() -> None:
    """Its ends are order statistics, and the estimate lies between them."""
    a, b = WIN
    ratios = sorted(x / y for x in a for y in b)
    found = interval(a, b)
    assert found is not None
    assert found == pytest.approx((ratios[2], ratios[-3]))
    assert hl_ratio(a, b) == pytest.approx(median(ratios))
    assert found[0] < hl_ratio(a, b) < found[1]


def test_thousands_of_samples_are_judged_in_seconds() -> None:
    """Three prompts repeated a thousand times: 300 samples an arm once took 13 s, these for ever."""
    chance = random.Random(7)  # noqa: S311 - variety, not secrecy
    b = [50 * chance.uniform(0.8, 1.2) for _ in range(3000)]
    a = [speed * 1.08 for speed in b]
    began = time.process_time()
    found = compare(a, b)
    assert time.process_time() - began < 60
    assert found.verdict == "faster"
    assert found.hl_ratio == pytest.approx(1.08, abs=0.01)
    assert found.interval_95 is not None
    low, high = found.interval_95
    assert low < found.hl_ratio < high
    assert high / low - 1 == pytest.approx(2 * 1.96 * 0.1165 * (2 / 3000) ** 0.5, rel=0.2)


@pytest.mark.parametrize("count", [60, 101, 120])
def test_the_short_ways_say_what_the_long_ones_say(count: int) -> None:
    """The rank by the normal law, and the places by counting, against all pairs written out."""
    chance = random.Random(count)  # noqa: S311 - variety, not secrecy
    a = [chance.uniform(40, 60) for _ in range(count)]
    b = [chance.uniform(45, 55) for _ in range(count)]
    every = sorted(math.log(x / y) for x in a for y in b)
    logs_a, logs_b = sorted(math.log(x) for x in a), [math.log(y) for y in b]
    for place in (0, 17, len(every) // 2, len(every) - 1):
        assert stats._at(logs_a, logs_b, place) == pytest.approx(every[place], abs=1e-12)
    spread = math.sqrt(count**2 * (2 * count + 1) / 12)
    normal = math.floor(count**2 / 2 - 1.959964 * spread - 0.5)
    counts = stats._null_counts(count, count)
    below = sum(counts[: normal + 1]) / sum(counts)
    assert below == pytest.approx(0.025, abs=0.0002)
    assert stats._rank(count, count, 0.025) == pytest.approx(normal, abs=1)


def test_really_slower_but_negligible_is_even() -> None:
    """The other way round as well."""
    assert compare(spread(57.4, 0.01, 7), spread(59.1, 0.01, 7)).verdict == "even"
