"""`runner check` on a real box: rings as they are looked at, what to do first, records, and changes."""

import json
import os
import re
from pathlib import Path

import pytest

from preflight.linux import proc
from tests.e2e.night import Night


def lines(text: str) -> list[str]:
    """The lines that were printed."""
    return text.strip().splitlines()


def test_rings_are_shown_in_order_with_times_and_end_with_what_to_do(serving: Night) -> None:
    """Each verdict with its milliseconds; last the one thing to do first."""
    ran = serving.call("check", "night")
    assert ran.code == 0, str(ran)
    said = lines(ran.out)
    rings = [line for line in said if line.startswith("ring ")]
    assert rings == sorted(rings)
    assert rings[0] == "ring 0 · self"
    assert "ring 1 · files" in rings
    verdicts = [line for line in said if line.startswith("  ")]
    assert all(re.search(r"\(\d+ ms\)$", line) for line in verdicts)
    assert re.match(r"night: warn, needs about ", said[-2])
    assert said[-1].startswith("could run; worth a look: ")


def test_a_refusal_ends_with_its_remedy_and_exit_3(serving: Night) -> None:
    """The smallest ring that refuses decides what is done first; outer rings are counted."""
    serving.model.unlink()
    before = serving.serving()
    ran = serving.call("check", "night")
    assert ran.code == 3
    said = lines(ran.out)
    assert said[-1].startswith("do first: put it back, or name another file (file.exists: model ")
    assert any(
        re.match(r"  \d+ more not looked at: a smaller ring has refused", one) for one in said
    )
    assert serving.serving() == before


def test_json_is_one_object_with_minutes(serving: Night) -> None:
    """For programs: the state, every check, and how long it will take."""
    ran = serving.call("check", "night", "--json")
    assert (ran.code, ran.json["job"], ran.json["state"]) == (0, "night", "warn")
    assert ran.json["needs_minutes"] == pytest.approx(20 / 60, abs=0.1)  # ready_within, so far
    (time,) = ran.check("self.time")
    assert "needs at least 20s of 1m" in time["found"]
    assert "a first run tells how long the candidate loads" in time["found"]
    assert all(check["took_ms"] >= 0 for check in ran.json["checks"])


def test_after_a_run_the_time_is_known(serving: Night) -> None:
    """Loads and speeds of the run before, and the load of production that it has seen."""
    assert serving.run().code == 0
    (time,) = serving.call("check", "night", "--json").check("self.time")
    assert time["found"].startswith("needs about ")
    assert "first run" not in time["found"]


def test_a_night_that_is_too_short_is_refused(serving: Night) -> None:
    """What cannot fit would be cut before it has proven anything."""
    ran = serving.call("check", "night", "--set", "downtime_budget=15s", "--json")
    assert ran.code == 3
    (time,) = ran.check("self.time", "fail")
    assert "20s of 15s" in time["found"]


def test_a_record_shows_later_what_changed_and_by_whom(serving: Night) -> None:
    """Validated in the evening; another file lies there at midnight."""
    ran = serving.call("check", "night", "--record", "--json")
    assert ran.code == 0, str(ran)
    assert str(serving.model) in ran.json["recorded"]["files"]
    (same,) = serving.call("check", "night", "--json").check("file.fingerprint")
    assert same["state"] == "pass"
    os.utime(serving.model, ns=(1, 1))
    (touched,) = serving.call("check", "night", "--json").check("file.fingerprint")
    assert touched["state"] == "warn"
    raw = bytearray(serving.model.read_bytes())
    raw[-100] ^= 0xFF
    serving.model.write_bytes(bytes(raw))
    refused = serving.run()
    assert refused.code == 3
    (changed,) = refused.check("file.fingerprint", "fail")
    assert "candidate.gguf changed since it was validated: its content differs" in changed["found"]
    assert f"by {serving.model.owner()}" in changed["found"]
    assert "night REFUSED" in serving.told()
    meant = serving.call("check", "night", "--record", "--json")
    assert meant.code == 0, str(meant)
    (told,) = meant.check("file.fingerprint", "warn")
    assert "candidate.gguf changed since it was validated" in told["found"]
    (same,) = serving.call("check", "night", "--json").check("file.fingerprint")
    assert same["state"] == "pass"


def test_a_job_may_insist_on_a_record(serving: Night) -> None:
    """`unrecorded = "refuse"`: unknown until somebody has looked, and fine afterwards."""
    insists = ("--set", "needs.unrecorded=refuse", "--json")
    refused = serving.call("check", "night", *insists)
    assert refused.code == 3
    (unknown,) = refused.check("file.fingerprint", "unknown")
    assert unknown["remedy"] == "when they are right: runner check night --record"
    assert serving.call("check", "night", "--record", *insists).code == 0
    assert serving.call("check", "night", *insists).code == 0


def test_a_proven_run_records_its_files(serving: Night) -> None:
    """What has just been proven is what a later look compares with."""
    assert serving.run().code == 0
    record = json.loads((serving.state / "recorded" / "night.json").read_text())
    assert record["proven"] is True
    assert str(serving.model) in [file["path"] for file in record["files"]]
    (same,) = serving.call("check", "night", "--json").check("file.fingerprint")
    assert same["state"] == "pass"


