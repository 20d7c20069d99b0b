"""Statistics of measured speeds: medians, ratios with exact intervals, and an honest verdict. Pure.

Speeds are compared as ratios, so all work is done on logarithms. The estimate is the Hodges-Lehmann
ratio (the median of all pairwise ratios), its interval the exact one of the Mann-Whitney statistic
(order statistics of the pairwise differences). "Even" is shown by two one-sided tests against a bound;
that a difference is not significant never means that there is none. scipy is imported when needed."""

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist, fmean, median, variance
from typing import Literal

Verdict = Literal["faster", "slower", "even", "parity", "not_enough_runs"]

MATTERS = 0.05
"""Smallest relative difference that matters, unless a job says otherwise."""

NOISE = 0.20
"""The wider bound within which `parity` is said where `even` cannot be."""

SMALL = 5
"""Below this many samples an arm has no rank interval; a t-test on logarithms then speaks."""

FEWEST = 3

_ALPHA = 0.05
_TINY = 0.01  # below one per cent nothing is called faster or slower
_SMALL_EFFECT = 0.10  # with three or four samples only a tenth or more is called faster or slower
_LEAST_SPREAD = 0.005  # no box is steadier than half a per cent
_EFFICIENCY = 0.955  # of rank tests against the t-test on normal data, 3 / pi
_COUNTED = 1_000_000  # steps of counting; beyond it, 100 samples an arm, the normal law is as good
_PAIRS = 250_000  # that are written out; thousands of samples an arm would fill the memory
_HALVINGS = 64  # narrow a difference of logarithms down to far below what a clock can tell


@dataclass(frozen=True, slots=True)
class Comparison:
    """Arm a against arm b; ratios over 1 mean that a is faster.

    `interval_95` and `interval_90` are of the Hodges-Lehmann ratio, None where so few samples bound
    nothing. `bound` is the smallest difference that these samples rule out, None where they rule out
    none. `n_needed` is how many samples an arm would need to show `even` at the bound that matters.
    """

    verdict: Verdict
    ratio_of_medians: float | None
    hl_ratio: float | None
    interval_95: tuple[float, float] | None
    interval_90: tuple[float, float] | None
    bound: float | None
    matters: float
    n_a: int
    n_b: int
    p_different: float | None = None
    p_even: float | None = None
    n_needed: int | None = None
    small: bool = False

    def to_json(self) -> dict[str, object]:
        """The comparison as plain JSON."""
        return {
            "verdict": self.verdict,
            "ratio_of_medians": self.ratio_of_medians,
            "hl_ratio": self.hl_ratio,
            "interval_95": list(self.interval_95) if self.interval_95 else None,
            "interval_90": list(self.interval_90) if self.interval_90 else None,
            "bound": self.bound,
            "matters": self.matters,
            "n_a": self.n_a,
            "n_b": self.n_b,
            "p_different": self.p_different,
            "p_even": self.p_even,
            "n_needed": self.n_needed,
        }

    def text(self) -> str:
        """The verdict with its numbers, as a report says it."""
        if self.ratio_of_medians is None:
            return f"not enough runs ({self.n_a} against {self.n_b}, at least {FEWEST} each)"
        change = f"{round((self.ratio_of_medians - 1) * 100):+d} %"
        provable = f"; no difference beyond ±{self.bound * 100:.1f} %" if self.bound else ""
        match self.verdict:
            case "faster" | "slower":
                few = f", from {min(self.n_a, self.n_b)} runs only" if self.small else ""
                return f"{self.verdict}: {change}{self._interval()}{few}"
            case "even":
                return f"even ({change}{provable}, and ±{self.matters * 100:.0f} % is what matters)"
            case "parity":
                return f"parity within ±{(self.bound or NOISE) * 100:.1f} % ({change})"
            case "not_enough_runs":
                needed = f"; needs about {self.n_needed} an arm" if self.n_needed else ""
                return (
                    f"not enough runs ({change}, {self.n_a} against {self.n_b}{provable}{needed})"
                )

    def _interval(self) -> str:
        if self.interval_95 is None:
            return ""
        low, high = ((edge - 1) * 100 for edge in self.interval_95)
        return f" (95 % between {low:+.1f} and {high:+.1f} %)"


