"""The units and the rule: what is in the repository is what would be made, and systemd takes it."""

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.load import list_jobs, load_job
from runner.outcome import MEANINGS
from runner.settings import load_settings
from runner.units import example, texts
from runner.units.place import place_of

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None,
    reason="no systemd-analyze here: apt-get install systemd",
)


def unit(name: str, **changes: Any) -> str:
    """The text of one unit of the example box, with some of its facts changed."""
    return texts.all_files(replace(example.BOX, **changes))[f"{texts.UNITS}/{name}"]


def test_the_examples_have_not_drifted() -> None:
    """Where they have: python -m runner.units.example."""
    there = {path for room in ("systemd", "polkit-1") for path in (example.DEPLOY / room).iterdir()}
    assert there == set(example.files())
    for path, text in example.files().items():
        assert path.read_text("utf-8") == text


def test_the_example_configuration_leads_to_the_example_units() -> None:
    """The box of deploy/runner.toml is the box of deploy/systemd."""
    config = example.DEPLOY / "runner.toml"
    place = place_of(config, load_settings(config), user="runner")
    assert place.services == example.BOX.services
    assert place.credentials == example.BOX.credentials


def test_the_example_jobs_are_in_order() -> None:
    """Whoever copies them gets no error but about paths."""
    jobs = list_jobs(example.DEPLOY / "jobs")
    assert [job.name for job in jobs if job.problem] == []
    assert [load_job(example.DEPLOY / "jobs", job.name).name for job in jobs] == [
        "200k-mtp",
        "new-build",
        "new-quant",
    ]


@needs_systemd
def test_systemd_takes_every_unit(tmp_path: Path) -> None:
    """`systemd-analyze verify` knows every key, value and dependency; nothing is started."""
    program = tmp_path / "runner"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    files = texts.all_files(replace(example.BOX, program=str(program), user="root"))
    paths = []
    for path, text in files.items():
        if path.startswith(texts.UNITS):
            there = tmp_path / Path(path).name
            there.write_text(text)
            paths.append(there)
    analyze = shutil.which("systemd-analyze") or ""
    ran = subprocess.run(
        [analyze, "verify", *[str(path).replace("@.", "@x.") for path in paths]],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    ours = [line for line in ran.stderr.splitlines() if "runner" in line]
    assert (ran.returncode, ours) == (0, [])


def test_a_missing_token_file_keeps_no_unit_from_starting() -> None:
    """Without a default value the unit that restores would not start for want of a token."""
    for name in texts.all_files(example.BOX):
        said = texts.all_files(example.BOX)[name].splitlines()
        loads = [line for line in said if line.startswith("LoadCredential=")]
        assert [line.replace("Load", "Set").split(":")[0] + ":none" for line in loads] == [
            line for line in said if line.startswith("SetCredential=")
        ]
        assert bool(loads) == (name.endswith(".service"))


def test_whoever_dies_asks_for_a_recovery() -> None:
    """Daemon, run and guardian; as root, since its end may come when polkit is gone already."""
    asks = "ExecStopPost=+-/usr/bin/systemctl start --no-block runner-recover.service"
    for name in ("runner.service", "runner-run@.service", "runner-guardian@.service"):
        assert asks in unit(name).splitlines()


def test_a_run_with_any_outcome_is_no_failed_unit() -> None:
    """Every exit code of the table is success to systemd; `history` tells them apart."""
    (line,) = [
        line for line in unit("runner-run@.service").splitlines() if "SuccessExitStatus" in line
    ]
    assert {int(code) for code in line.partition("=")[2].split()} | {0} == set(MEANINGS)


def test_the_candidate_s_sandbox_hides_no_gpu_and_no_model() -> None:
    """The candidate inherits the guardian's; ProtectClock= implies a device list without GPUs."""
    closed = ("PrivateDevices", "ProtectHome", "PrivateTmp", "ProtectClock", "SystemCallFilter")
    said = [line.partition("=")[0] for line in unit("runner-guardian@.service").splitlines()]
    assert [key for key in closed if key in said] == []
    for name in ("runner.service", "runner-run@.service", "runner-recover.service"):
        said = [line.partition("=")[0] for line in unit(name).splitlines()]
        assert "ProtectClock" not in said
        assert "PrivateDevices" not in said


def test_the_groups_are_those_of_the_box() -> None:
    """A group that is missing would keep the unit from starting at all."""
    assert "SupplementaryGroups=video render" in unit("runner-guardian@.service")
    assert "SupplementaryGroups" not in unit("runner-guardian@.service", groups=())


def test_a_state_directory_elsewhere_stays_writable_to_the_daemon() -> None:
    """StateDirectory= knows /var/lib only."""
    said = unit("runner.service", state_dir="/srv/runner", written=("/var/log/alerts",))
    assert "StateDirectory=" not in said
    assert "ReadWritePaths=/srv/runner -/var/log/alerts" in said
    said = unit("runner-recover.service", state_dir="/srv/runner")
    assert "ConditionPathExists=/srv/runner/recovery.json" in said


def test_an_own_command_that_tells_may_write_where_it_must() -> None:
    """A mailer has a spool of its own somewhere."""
    assert "ProtectSystem=strict" in unit("runner-tell@.service")
    assert "ProtectSystem=full" in unit("runner-tell@.service", mails=True)


def test_the_rule_names_production_and_nothing_more() -> None:
    """Start, stop and reset-failed of these units; a unit of the user's own manager needs no rule."""
    place = replace(example.BOX, services=("llama.service", "embed.service"))
    rule = texts.all_files(place)[texts.RULE]
    assert 'var services = ["llama.service", "embed.service"];' in rule
    assert 'subject.user == "runner"' in rule
    assert 'subject.isInGroup("runner-users")' in rule
