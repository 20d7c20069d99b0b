"""Every id that a verdict can carry is explained, by the check that gives it."""

import ast
from pathlib import Path

import pytest

from preflight.check import Check
from preflight.given import Given
from preflight.verdict import State
from runner.report.checks import explanations, kinds
from tests.architecture.rules import ROOT

GIVEN = {"self.time", "self.alert", "gate.recheck"}
BEGINNING = {"self.config", "self.journal", "self.lock", "self.drained"}
CATALOGUE = """
self.config self.journal self.lock self.alert self.clock
file.exists file.access file.fingerprint file.gguf file.shards file.role file.space
port.owner port.docker port.activation proc.leftover lock.others
gpu.driver gpu.identity gpu.budget gpu.health gpu.pending
host.ram host.limits host.load host.binary host.shutdown
prod.identity prod.permission prod.restore prod.busy prod.stoptime
gate.recheck
"""
"""The questions that a person who knows this field would ask."""


def named_ids(path: Path) -> set[str]:
    """The ids that a page of preflight names: `id = "…"` of a check, `id="…"` of a verdict."""
    values: list[ast.expr | None] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.keyword) and node.arg == "id":
            values.append(node.value)
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "id":
            values.append(node.value)
    texts = [value.value for value in values if isinstance(value, ast.Constant)]
    return {text for text in texts if isinstance(text, str) and "." in text}


def test_every_id_is_explained() -> None:
    """A check that nobody can ask about would be a riddle at midnight."""
    explained = {one["id"] for one in explanations()}
    named = {one for path in (ROOT / "preflight").rglob("*.py") for one in named_ids(path)}
    assert named - explained == {"self.given"}  # it is reported under the name it is given
    assert explained - named == (GIVEN | BEGINNING) - named
    assert set(CATALOGUE.split()) <= explained


@pytest.mark.parametrize(
    "kind", [kind for kind in kinds() if kind is not Given], ids=lambda kind: kind.__name__
)
def test_every_kind_explains_the_id_it_carries(kind: type[Check]) -> None:
    """With what it reads, when it passes, when it does not, and what helps then."""
    assert kind.id in [one.id for one in kind.explains]
    for one in kind.explains:
        assert one.reads
        assert one.passes
        assert one.fails or one.warns or one.unknown
        assert one.remedies


def test_each_id_says_what_it_is_about() -> None:
    """In words of its own, also where one check gives several answers."""
    abouts = [one["about"] for one in explanations()]
    assert all(abouts)
    assert len(set(abouts)) == len(abouts)


def test_rules_are_told_in_the_words_of_verdicts() -> None:
    """The states of a rule are those that a verdict can have."""
    for one in explanations():
        assert set(one["rules"]) <= {str(state) for state in State}


def test_a_ring_and_a_deadline_are_told_of_each() -> None:
    """In the order of asking."""
    rings = [one["ring"] for one in explanations()]
    assert rings == sorted(rings)
    assert all(one["deadline"] for one in explanations())