def compare(
    a: Sequence[float], b: Sequence[float], bound: float = MATTERS, noise: float = NOISE
) -> Comparison:
    """Is a faster than b? Both are speeds over nought; `bound` is what matters, 0.05 for 5 %."""
    if min([*a, *b], default=1.0) <= 0:
        raise ValueError("speeds must be over nought")
    n_a, n_b = len(a), len(b)
    if min(n_a, n_b) < FEWEST:
        ratio = median(a) / median(b) if a and b else None
        return Comparison("not_enough_runs", ratio, None, None, None, None, bound, n_a, n_b)
    return (
        _compare_few(a, b, bound) if min(n_a, n_b) < SMALL else _compare_ranks(a, b, bound, noise)
    )


def _compare_ranks(
    a: Sequence[float], b: Sequence[float], matters: float, noise: float
) -> Comparison:
    logs_a, logs_b = _logs(a), _logs(b)
    wide, narrow = interval(a, b, 0.95), interval(a, b, 0.90)
    p_even = _p_even(logs_a, logs_b, matters)
    ratio = hl_ratio(a, b)
    verdict: Verdict = "not_enough_runs"
    negligible = narrow is not None and 1 / (1 + matters) < narrow[0] and narrow[1] < 1 + matters
    if wide is not None and wide[1] < 1 and ratio < 1 - _TINY and not negligible:
        verdict = "slower"
    elif wide is not None and wide[0] > 1 and ratio > 1 + _TINY and not negligible:
        verdict = "faster"
    elif negligible or p_even < _ALPHA:
        verdict = "even"
    elif _p_even(logs_a, logs_b, noise) < _ALPHA:
        verdict = "parity"
    return Comparison(
        verdict,
        median(a) / median(b),
        ratio,
        wide,
        narrow,
        None if narrow is None else max(narrow[1], 1 / narrow[0]) - 1,
        matters,
        len(a),
        len(b),
        _p_ranks(logs_a, logs_b, "two-sided"),
        p_even,
        n_needed(logs_a, logs_b, matters),
    )


def _compare_few(a: Sequence[float], b: Sequence[float], matters: float) -> Comparison:
    """Three or four samples: Welch's t on logarithms, and only for differences of a tenth or more."""
    logs_a, logs_b = _logs(a), _logs(b)
    wide = _welch(logs_a, logs_b, 0.95)
    ratio = hl_ratio(a, b)
    verdict: Verdict = "not_enough_runs"
    if wide[1] < 1 and ratio < 1 / (1 + _SMALL_EFFECT):
        verdict = "slower"
    elif wide[0] > 1 and ratio > 1 + _SMALL_EFFECT:
        verdict = "faster"
    return Comparison(
        verdict,
        median(a) / median(b),
        ratio,
        wide,
        None,
        None,
        matters,
        len(a),
        len(b),
        n_needed=n_needed(logs_a, logs_b, matters),
        small=True,
    )


def _logs(speeds: Sequence[float]) -> list[float]:
    return [math.log(speed) for speed in speeds]


