"""The language of the tiny models: sixty words, and what follows each. Knows no file format.

There are fewer words than embedding dimensions, so *any* table of next-word scores can be written
down exactly as an output matrix (`Language.matrix`), without training. The trunk knows a best and
a second-best follower of every word. A draft uses the same table, made wrong for a chosen share of
the words (`miss`), and wrong for more of them the longer it feeds itself. That share dials the
acceptance; a temperature above 0 lowers it a little, and long drafts pay less, as in real models.
"""

import math

import numpy as np
from numpy.typing import NDArray

from runner.demo.gguf import Array

WIDTH = 64  # size of an embedding; a power of two, for `_axes`

# A word of one row is followed by a word of the next, so the output reads almost like sentences.
_ROWS = (
    "the a every one this that some any each no",
    "old new quiet quick plain empty small busy warm late",
    "server runner job model draft slot port file queue clock",
    "checks reads holds starts stops counts keeps moves finds asks",
    "before after under over near without with for from like",
    "midnight noon work proof memory silence rest speed care luck",
)
_ROW = 10
_HALF = _ROW // 2
WORDS = tuple(" " + word for row in _ROWS for word in row.split())

# Byte-pair merges build a word letter by letter: " t", " th", " the". What is no word is a piece.
STARTS = tuple(
    sorted(
        {word[:end] for word in WORDS for end in range(2, len(word) + 1)},
        key=lambda start: (len(start), start),
    )
)
PIECES = tuple(start for start in STARTS if start not in WORDS)
CONTROL = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
BYTES = 256
VOCABULARY = BYTES + len(WORDS) + len(PIECES) + len(CONTROL)

_PEAK = 16.0  # score of the best follower; every word but its rival has 0
_NEVER = 20.0  # a limit that the meter of `Language.meter` does not reach


class Dice:
    """Random numbers that stay the same for ever.

    Taken from the raw bit stream, which numpy freezes; the streams of its distributions it may
    change between releases, and with them the bytes of our files.
    """

    def __init__(self, seed: int) -> None:
        self._bits = np.random.PCG64(seed)

    def uniform(self, *shape: int) -> Array:
        """Numbers from -1 up to 1."""
        raw = self._bits.random_raw(int(np.prod(shape))).astype(np.float64)
        return np.asarray(raw / 2.0**63 - 1.0).reshape(shape)

    def order(self, count: int) -> NDArray[np.int64]:
        """The numbers 0 to count - 1, shuffled."""
        return np.argsort(self._bits.random_raw(count)).astype(np.int64)

    def below(self, limit: int, count: int) -> NDArray[np.int64]:
        """Whole numbers from 0 to limit - 1, each as likely as the others."""
        return (self._bits.random_raw(count) % np.uint64(limit)).astype(np.int64)


class Language:
    """Which word follows which: the one table that trunk, MTP layer and draft model share."""

    def __init__(self, seed: int) -> None:
        dice = Dice(seed)
        count = len(WORDS)
        rows = [row * _ROW + dice.order(_ROW) for row in range(len(_ROWS))]
        cycle = np.stack(rows, axis=1).reshape(-1)  # row 0, row 1, ... and again: all words once
        self.best = np.empty(count, np.int64)
        self.best[cycle] = np.roll(cycle, -1)
        row = self.best // _ROW * _ROW
        self.second = row + (self.best + 1 + dice.below(4, count)) % _ROW
        self.margin = np.array([0.8, 1.5, 3.0, 5.0])[dice.below(4, count)]  # nats above the second
        # What a draft says where it is wrong: a word of the second, the "keen" half of the row.
        self.wrong = row + _HALF + (self.best + 1 + dice.below(_HALF - 1, count)) % _HALF
        calm = np.flatnonzero(self.best % _ROW < _HALF)
        keen = np.flatnonzero(self.best % _ROW >= _HALF)
        self.calm = len(calm)
        self.hardest = np.concatenate([calm[dice.order(len(calm))], keen[dice.order(len(keen))]])
        axes = _axes()
        self.directions: Array = axes[-count:]  # [words, width]
        self.constant: Array = axes[1]
        self.depth: Array = axes[2]
        self.word_of = dice.below(count, VOCABULARY)  # bytes and pieces borrow a word's direction
        self.word_of[BYTES : BYTES + count] = np.arange(count)

    def embeddings(self) -> Array:
        """[vocabulary, width]: a word's direction plus a constant; an RMS norm changes nothing."""
        return math.sqrt(WIDTH) * (
            math.sqrt(0.8) * self.directions[self.word_of] + math.sqrt(0.2) * self.constant
        )

    def matrix(self, scores: Array) -> Array:
        """[vocabulary, words] -> [vocabulary, width], so that matrix @ embedding = scores."""
        return scores @ self.directions / math.sqrt(0.8 * WIDTH)

    def scores(self, rival: NDArray[np.int64], points: Array) -> Array:
        """[vocabulary, words]: per column the peak for the best, `points` for the rival, else 0."""
        words = np.arange(len(WORDS))
        table = np.zeros((VOCABULARY, len(WORDS)))
        table[BYTES + self.best, words] = _PEAK
        table[BYTES + rival, words] = points
        return table

    def output_matrix(self) -> Array:
        """[vocabulary, width]: what the trunk says."""
        return self.matrix(self.scores(self.second, _PEAK - self.margin))

    def meter(self) -> Array:
        """[width, 2 width], the MTP layer's eh_proj: hand the word on, count the steps in `depth`.

        The trunk's state has nothing along `depth`, so the meter reads about 2, 3.9, 5.5, 6.6, 7.1
        when the layer drafts its first, second, third, fourth, fifth token in a row.
        """
        step = 2 / math.sqrt(0.2 * WIDTH) * np.outer(self.depth, self.constant)
        return np.hstack([np.eye(WIDTH) + step, np.outer(self.depth, self.depth)])

    def draft_matrix(self, miss: float) -> Array:
        """[vocabulary, width]: what a draft says; past a word's limit on the meter it is wrong.

        The share `miss` of the words, the hardest, is wrong always; six more from the second
        token of a draft on, another eight from the third, the other calm ones from the fourth.
        """
        always = round(miss * len(WORDS))
        limit = np.full(len(WORDS), _NEVER)
        for end, meter in ((self.calm, 6.0), (always + 14, 4.7), (always + 6, 3.0)):
            limit[self.hardest[: min(end, self.calm)]] = meter
        limit[self.hardest[:always]] = -2.0
        keen = np.zeros(VOCABULARY)
        keen[BYTES : BYTES + len(WORDS)] = np.where(np.arange(len(WORDS)) % _ROW >= _HALF, 1.5, 0.0)
        wrong = self.matrix(self.scores(self.wrong, _PEAK - 1.5 * limit))
        return wrong + np.outer(keen, self.depth)


def _axes() -> Array:
    """[width, width] orthonormal rows: Sylvester's Hadamard matrix, exact where QR would round."""
    axes = np.ones((1, 1))
    while len(axes) < WIDTH:
        axes = np.block([[axes, axes], [axes, -axes]])
    return axes / math.sqrt(WIDTH)
