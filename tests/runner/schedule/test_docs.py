"""What the how-tos tell people to type exists."""

import re
from pathlib import Path

import pytest
from click import Group

from runner.cli.app import VERBS, app
from runner.settings import Schedule

DOCS = Path(__file__).parents[3] / "docs" / "how-to"


@pytest.mark.parametrize("name", ["schedule.md", "shared-box.md"])
def test_each_verb_and_option_of_a_how_to_exists(name: str) -> None:
    """A renamed verb must not live on in the docs."""
    text = (DOCS / name).read_text()
    found = re.findall(r"(?:^|`)runner ([a-z-]+)((?: [^`\n]*)?)", text, re.MULTILINE)
    assert found
    for verb, rest in found:
        assert verb in VERBS, verb
        command = app.get_command(None, verb)  # type: ignore[arg-type]  # it does not look at it
        assert command is not None
        first = rest.split()[0] if rest.split() else ""
        if isinstance(command, Group) and first in command.commands:
            command = command.commands[first]
        known = {option for parameter in command.params for option in parameter.opts}
        for option in re.findall(r"(?<= )--[a-z-]+", rest):
            assert option in known, f"{verb} {option}"


def test_each_key_of_a_schedule_is_explained() -> None:
    """Nobody should have to guess what a key does."""
    text = (DOCS / "schedule.md").read_text()
    assert [key for key in Schedule.model_fields if key not in text] == []
