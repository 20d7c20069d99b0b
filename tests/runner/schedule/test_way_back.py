"""Production's files, pinned: the way back is there although its model was deleted."""

import os
import signal
from pathlib import Path

from runner.journal import Journal
from runner.schedule.ledger import Ledger
from tests.e2e.night import JOB, Night
from tests.runner.schedule.served import as_nobody
from tests.servers import soon


def model_of(night: Night) -> Path:
    """Production's own model."""
    return Path(night.settings["production"][0]["model"])


def pinned(night: Night) -> int:
    """Pin production's model; its inode."""
    ran = night.call("pin", "--production", "--json")
    assert ran.code == 0, ran
    (row,) = ran.json["pins"]
    assert row["path"] == str(model_of(night))
    return model_of(night).stat().st_ino


def test_a_run_puts_production_s_deleted_model_back_and_is_proven(night: Night) -> None:
    """It was deleted while it serves: it lies at its path again before anything is stopped."""
    inode = pinned(night)
    model_of(night).unlink()
    check = night.call("check", JOB, "--json")
    (verdict,) = check.check("file.pin")
    assert verdict["state"] == "warn"
    assert "llm.gguf; the pin is put back before production is stopped" in verdict["found"]
    assert not model_of(night).exists(), "a look puts nothing back"
    ran = night.run()
    assert ran.json["outcome"] == "proven", [
        one["message"] for one in ran.json["checks"] if one["state"] != "pass"
    ]
    assert model_of(night).stat().st_ino == inode
    said = f"{model_of(night)} was gone; its pinned bytes were put back before the stop"
    assert said in ran.json["notes"]
    assert night.serving()


def test_without_a_pin_it_is_refused(night: Night) -> None:
    """Nothing that could not be started again is stopped."""
    before = night.serving()
    model_of(night).unlink()
    assert night.run().code == 3
    assert night.serving() == before


def test_a_model_deleted_while_production_is_down_comes_back(night: Night) -> None:
    """The restore links it to its path, and starts production from it."""
    inode = pinned(night)
    night.job("--slow", "1")
    run = night.begin_and_stop_production()
    model_of(night).unlink()
    run.process.send_signal(signal.SIGINT)
    ended = run.end()
    assert ended.json["production"]["state"] == "serving", ended
    assert model_of(night).stat().st_ino == inode
    assert "its pinned bytes were put back" in ended.out


def test_a_killed_run_s_guardian_puts_it_back_too(night: Night) -> None:
    """Recovery needs neither the run nor the journal for it."""
    inode = pinned(night)
    night.job("--slow", "1")
    run = night.begin_and_stop_production()
    model_of(night).unlink()
    os.kill(run.pid, signal.SIGKILL)
    run.end()
    soon(night.pid, within=30)
    assert model_of(night).stat().st_ino == inode


def test_a_pin_of_another_file_is_no_way_back(night: Night) -> None:
    """The model was replaced since: that is said while it lies there, and never started instead."""
    pinned(night)
    content = model_of(night).read_bytes()
    fresh = model_of(night).with_name("fresh")
    fresh.write_bytes(content)
    fresh.replace(model_of(night))
    check = night.call("check", JOB, "--json")
    (verdict,) = check.check("file.pin")
    assert verdict["state"] == "warn"
    assert "another file lies there now, and is not pinned: llm.gguf" in verdict["found"]
    assert verdict["remedy"] == "runner pin --production"
    os.kill(night.serving(), signal.SIGKILL)
    soon(lambda: None if night.pid() else True)
    night.start()
    assert night.run().code == 0  # from now on it is known what production runs from
    before = night.serving()
    model_of(night).unlink()
    ran = night.run()
    assert ran.code == 3, ran
    assert not model_of(night).exists()
    assert night.serving() == before


def test_a_person_puts_it_back(night: Night) -> None:
    """`runner pin --put-back`: a link at its path, and nothing where nothing is gone."""
    inode = pinned(night)
    model_of(night).unlink()
    ran = night.call("pin", "--put-back", "--json")
    assert ran.code == 0, ran
    assert ran.json["put_back"] == [f"{model_of(night)} was gone; its pinned bytes were put back"]
    assert model_of(night).stat().st_ino == inode
    again = night.call("pin", "--put-back")
    assert again.out.startswith("nothing is gone from its path")


def test_a_link_that_dangles_gets_its_bytes_back_where_it_ends(night: Night) -> None:
    """A cache shows its files by links; the link is left as it is."""
    model, blob = model_of(night), night.room / "blob"
    model.rename(blob)
    model.symlink_to(blob)
    inode = pinned(night)
    blob.unlink()
    assert night.call("pin", "--put-back").code == 0
    assert model.is_symlink()
    assert blob.stat().st_ino == inode


def test_a_pin_that_was_written_to_is_not_put_back(night: Night) -> None:
    """Another file of that size would be started as production."""
    pinned(night)
    with Journal.open(night.state) as journal:
        (row,) = Ledger(journal).pins()
    pin = Path(row["pin"])
    content = pin.read_bytes()
    pin.unlink()
    pin.write_bytes(content)
    model_of(night).unlink()
    ran = night.call("pin", "--put-back", "--json")
    assert ran.code == 3, ran
    assert "it is not what was pinned" in ran.json["error"]["message"]
    assert night.run().code == 3


def test_pinning_again_keeps_what_is_gone_from_its_path(night: Night) -> None:
    """The pin is all that is left of it; to pin the others again must not cost it."""
    pinned(night)
    model_of(night).unlink()
    ran = night.call("pin", "--production", "--json")
    assert ran.code == 0, ran
    (row,) = ran.json["pins"]
    assert row["state"] == "kept"
    assert row["said"].startswith("its file is gone")


def test_a_pin_that_fails_takes_no_other_along(night: Night) -> None:
    """One file cannot be pinned: those that were pinned before stay pinned."""
    extra = night.room / "extra.txt"
    extra.write_text("x")
    night.job(needs={"files": [str(extra)]})
    first = night.call("pin", JOB, "--json")
    assert first.code == 0, first
    ran = night.call("pin", JOB, "--file", str(extra), "--file", str(night.room / "no"), "--json")
    assert ran.code == 3, ran
    listed = night.call("pin", "--json").json["pins"]
    assert [row["state"] for row in listed] == ["kept"] * len(first.json["pins"])


def test_who_may_not_write_it_down_leaves_no_hidden_pin(open_night: Night) -> None:
    """The owner of the files is not the owner of the box: such a pin would be seen by nobody."""
    night = open_night
    night.call("pin")
    os.chown(night.model, 65534, 65534)
    os.chown(night.room / "jobs", 65534, 65534)
    words = ["pin", JOB, "--file", str(night.model), "--dir", str(night.room / "jobs"), "--json"]
    ran = as_nobody(night, *words)
    assert ran.code == 2, ran
    assert "belongs to root, and you are nobody" in ran.out
    assert night.model.stat().st_nlink == 1
