"""What a person types about time, rightly and wrongly: each mistake is one clear sentence."""

import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from runner.journal import Journal
from runner.schedule.ledger import Ledger, Pause, Planned
from tests.e2e.night import RUNNER, Ran

JOB = """\
question = "Does it run?"
[candidate]
kind = "task"
command = ["/usr/bin/true"]
"""


@pytest.fixture
def box(tmp_path: Path) -> Path:
    """A box without production: `night` is scheduled, `manual` is not, `broken` cannot be read."""
    (tmp_path / "jobs").mkdir()
    for name, text in (("night", JOB), ("manual", JOB), ("broken", "question = ")):
        (tmp_path / "jobs" / f"{name}.toml").write_text(text)
    config = tmp_path / "runner.toml"
    config.write_text(
        f'timezone = "Europe/Berlin"\nstate_dir = "{tmp_path}/state"\n'
        f'lock_name = "test-words"\n[[alerts.channel]]\nkind = "file"\npath = "{tmp_path}/told"\n'
        '[[schedule]]\njob = "night"\ncron = "30 2 * * *"\n'
    )
    return config


def call(box: Path, *words: str, env: Mapping[str, str] | None = None) -> Ran:
    """One command, at a terminal or in a script."""
    done = subprocess.run(
        [*RUNNER, "--config", str(box), *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **(env or {})},
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def pauses(box: Path) -> list[Pause]:
    """What is paused now."""
    with Journal.open(box.parent / "state") as journal:
        return Ledger(journal).pauses(time.time())


def planned(box: Path) -> list[Planned]:
    """What was asked for."""
    with Journal.open(box.parent / "state") as journal:
        return Ledger(journal).planned()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["pause", "night", "--until", "2020-01-01 00:00", "--reason", "x"], "is over"),
        (["pause", "night", "--until", "0s", "--reason", "x"], "is over"),
        (["pause", "night", "--until", "soon", "--reason", "x"], "`soon` is no time"),
        (["pause", "night", "--until", "", "--reason", "x"], "`` is no time"),
        (["pause", "nihgt", "--reason", "x"], "there is no such job"),
        (["pause", "night", "--reason", " "], "a reason is missing"),
        (["pause", "--reason", "x"], "name one JOB, or --all"),
        (["pause", "night", "--all", "--reason", "x"], "name one JOB, or --all"),
        (["run", "night", "--at", "2020-01-01 00:00"], "is over"),
        (["run", "night", "--at", "25:00"], "`25:00` is no time"),
        (["run", "night", "--at", "tomorrow"], "`tomorrow` is no time"),
        (["run", "nihgt", "--at", "03:00"], "there is no such job"),
        (["run", "broken", "--at", "03:00"], "broken.toml"),
        (["next", "nihgt"], "there is no such job"),
        (["next", "--from", "soon"], "`soon` is no time"),
        (["why", "nihgt"], "nothing is known of a job `nihgt`"),
        (["may-i", "delete", ""], "nothing is named"),
        (["may-i", "stop", " "], "nothing is named"),
        (["may-i", "use", "70000"], "70000"),
    ],
)
def test_a_mistake_is_said_and_changes_nothing(box: Path, words: list[str], said: str) -> None:
    """Exit 2, and what to write instead."""
    ran = call(box, *words)
    assert ran.code == 2, ran
    assert said in ran.err
    assert "Traceback" not in ran.err
    assert pauses(box) == []
    assert planned(box) == []


def test_a_job_whose_file_is_broken_can_be_paused(box: Path) -> None:
    """That may be why."""
    assert call(box, "pause", "broken", "--reason", "being written").code == 0
    (pause,) = pauses(box)
    assert (pause.job, pause.until) == ("broken", None)
    assert call(box, "resume", "broken").out == "broken fires again\n"
    assert call(box, "resume", "broken").out == "broken was not paused\n"


def test_a_job_that_is_not_scheduled_has_no_next_time(box: Path) -> None:
    """And is no mistake."""
    ran = call(box, "next", "manual")
    assert (ran.code, ran.out.strip()) == (0, "manual is not scheduled")
    assert call(box, "next", "manual", "--json").json["slots"] == []


def test_a_paused_job_says_so_before_it_is_due(box: Path) -> None:
    """In the list of what is to come, until the pause is over."""
    assert call(box, "pause", "--all", "--until", "36h", "--reason", "moving the box").code == 0
    would = [one["would"] for one in call(box, "next", "--json").json["slots"]]
    assert would[0].startswith("skip: paused by ")
    assert would[0].endswith(": moving the box")
    assert not would[-1].startswith("skip")


def test_a_change_of_the_clocks_is_pointed_out(box: Path) -> None:
    """02:30 does not exist on one night of the year, and comes twice on another."""
    ran = call(box, "next", "--from", "2027-03-27 12:00", "-n", "2", "--json")
    assert [one["at"][:19] for one in ran.json["slots"]] == [
        "2027-03-28T03:00:00",
        "2027-03-29T02:30:00",
    ]
    assert "the clocks go forward over its time" in ran.json["slots"][0]["in_words"]
    assert ran.json["notes"] == [
        "night (30 2 * * *) on 2027-03-28: moved to 03:00: the clocks go forward over its time"
    ]
    twice = call(box, "next", "--from", "2027-10-30 12:00", "-n", "2", "--json").json["slots"]
    assert [one["at"] for one in twice] == [
        "2027-10-31T02:30:00.000+02:00",
        "2027-11-01T02:30:00.000+01:00",
    ]


def test_what_is_no_cron_expression_names_its_line(box: Path) -> None:
    """With what to write instead; a typo in the timezone too."""
    good = box.read_text()
    for wrong, said in (
        ("30 25 * * *", "is no cron expression"),
        ("0 0 30 2 *", "never fires"),
        ("@daily", "is no cron expression"),
        ("0 0 * *", "is no cron expression"),
    ):
        box.write_text(good.replace("30 2 * * *", wrong))
        ran = call(box, "next")
        assert (ran.code, said in ran.err) == (2, True), ran
        assert "runner.toml:" in ran.err
    box.write_text(good.replace("Europe/Berlin", "Europe/Berln"))
    ran = call(box, "next")
    assert ran.code == 2, ran
    assert "runner.toml:1: timezone: is no timezone → write an IANA name" in ran.err


@pytest.mark.parametrize(
    "cron", ["0 0 * * MON-FRI", "0 0 L * *", "0 0 * * FRI#1", "0 0 1 JAN *", "*/15 2-4 * * *"]
)
def test_names_last_and_nth_are_told_in_words(box: Path, cron: str) -> None:
    """What cronsim reads, a person can read, too."""
    box.write_text(box.read_text().replace("30 2 * * *", cron))
    ran = call(box, "next", "--no-look")
    assert ran.code == 0, ran
    assert "night: At" in ran.out or "night: Every" in ran.out


def test_times_are_told_on_one_clock(box: Path) -> None:
    """That of `timezone`, whatever the machine's own is: an alert holds both a run's and a file's."""
    prompts = box.parent / "prompts.txt"
    prompts.write_text("x")
    os.utime(prompts, (1782900000, 1782900000))  # 2026-07-01 10:00 UTC
    extra = f'[needs]\nfiles = ["{prompts}"]\n'
    (box.parent / "jobs" / "manual.toml").write_text(JOB + extra)
    for zone in ("UTC", "Pacific/Kiritimati"):
        ran = call(box, "check", "manual", "--json", env={"TZ": zone})
        (verdict,) = [one for one in ran.check("file.exists") if "prompts" in one["subject"]]
        assert "written 2026-07-01 12:00" in verdict["found"]
