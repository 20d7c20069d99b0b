"""The architecture holds: the house is walked through once for each rule, and each rule can fail."""

import ast
import tokenize
import tomllib
from pathlib import Path

import pytest

from alerts.message import KINDS
from runner.outcome import Outcome
from tests.architecture import rules
from tests.architecture.rules import PACKAGES, ROOT, Rule


def sources(*folders: str) -> list[Path]:
    """Every Python file below these folders of the repository."""
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


def name_of(path: Path) -> str:
    """The path as findings and exemptions write it."""
    return path.relative_to(ROOT).as_posix()


def trees(*folders: str) -> dict[str, ast.Module]:
    """Path -> syntax tree of every file below these folders."""
    return {name_of(path): ast.parse(path.read_text()) for path in sources(*folders)}


def modules() -> dict[str, ast.Module]:
    """Dotted name -> syntax tree of every module of ours."""
    found = {}
    for path, tree in trees(*PACKAGES).items():
        name = path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
        found[name] = tree
    return found


def findings(rule: Rule, *folders: str) -> list[str]:
    """What a rule finds, as lines that an editor can jump to."""
    return [
        f"{path}:{line}: {said}"
        for path, tree in trees(*folders).items()
        for line, said in rule(path, tree)
    ]


@pytest.mark.parametrize("rule", rules.SOURCE_RULES, ids=lambda rule: rule.__name__)
def test_who_may(rule: Rule) -> None:
    """Nobody does what only somebody else may do."""
    assert findings(rule, *PACKAGES) == []


@pytest.mark.parametrize("rule", rules.TEST_RULES, ids=lambda rule: rule.__name__)
def test_the_tests_too(rule: Rule) -> None:
    """The tests keep to their own habits."""
    assert findings(rule, "tests") == []


@pytest.mark.parametrize(("folder", "table"), rules.TABLES.items())
def test_every_kind_is_in_its_table(folder: str, table: str) -> None:
    """A kind that the table does not name could not be configured, and nobody would know."""
    assert list(rules.unlisted(folder, table, trees(folder))) == []


def test_recovery_needs_the_standard_library_only() -> None:
    """No broken package can keep production from coming back: whatever recovery imports is ours or Python's."""
    assert list(rules.foreign_imports(rules.RECOVERY_ROOTS, modules())) == []


def test_the_import_contract_forbids_every_dependency() -> None:
    """A new dependency must be added to the contract about recovery, or it would not be covered."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contract = project["tool"]["importlinter"]["contracts"][-1]
    imports = {"nvidia-ml-py": "pynvml", "python-telegram-bot": "telegram"}
    named = [
        line.partition(">")[0].partition("=")[0] for line in project["project"]["dependencies"]
    ]
    assert sorted(contract["forbidden_modules"]) == sorted(imports.get(one, one) for one in named)


@pytest.mark.parametrize("path", sources(*PACKAGES, "benchmarks"), ids=name_of)
def test_files_are_short(path: Path) -> None:
    """A file tells one story; a longer one is listed with the reason why it reads better whole."""
    count = len(path.read_text().splitlines())
    listed = rules.LONGER.get(name_of(path))
    assert count <= rules.LONGEST or listed, f"{count} lines"
    assert count > rules.LONGEST or not listed, "it is short again: take it off the list"


@pytest.mark.parametrize("path", sources(*PACKAGES, "tests", "benchmarks"), ids=name_of)
def test_every_ignore_has_its_reason(path: Path) -> None:
    """Whoever reads an exception to a rule learns why it is one."""
    with tokenize.open(path) as file:
        assert list(rules.ignores_without_reason(file.read())) == []


def test_every_rule_that_is_off_has_its_reason() -> None:
    """The same for the rules that are off everywhere."""
    assert list(rules.settings_without_reason((ROOT / "pyproject.toml").read_text())) == []


@pytest.mark.parametrize("name", ["requirements", "requirements-dev", "requirements-build"])
def test_lock_files_name_no_place(name: str) -> None:
    """What is installed is decided by hashes; where it comes from is the user's own choice."""
    text = (ROOT / f"{name}.lock").read_text()
    assert "--hash=sha256:" in text
    assert list(rules.places_in_lock(text)) == []