def test_the_story_of_what_is_gone_is_told_from_the_record(serving: Night) -> None:
    """The incident: validated at six, gone at nine, and something else in its place."""
    serving.call("check", "night", "--record")
    serving.model.rename(serving.model.with_name("merged.gguf"))
    ran = serving.run()
    assert ran.code == 3
    (gone,) = [one for one in ran.check("file.exists", "fail") if "candidate" in one["subject"]]
    assert gone["found"].startswith("is gone (was ")
    assert "validated" in gone["found"]
    assert "+ merged.gguf" in gone["found"]
    assert "- candidate.gguf" in gone["found"]
    assert "is gone (was" in serving.told()


def test_what_would_be_refused_is_not_recorded(serving: Night) -> None:
    """A record is of something that could run."""
    serving.model.write_bytes(b"<!DOCTYPE html>")
    ran = serving.call("check", "night", "--record")
    assert ran.code == 3
    assert "not recorded" in ran.out
    assert not (serving.state / "recorded").exists()
    assert serving.call("check", "--record").code == 2


def test_without_a_job_production_and_every_scheduled_job_are_looked_at(serving: Night) -> None:
    """One answer for all, the worst of them on top; a broken job file is one of the answers."""
    serving.job(name="other")
    (serving.room / "jobs" / "broken.toml").write_text("question = 1\n")
    serving.settings["schedule"] = [
        {"job": name, "cron": "0 0 * * *"} for name in ("night", "other", "night")
    ]
    serving.write()
    ran = serving.call("check", "--json")
    assert ran.code == 0, str(ran)
    assert [one["job"] for one in ran.json["jobs"]] == ["night", "other"]
    assert {check["id"] for check in ran.json["checks"]} >= {"port.owner", "prod.restore"}
    serving.settings["schedule"].append({"job": "broken", "cron": "0 0 * * *"})
    serving.write()
    ran = serving.call("check")
    assert ran.code == 3
    said = lines(ran.out)
    assert [line for line in said if line in {"production", "night", "other", "broken"}] == [
        "production",
        "night",
        "other",
        "broken",
    ]
    what = "write the question that this job answers"
    assert said[-1] == f"do first: {what} (self.config: job broken)"


def test_the_projector_given_as_model_is_refused_before_the_stop(
    serving: Night, tmp_path: Path
) -> None:
    """The incident's other half: the wrong one of two files that a pattern would have matched."""
    from runner.demo import models

    (projector,) = models.write("mmproj", tmp_path / "mmproj-prod-f16.gguf")
    before = serving.serving()
    ran = serving.call("run", "night", "--json", "--set", f"candidate.model={projector}")
    assert ran.code == 3
    (role,) = ran.check("file.role", "fail")
    assert "mmproj-prod-f16.gguf is a vision projector, and not a model" in role["found"]
    assert serving.serving() == before


def test_what_the_environment_configures_is_told(serving: Night, tmp_path: Path) -> None:
    """A variable of the shell that starts the runner, which its candidates would see."""
    server = tmp_path / "llama-server"
    server.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = --help ]; then seq -f "--flag-%g N  text" 30; '
        'for f in -m --port --host -c -np -lv --metrics --spec-type; do echo "$f  text"; done; '
        "else echo version 1; fi\n"
    )
    server.chmod(0o755)
    serving.job(candidate={"command": [str(server)], "args": ["--draft-max", "3"]})
    ran = serving.begin(
        "check", "night", "--json", env={"LLAMA_ARG_N_GPU_LAYERS": "0", "LLAMA_ARG_CTX_SIZE": "1k"}
    ).end()
    (flags,) = ran.check("host.flags")
    assert flags["state"] == "fail"
    told = [flags["found"], *flags["evidence"]]
    assert any("does not know --draft-max" in said for said in told)
    assert any("LLAMA_ARG_N_GPU_LAYERS=0 in the environment sets" in said for said in told)
    assert "use --spec-draft-n-max" in flags["remedy"]


def test_explain_prints_what_a_check_reads_and_its_rules(night: Night) -> None:
    """From the check itself; a misspelt id is told what is near."""
    ran = night.call("explain", "file.gguf")
    assert ran.code == 0
    for word in ("reads", "pass", "warn", "fail", "unknown", "helps", "SEEK_HOLE"):
        assert word in ran.out
    listed = night.call("explain", "--json").json["checks"]
    assert {"file.exists", "gpu.budget", "self.time", "gate.recheck"} <= {
        one["id"] for one in listed
    }
    wrong = night.call("explain", "file.ggfu")
    assert wrong.code == 2
    assert "did you mean file.gguf?" in wrong.err


def test_a_look_leaves_no_process_behind(serving: Night) -> None:
    """Its children end with it."""
    before = set(proc.pids())
    serving.call("check", "night")
    ours = str(serving.room)
    later = [pid for pid in set(proc.pids()) - before if ours in " ".join(proc.cmdline(pid) or ())]
    assert later == []
