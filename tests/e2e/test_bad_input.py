"""Mistakes get one clear sentence, exit 2, and nothing is touched."""

from pathlib import Path

import pytest

from tests.e2e.night import Night


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "../night"), "slash"),
        (("run", "a/b"), "slash"),
        (("run", "nights"), "night"),
        (("run", "night", "--set", "candidate.contxt=1"), "context"),
        (("run", "night", "--set", "candidate.context"), "KEY=VALUE"),
        (("rnu", "night"), "run"),
    ],
)
def test_wrong_words_name_what_is_meant(serving: Night, words: tuple[str, ...], said: str) -> None:
    """A slash in a name, a misspelt job, key or verb: the answer names the right one."""
    before = serving.serving()
    ran = serving.call(*words, "--json")
    assert ran.code == 2, str(ran)
    error = ran.json["error"]
    assert error["code"] == 2
    assert said in f"{error['message']} {error['remedy']}"
    assert serving.serving() == before
    assert serving.told() == ""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('timezone = "UTC"', "version = 99", "newer"),
        ('timezone = "UTC"', 'timezon = "UTC"', "timezone"),
        ("port = ", "port = 1", "port"),
        ("127.0.0.1", "localhost", "127.0.0.1"),
        ("[[production]]", "[[production", "TOML"),
    ],
)
def test_wrong_configuration_names_file_and_line(
    serving: Night, old: str, new: str, said: str
) -> None:
    """A newer version, a misspelt key, a broken file: file, line, and what to do."""
    serving.settings["production"][0]["host"] = "127.0.0.1"
    serving.write()
    text = serving.config.read_text()
    assert old in text
    serving.config.write_text(text.replace(old, new, 1))
    ran = serving.run()
    assert ran.code == 2, str(ran)
    error = ran.json["error"]
    assert str(serving.config) in error["where"]
    assert said.lower() in f"{error['message']} {error['remedy']}".lower()


def test_missing_configuration_names_where_it_was_looked_for(serving: Night) -> None:
    """The file that was named is not there."""
    gone = serving.room / "gone.toml"
    serving.config.rename(gone.with_name("aside.toml"))
    ran = serving.run()
    assert ran.code == 2, str(ran)
    assert str(serving.config) in f"{ran.json['error']['where']} {ran.json['error']['message']}"


def test_one_broken_job_leaves_the_others_usable(serving: Night) -> None:
    """The list names what is broken; the other job runs."""
    broken = serving.room / "jobs" / "broken.toml"
    broken.write_text("question = \n")
    listed = serving.call("list", "--json")
    assert listed.code == 0, str(listed)
    problems = {job["name"]: bool(job["problem"]) for job in listed.json["jobs"]}
    assert problems == {"broken": True, "night": False}
    assert serving.run().code == 0
    ran = serving.run("broken")
    assert ran.code == 2
    assert ran.json["error"]["where"].endswith("jobs/broken.toml:1")


def test_job_without_a_claim_is_refused(serving: Night) -> None:
    """Nothing would be proven by it."""
    serving.job(claim=[])
    ran = serving.run()
    assert ran.code == 2, str(ran)
    assert "claim" in str(ran.json)


def test_dry_run_prints_the_plan_and_touches_nothing(serving: Night) -> None:
    """The exact commands, every check, the budgets."""
    before = serving.serving()
    ran = serving.call("run", "night", "--dry-run", "--json")
    assert ran.code == 0, str(ran)
    assert str(serving.model) in ran.out
    assert "--metrics" in ran.out
    assert serving.serving() == before
    assert not list(Path(serving.state).glob("runs/*"))


def test_check_looks_and_touches_nothing(serving: Night) -> None:
    """`runner check JOB` has the verdicts of a run, and is no run."""
    before = serving.serving()
    ran = serving.call("check", "night", "--json")
    assert ran.code == 0, str(ran)
    assert ran.json["state"] in ("pass", "warn")
    serving.model.unlink()
    ran = serving.call("check", "night", "--json")
    assert ran.code == 3, str(ran)
    assert str(serving.model) in str(ran.check("file.exists", "fail"))
    assert serving.serving() == before
