"""The command line used wrongly, as people do in their first hour: one sentence, with what to do."""

import os
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from runner import entry
from runner.journal import Journal
from runner.schedule.process import alone
from tests.runner.test_cli import JOB, RUNNER, Cli


@pytest.fixture
def cli(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """A box with a configuration, and the command line on it."""
    for name in ("RUNNER_CONFIG", "STATE_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    return Cli(tmp_path, capfd)


@pytest.mark.parametrize("verb", ["status", "recover", "list", "run a"])
def test_a_configuration_that_was_named_and_is_not_there_is_an_error(cli: Cli, verb: str) -> None:
    """Else "nothing is owed" would be said of a box that a misspelt path leads to."""
    cli.config.unlink()
    error = cli.error(*verb.split())
    assert (error["where"], error["message"]) == (str(cli.config), "there is no such file")
    cli.config.mkdir()
    assert cli.error(*verb.split())["message"] == "is a directory"


def test_a_deleted_configuration_hides_no_debt(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the usual state directory is there, recovery looks into that."""
    cli.config.unlink()
    (cli.room / "home" / "runner").mkdir(parents=True)
    assert cli.json("recover")["state"] == "nothing"
    assert cli.error("status")["message"] == "there is no such file"
    cli.state.mkdir()
    monkeypatch.setenv("STATE_DIRECTORY", str(cli.state))
    assert cli.json("recover")["state"] == "nothing"
    monkeypatch.delenv("STATE_DIRECTORY")
    assert cli.json("recover", "--state-dir", str(cli.state))["state"] == "nothing"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["status", "extra"], "runner status: unrecognized arguments: extra → see"),
        (["recover", "--bogus"], "runner recover: unrecognized arguments: --bogus → see"),
        (["run"], "runner run: Missing argument 'JOB'. → see `runner run --help`"),
        (["history", "-n", "x"], "'x' is not a whole number. → see"),
        (["history", "-n", "9" * 20], "is not in the range 1<=x<=1000000. → see"),
    ],
)
def test_a_wrong_command_line_is_one_sentence(cli: Cli, words: list[str], said: str) -> None:
    """For every verb in one form, also as an object."""
    code, out, err = cli(*words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err
    assert cli.error(*words)["message"] in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--json", "status"], "--json is an option of the verb"),
        (["--bogus", "status"], "No such option '--bogus'"),
        (["--bogus", "recover"], "No such option '--bogus'"),
    ],
)
def test_an_option_before_the_verb_is_not_passed_over(
    words: list[str], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Also before those verbs that need the standard library only."""
    assert entry.run(words) == 2
    said_of = capfd.readouterr()
    assert said in said_of.out + said_of.err


def test_doctor_tells_whether_anything_fires(cli: Cli) -> None:
    """A schedule without a daemon is a promise that nobody keeps."""
    cli.config.write_text(cli.config.read_text() + '[[schedule]]\njob = "a"\ncron = "0 0 * * *"\n')
    cli.state.mkdir()

    def said() -> tuple[str, str]:
        checks = cli.json("doctor")["checks"]
        (row,) = [check for check in checks if check["id"] == "self.schedule"]
        return row["state"], row["found"]

    (cli.jobs / "a.toml").write_text(JOB)
    assert said() == ("warn", "no daemon runs, so nothing fires")
    held = alone(cli.state)
    try:
        assert said() == ("pass", "the daemon runs")
    finally:
        os.close(held)


def test_doctor_names_a_mistake_by_its_line(cli: Cli) -> None:
    """Once, and with what to do."""
    cli.config.write_text("timezone = 1\n")
    (mistake,) = cli.json("doctor", code=2)["checks"]
    assert mistake["subject"] == f"{cli.config}:1"
    assert mistake["found"] == "timezone: should be text in quotes, not a whole number"
    assert mistake["remedy"].startswith("write IANA timezone of schedules")


@pytest.mark.parametrize("words", [["status"], ["recover"], ["recover", "--dry-run"], ["nope"]])
@pytest.mark.parametrize("where", [">/dev/full", "2>/dev/full", ">&-", "2>&-", "| head -0"])
def test_whoever_does_not_read_changes_nothing(cli: Cli, words: list[str], where: str) -> None:
    """A full disk, a closed stream, `| head`: the same exit code, and no traceback. Above all a
    restore goes on.
    """
    line = f"{RUNNER} --config {cli.config} {' '.join(words)}"
    plain = subprocess.run(["/bin/bash", "-c", line], capture_output=True, text=True, check=False)
    ran = subprocess.run(
        ["/bin/bash", "-c", f"{line} {where}; exit ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == plain.returncode
    assert "Traceback" not in ran.stdout + ran.stderr
    assert len(ran.stdout) <= len(plain.stdout)


def test_a_terminal_without_utf8_is_no_reason_to_fail(cli: Cli) -> None:
    """What it cannot show is escaped."""
    ran = subprocess.run(
        [RUNNER, "status", "--bögus"],
        capture_output=True,
        check=False,
        env={"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "XDG_STATE_HOME": str(cli.room)},
        cwd=cli.room,
    )
    assert ran.returncode == 2
    assert b"unrecognized arguments: --b\\xf6gus \\u2192 see" in ran.stderr


def test_status_tells_its_times_in_the_zone_of_the_configuration(cli: Cli) -> None:
    """Not in that of whoever asks: one night has one clock."""
    with Journal.open(cli.state) as journal:
        journal.drain("mended by hand")
    text = cli.config.read_text()
    said = {}
    for zone in ("Asia/Tokyo", "UTC"):
        cli.config.write_text(text.replace("Europe/Berlin", zone))
        said[zone] = datetime.strptime(
            cli("status")[1].partition("Drained since ")[2][:16], "%Y-%m-%d %H:%M"
        ).replace(tzinfo=UTC)
    assert said["Asia/Tokyo"] - said["UTC"] == timedelta(hours=9)


def test_a_schedule_of_a_job_that_is_not_there_is_a_fault(cli: Cli) -> None:
    """A misspelt name would be found at midnight."""
    cli.config.write_text(
        cli.config.read_text() + '[[schedule]]\njob = "nihgt"\ncron = "0 0 * * *"\n'
    )
    checks = {one["id"]: one for one in cli.json("doctor", code=3)["checks"]}
    assert checks["self.job"]["found"] == "is not there, and [[schedule]] names it"
    assert checks["self.job"]["subject"].endswith("/nihgt.toml")


def test_history_of_a_job_that_is_not_there_says_so(cli: Cli) -> None:
    """No run yet, and no run ever, are two answers; neither is an error."""
    (cli.jobs / "a.toml").write_text(JOB)
    assert cli("history", "a")[1] == "no run of `a` yet\n"
    assert cli("history", "aa")[:2] == (
        0,
        "no run of `aa`, and no such job: runner list shows the jobs there are\n",
    )
    assert cli.json("history", "aa") == {"runs": []}


def test_a_state_directory_that_is_a_file_is_called_one(cli: Cli) -> None:
    """Root is not told to run as root."""
    cli.state.write_text("")
    assert f"({cli.state} is a file)" in cli.error("history")["message"]


def test_a_journal_of_somebody_else_is_said_to_be_that(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Instead of what SQLite thinks of its files."""
    cli.state.mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: 65533)
    assert "belongs to" in cli.error("alerts", "list")["message"]


def test_a_drill_asks_first_and_only_about_a_job_that_is_there(cli: Cli) -> None:
    """Without a person to ask it does nothing, and says so."""
    assert cli.error("drill", "nope", "--yes")["message"] == "there is no such job"
    (cli.jobs / "a.toml").write_text(JOB)
    for answer, code, said in (
        ("", 2, "nobody was asked → add --yes"),
        ("n", 4, "nothing was done"),
    ):
        ran = subprocess.run(
            [RUNNER, "--config", str(cli.config), "drill", "a"],
            input=answer,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == code
        assert said in ran.stdout + ran.stderr


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("GPU.BUDGET", "did you mean gpu.budget?"),
        ("gpu", "one of gpu.budget, gpu.driver, gpu."),
        ("zzz", "runner explain lists them"),
    ],
)
def test_a_check_that_is_not_there_is_guessed(cli: Cli, asked: str, said: str) -> None:
    """By its family, or by what is written nearly the same."""
    assert cli.error("explain", asked)["remedy"].startswith(said)


@pytest.mark.parametrize("words", [["next", "--ical"], ["reservations", "--motd"]])
def test_json_is_json_or_an_error(cli: Cli, words: list[str]) -> None:
    """Two formats at once are one too many for a program that reads an object."""
    assert "does not go with --json" in cli.error(*words)["message"]


@pytest.mark.parametrize("words", ["show", "history", "why", "logs", "pause --reason x"])
def test_a_word_that_is_no_text_is_told_and_no_fault_of_ours(cli: Cli, words: str) -> None:
    """A terminal of another encoding sends bytes that no journal takes; a path may be of any."""
    error = cli.error(*words.split(), "\udcff")
    assert error["message"] == r"`\udcff` is not UTF-8 text"
    assert cli("may-i", "delete", "/\udcff")[0] == 1  # nothing is published, so it is no yes