def hl_ratio(a: Sequence[float], b: Sequence[float]) -> float:
    """The Hodges-Lehmann ratio: the median of all ratios of one from a to one from b."""
    pairs = len(a) * len(b)
    low, high = _ordered(a, b, ((pairs - 1) // 2, pairs // 2))
    return math.exp((low + high) / 2)


def interval(
    a: Sequence[float], b: Sequence[float], level: float = 0.95
) -> tuple[float, float] | None:
    """The exact interval of the Hodges-Lehmann ratio; None when so few samples bound nothing."""
    rank = _rank(len(a), len(b), (1 - level) / 2)
    if rank is None:
        return None
    low, high = _ordered(a, b, (rank, len(a) * len(b) - 1 - rank))
    return math.exp(low), math.exp(high)


def _ordered(a: Sequence[float], b: Sequence[float], places: Sequence[int]) -> list[float]:
    """The logarithms of the ratios of all pairs, in order: those at these places, from nought."""
    logs_a, logs_b = sorted(_logs(a)), _logs(b)
    if len(a) * len(b) <= _PAIRS:
        every = sorted(one - other for one in logs_a for other in logs_b)
        return [every[place] for place in places]
    return [_at(logs_a, logs_b, place) for place in places]


def _at(ordered: Sequence[float], others: Sequence[float], place: int) -> float:
    """One of all differences by its place, found by counting how many are not over a guess."""
    low, high = ordered[0] - max(others), ordered[-1] - min(others)
    for _ in range(_HALVINGS):
        guess = (low + high) / 2
        if sum(bisect_right(ordered, other + guess) for other in others) > place:
            high = guess
        else:
            low = guess
    return high


@cache
def _rank(n_a: int, n_b: int, tail: float) -> int | None:
    """How many of the ordered pairwise ratios lie outside the interval on each side.

    The largest c with P(U <= c) <= tail under the null distribution of the Mann-Whitney U.
    """
    if n_a * n_b * min(n_a, n_b) > _COUNTED:
        spread = math.sqrt(n_a * n_b * (n_a + n_b + 1) / 12)
        return math.floor(n_a * n_b / 2 + NormalDist().inv_cdf(tail) * spread - 0.5)
    counts = _null_counts(max(n_a, n_b), min(n_a, n_b))
    total, below, rank = sum(counts), 0, None
    for place, count in enumerate(counts):
        below += count
        if below > tail * total:
            break
        rank = place
    return rank


def _null_counts(n_a: int, n_b: int) -> list[int]:
    """How many of all orders of both samples give each value of U: a Gaussian binomial."""
    size = n_a * n_b + 1
    counts = [1] + [0] * (size - 1)
    for step in range(1, n_b + 1):
        for place in range(size - 1, n_a + step - 1, -1):
            counts[place] -= counts[place - n_a - step]
        for place in range(step, size):
            counts[place] += counts[place - step]
    return counts


def _p_ranks(a: Sequence[float], b: Sequence[float], side: str) -> float:
    from scipy.stats import mannwhitneyu  # noqa: PLC0415  # half a second, paid only for a verdict

    return float(mannwhitneyu(a, b, alternative=side).pvalue)


def _p_even(logs_a: Sequence[float], logs_b: Sequence[float], margin: float) -> float:
    """The larger p of two one-sided tests that the difference lies beyond the margin."""
    shift = math.log1p(margin)
    return max(
        _p_ranks([value + shift for value in logs_a], logs_b, "greater"),
        _p_ranks([value - shift for value in logs_a], logs_b, "less"),
    )


def _welch(logs_a: Sequence[float], logs_b: Sequence[float], level: float) -> tuple[float, float]:
    from scipy.stats import t  # noqa: PLC0415  # half a second, paid only for a verdict

    parts = variance(logs_a) / len(logs_a), variance(logs_b) / len(logs_b)
    error = math.sqrt(sum(parts))
    middle = fmean(logs_a) - fmean(logs_b)
    if error == 0:
        return math.exp(middle), math.exp(middle)
    freedom = sum(parts) ** 2 / (
        parts[0] ** 2 / (len(logs_a) - 1) + parts[1] ** 2 / (len(logs_b) - 1)
    )
    reach = float(t.ppf((1 + level) / 2, freedom)) * error
    return math.exp(middle - reach), math.exp(middle + reach)


def n_needed(logs_a: Sequence[float], logs_b: Sequence[float], margin: float) -> int:
    """Samples an arm that these arms, were they equal, would need to be shown even."""
    return runs_for_even(max(_spread(logs_a), _spread(logs_b)), margin)


def runs_for_even(spread: float, margin: float) -> int:
    """Samples an arm that show two equal arms even within the margin, nine times in ten.

    `spread` is the standard deviation of the logarithms: 0.1165 for speeds that scatter evenly ±20 %.
    """
    needed = NormalDist().inv_cdf(0.95) + NormalDist().inv_cdf(0.90)
    return math.ceil(2 * spread**2 * needed**2 / math.log1p(margin) ** 2 / _EFFICIENCY)


def _spread(logs: Sequence[float]) -> float:
    """A standard deviation that one outlier does not move: 1.4826 times the median deviation."""
    middle = median(logs)
    return max(1.4826 * median(abs(value - middle) for value in logs), _LEAST_SPREAD)


def pooled(parts: Iterable[tuple[int, int]]) -> tuple[int, int, float | None]:
    """Acceptance of many replies as sum over sum: (accepted, drafted, share or None)."""
    accepted = drafted = 0
    for took, offered in parts:
        accepted, drafted = accepted + took, drafted + offered
    return accepted, drafted, accepted / drafted if drafted else None
