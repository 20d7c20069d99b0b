"""Texts to prompt with, written for this project and given to the public domain.

Real prose, code and reasoning: with random words, drafts are accepted or refused for no reason that
any user's text would give."""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Literal

Category = Literal["prose", "code", "reasoning"]
CATEGORIES: tuple[Category, ...] = ("prose", "code", "reasoning")

_NAMES = (
    "Alma", "Bruno", "Clara", "Dario", "Edith", "Fabian", "Greta", "Henrik", "Ines", "Jonas",
    "Kaja", "Ludwig", "Mina", "Niels", "Olga", "Pavel", "Runa", "Silas", "Tilda", "Urs",
    "Vera", "Wanda", "Xenia", "Yorick", "Zoe",
)  # fmt: skip
_TOWNS = (
    "Altbach", "Brenning", "Casterham", "Dunmoor", "Eschental", "Fallow Ford", "Grauhaven",
    "Hollin", "Ivesend", "Jarrow Wood", "Kilnsea", "Lindental", "Marsh End", "Nordby", "Osterwick",
    "Pennhold", "Quarley", "Ravensund", "Stillwater", "Tarnby", "Ulmenau", "Vessel", "Westgarth",
)  # fmt: skip

OPENINGS = MappingProxyType(
    {
        "prose": "The night watchman of the museum had a rule: he never looked at the paintings "
        "while he was alone with them. By day, among visitors, he studied them closely, and could "
        "have said of each how the light fell. But at night he walked his round with his lamp held "
        "low, and it was on such a round, a little after two, that he noticed that one of the "
        "frames",
        "code": "Write a Python module that reads a CSV file of measurements and prints the median "
        'of each column.\n\n```python\n"""Medians of the columns of a CSV file."""\n\n'
        "import csv\nimport sys\nfrom statistics import median\n\n\n"
        "def read_columns(path: str) -> dict[str, list[float]]:\n",
        "reasoning": "Question: A cyclist rides from one village to the next at 20 km/h and comes "
        "back on the same road at 30 km/h. The whole ride takes 2 hours and 30 minutes. How far "
        "apart are the villages? Explain each step and check the result.\nThink it through. ",
    }
)
"""The beginnings that `builtin:…` prompts ask a model to go on with."""


def passages(category: Category) -> tuple[str, ...]:
    """The texts of one category, with «name» and «town» to be filled in."""
    text = (Path(__file__).parent / f"{category}.txt").read_text(encoding="utf-8")
    if category == "code":
        return tuple(f"```{part.strip()}\n```" for part in text.split("```")[1::2])
    return tuple(part.strip() for part in text.split("\n\n") if part.strip())


def endless(nonce: str, categories: Sequence[Category] = CATEGORIES) -> Iterator[str]:
    """Passages in an order and with names that depend on the nonce, for ever; the same for the same."""
    chance = random.Random(nonce)  # noqa: S311  # variety, not secrecy
    shelves = [passages(category) for category in categories]
    everything = [text for shelf in shelves for text in shelf]
    while True:
        chance.shuffle(everything)
        for text in everything:
            name, town = chance.choice(_NAMES), chance.choice(_TOWNS)
            yield text.replace("«name»", name).replace("«town»", town) + "\n\n"
