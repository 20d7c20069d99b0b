"""Boxes on which the faults of other people are played: real processes, the real runner, small fakes."""

import sys
from pathlib import Path

import pytest

from tests.cases.card import Card
from tests.e2e.night import Night

HERE = Path(__file__).parent
NEED_MIB = 20_000
HELD_MIB = 21_500


def script(name: str, *words: str) -> list[str]:
    """The command of one of the programs of this folder."""
    return [sys.executable, "-I", str(HERE / f"{name}.py"), *words]


def program(path: Path, name: str, **environment: str) -> Path:
    """One of the programs of this folder under a name of its own, with these variables."""
    said = " ".join(f"{key}='{value}'" for key, value in environment.items())
    path.write_text(f'#!/bin/sh\n{said} exec {" ".join(script(name))} "$@"\n')
    path.chmod(0o755)
    return path


@pytest.fixture
def card(night: Night) -> Card:
    """The box's card, and a job that needs most of it."""
    played = Card(night.room)
    night.settings["gpu"] = {"nvidia_smi": str(played.program), "reader": "nvidia-smi"}
    night.write()
    night.job(needs={"gpu": [{"free_mib": NEED_MIB}]})
    return played


@pytest.fixture
def serving(night: Night, card: Card) -> Night:
    """A production that holds most of the card, as a plain process."""
    service = night.service()
    card.holds({service["model"]: HELD_MIB, str(night.model): HELD_MIB})
    night.start()
    return night
