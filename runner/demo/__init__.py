"""SHOWS. A demo box with real servers, and the story of a run on it; must not know a real box."""

from collections.abc import Mapping
from typing import Any


def main(options: Mapping[str, Any]) -> int:
    """`runner demo`: options as the command line has them; returns the exit code."""
    from runner.demo.story import play  # noqa: PLC0415 - the stand-in server needs none of it

    return play(options)
