"""What other users of the box may see: readable whatever the umask, bare, and without secrets."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner import public
from runner.cli.as_unit import Both, Shown
from runner.files import make_state_dir
from runner.journal import Journal
from runner.progress import Unwatched

AT = "2026-11-03T00:00:00.000+01:00"


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    """A state directory, made under the umask of the units."""
    before = os.umask(0o077)
    make_state_dir(tmp_path / "state")
    yield tmp_path / "state"
    os.umask(before)


def test_a_story_can_be_read_by_everybody(state: Path) -> None:
    """The umask of the units would close it."""
    with public.open_story(state, "abc") as story:
        story.write("looking at production\n")
    path = state / "public/runs/abc.log"
    assert path.stat().st_mode & 0o777 == 0o644
    assert path.parent.stat().st_mode & 0o777 == 0o755
    assert state.stat().st_mode & 0o777 == 0o711


def test_old_stories_are_forgotten(state: Path) -> None:
    """A job each night for years would fill the directory."""
    for number in range(public.KEPT_STORIES + 5):
        public.open_story(state, f"{number:04}").close()
        os.utime(state / f"public/runs/{number:04}.log", (number, number))
    left = sorted(path.name for path in (state / "public/runs").iterdir())
    assert len(left) <= public.KEPT_STORIES + 1
    assert left[-1] == f"{public.KEPT_STORIES + 4:04}.log"


def test_an_outcome_is_bare(state: Path) -> None:
    """Evidence is bulky and the owner's; what looks like a secret is hidden."""
    result = {
        "outcome": "proven",
        "claims": [{"kind": "context", "state": "proven", "evidence": ["x"]}],
        "token": "123456789:AAabcdefghijklmnopqrstuvwxyz012345678",
    }
    said = public.outcome(result)
    assert said["claims"] == [{"kind": "context", "state": "proven"}]
    assert "AAabc" not in str(said)
    public.show_job(state, "nap", {"invocation": "i", "ended": {"result": said}})
    assert public.job(state, "nap")["ended"]["result"]["outcome"] == "proven"
    assert public.job(state, "never") == {}


def test_the_list_of_runs_is_public(state: Path) -> None:
    """As `history` has it, newest first; nothing is there before the first run."""
    assert public.history(state) is None
    with Journal.open(state) as journal:
        journal.begin("r1", "nap", "manual", {}, AT)
        public.show_history(state, journal)
    runs = public.history(state)
    assert runs is not None
    assert [(run["run"], run["outcome"]) for run in runs] == [("r1", None)]


def test_a_run_is_told_to_both_who_watch() -> None:
    """Its own output and its public story."""

    class Heard(Unwatched):
        def __init__(self) -> None:
            self.said: list[str] = []

        def phase(self, name: str, within_s: float | None = None) -> None:
            self.said.append(f"{name} {within_s:g}")

        def note(self, text: str) -> None:
            self.said.append(text)

    one, two = Heard(), Heard()
    both = Both(one, two)
    both.phase("stopping production", 90)
    both.note("stopping llm")
    both.close()
    assert one.said == two.said == ["stopping production 90", "stopping llm"]


def test_a_full_disk_ends_no_story_teller(state: Path) -> None:
    """Who watches matters less than the run."""
    story = public.open_story(state, "abc")
    story.close()
    Shown(Unwatched(), story).say("a line that goes nowhere")