def test_the_lock_files_agree() -> None:
    """What is tested is what is installed on a real box."""
    pinned = {}
    for name in ("requirements", "requirements-dev", "requirements-build"):
        lines = (ROOT / f"{name}.lock").read_text().splitlines()
        pinned[name] = {line.split()[0] for line in lines if line and line[0].isalnum()}
    assert pinned["requirements"] <= pinned["requirements-dev"]
    assert pinned["requirements-build"] <= pinned["requirements-dev"]


def test_the_demo_is_left_out_where_its_files_do_not_run() -> None:
    """On another kind of machine the installation works, and the demo uses its stand-in."""
    for name in ("requirements", "requirements-dev"):
        lines = (ROOT / f"{name}.lock").read_text().splitlines()
        demo = [line for line in lines if line.startswith(("gemma3-270m", "skulk-llama"))]
        assert len(demo) == 6
        assert all('; platform_machine == "x86_64" and' in line for line in demo)


BAD = [
    ("only_some_start_processes", "jobs/a.py", "import subprocess"),
    ("only_some_start_processes", "alerts/a.py", "from subprocess import run"),
    ("only_some_start_processes", "jobs/a.py", "import os\nos.posix_spawn('/a', [], {})"),
    ("only_some_start_processes", "preflight/a.py", "import os\nos.fork()"),
    ("only_some_start_processes", "preflight/a.py", "import multiprocessing"),
    ("only_runner_ends_processes", "preflight/a.py", "import os\nos.kill(1, 15)"),
    ("only_runner_ends_processes", "jobs/a.py", "import os as o\no.killpg(1, 15)"),
    ("only_runner_ends_processes", "alerts/a.py", "def f():\n    import signal"),
    ("psutil_is_confined", "preflight/ports/owner.py", "import psutil"),
    ("psutil_is_confined", "runner/a.py", "from psutil import Process"),
    ("telegram_is_confined", "alerts/deliver.py", "from telegram.error import RetryAfter"),
    ("apscheduler_is_confined", "runner/run.py", "import apscheduler.triggers"),
    ("one_place_waits", "runner/run.py", "import time\ntime.sleep(1)"),
    ("one_place_waits", "runner/run.py", "from time import sleep"),
    ("one_place_waits", "alerts/telegram.py", "import asyncio\nasyncio.sleep(1)"),
    ("one_place_waits", "runner/a.py", "import select\nselect.select([1], [], [], 5)"),
    ("one_place_waits", "runner/a.py", "import select\nselect.select([1], [], [])"),
    ("only_the_command_line_prints_and_exits", "runner/run.py", "print('x')"),
    ("only_the_command_line_prints_and_exits", "jobs/a.py", "import sys\nsys.exit(1)"),
    ("only_the_command_line_prints_and_exits", "jobs/a.py", "exit(1)"),
    ("logging_is_configured_once", "runner/run.py", "import structlog\nstructlog.configure()"),
    ("no_globs", "jobs/a.py", "from pathlib import Path\nPath('/m').glob('*.gguf')"),
    ("no_globs", "jobs/a.py", "a.b().rglob('x')"),
    ("no_globs", "jobs/a.py", "import glob"),
    ("no_patching", "tests/a.py", "from unittest import mock"),
    ("no_patching", "tests/a.py", "from unittest.mock import patch"),
    ("no_patching", "tests/a.py", "monkeypatch.setattr('runner.run.go', fake)"),
    ("no_patching", "tests/a.py", "from runner import run\nmonkeypatch.setattr(run, 'go', f)"),
    ("tests_say_what_they_show", "tests/a.py", "def test_a(): pass"),
]
GOOD = [
    ("only_some_start_processes", "runner/candidate.py", "import subprocess"),
    ("only_some_start_processes", "preflight/linux/probe.py", "import subprocess"),
    ("only_runner_ends_processes", "jobs/a.py", "def f(signal: str): return signal.upper()"),
    ("one_place_waits", "runner/until.py", "import time\ntime.sleep(1)"),
    ("one_place_waits", "runner/a.py", "import select\nselect.select([1], [], [], 0)"),
    ("only_the_command_line_prints_and_exits", "runner/cli/app.py", "print('x')"),
    ("telegram_is_confined", "runner/a.py", "from alerts.telegram import Telegram"),
    ("no_patching", "tests/a.py", "monkeypatch.setattr(sys, 'stderr', file)"),
    ("no_patching", "tests/a.py", "from runner import a\nmonkeypatch.setattr(a, 'kept', set())"),
]
BY_NAME = {rule.__name__: rule for rule in (*rules.SOURCE_RULES, *rules.TEST_RULES)}


@pytest.mark.parametrize(("rule", "path", "text"), BAD)
def test_each_rule_can_fail(rule: str, path: str, text: str) -> None:
    """A rule that finds nothing in bad code would guard nothing."""
    assert list(BY_NAME[rule](path, ast.parse(text)))


@pytest.mark.parametrize(("rule", "path", "text"), GOOD)
def test_no_rule_cries_wolf(rule: str, path: str, text: str) -> None:
    """What is allowed passes."""
    assert list(BY_NAME[rule](path, ast.parse(text))) == []


def test_every_rule_is_shown_to_fail() -> None:
    """No rule without a bad example."""
    assert {name for name, _, _ in BAD} == set(BY_NAME)


def test_a_kind_outside_its_table_is_found() -> None:
    """The class is named, and one that is in the table is not."""
    source = """
class Near(Channel):
    kind: Literal["near"] = "near"
class Far(Channel):
    kind: Literal["far"] = "far"
AnyChannel = Annotated[Near | Other, Field(discriminator="kind")]
"""
    (found,) = rules.unlisted("alerts", "AnyChannel", {"alerts/a.py": ast.parse(source)})
    assert found == "alerts/a.py: Far is not in alerts's table AnyChannel"


def test_a_foreign_import_is_found_through_our_own() -> None:
    """Also two steps away, in a function, or in the package's own __init__."""
    given = {
        "runner": "import rich",
        "runner.entry": "def f():\n    from runner.cli.app import main",
        "runner.until": "from runner import words",
        "runner.words": "def f():\n    import click",
        "runner.cli": "",
        "runner.cli.app": "import click",
        "jobs.job": "import pydantic",
    }
    parsed = {name: ast.parse(text) for name, text in given.items()}
    found = sorted(rules.foreign_imports(["runner.until", "runner.entry"], parsed))
    assert found == [
        "runner.words:2: click is not of the standard library",
        "runner:1: rich is not of the standard library",
    ]


@pytest.mark.parametrize(
    "comment",
    ["# noqa", "# noqa: S101", "# noqa: S101 -", "# type: ignore", "# type: ignore[misc]"],
)
def test_an_ignore_without_reason_is_found(comment: str) -> None:
    """Blanket, or without a word of explanation; with one it passes, and in a text it is none."""
    assert list(rules.ignores_without_reason(f"a = 1  {comment}\n"))
    assert list(rules.ignores_without_reason(f'a = "{comment}"\n')) == []
    reasons = ("# noqa: S101, S102 - tests assert", "# type: ignore[misc]  # wrong stub there")
    for reasoned in reasons:
        assert list(rules.ignores_without_reason(f"a = 1  {reasoned}\n")) == []


def test_a_rule_switched_off_without_reason_is_found() -> None:
    """In the general list and in the ones for folders."""
    head = "[tool.ruff.lint]\nselect = ['ALL']\n"
    assert list(rules.settings_without_reason(head + 'ignore = [\n  "D",\n]\n'))
    assert list(rules.settings_without_reason(head + 'ignore = ["D", "E501"]  # both\n'))
    assert not list(rules.settings_without_reason(head + 'ignore = [\n  "D",  # own habit\n]\n'))


@pytest.mark.parametrize(
    "line",
    [
        "--index-url https://example.org/simple",
        "--find-links /opt/wheels",
        "a @ file:///opt/a.whl",
        "    # via -c /tmp/requirements.lock",
    ],
)
def test_a_place_in_a_lock_file_is_found(line: str) -> None:
    """Also in a comment: it would tell where somebody's disk keeps things."""
    assert list(rules.places_in_lock(line))


def test_every_outcome_can_be_named_by_a_channel() -> None:
    """alerts imports nothing of ours, so its words for outcomes are compared with the real ones here."""
    assert {str(outcome) for outcome in Outcome} <= set(KINDS)
