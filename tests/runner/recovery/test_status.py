"""How things stand: from the world first, and from whatever else can still be read."""

import dataclasses
import os
import sqlite3
from contextlib import closing
from typing import Any

import pytest

from preflight.linux import proc
from runner.journal import Journal
from runner.recovery import lock, recipe, status
from runner.recovery.drivers import driver
from runner.recovery.told import Told
from runner.until import RealClock
from runner.words import at_epoch
from tests.runner.recovery.site import Site, kill, until_says
from tests.servers import soon

Json = dict[str, Any]


def the_service(site: Site) -> Json:
    """The one service, as the status has it."""
    (one,) = status.status(site.state_dir)["production"]["services"]
    assert isinstance(one, dict)
    return one


def test_nothing_is_known_before_the_first_run(site: Site) -> None:
    """No production, no debt, no alarm."""
    said = status.status(site.state_dir)
    assert said["production"]["state"] == "none"
    assert (said["obligation"], said["run"], said["drained"]) == (None, None, None)
    assert not status.is_down(said)
    assert said["note"] == ""


def test_a_state_directory_that_is_not_there_is_said(site: Site) -> None:
    """Nobody takes a box whose memory was removed for one that never ran anything."""
    nowhere = site.room / "nowhere"
    assert str(nowhere) in status.status(nowhere)["note"]
    assert not nowhere.exists()


def test_a_journal_that_took_the_place_of_another_is_said(site: Site) -> None:
    """And why the older history is missing."""
    (site.state_dir / "journal.db").write_bytes(os.urandom(8192))
    Journal.open(site.state_dir).shut()
    assert "history starts anew" in status.status(site.state_dir)["note"]


def test_what_was_told_past_the_journal_is_said(site: Site) -> None:
    """As long as it may still be so; after that it would have been told again."""
    now = RealClock().now()
    Told(site.state_dir).note("run:back", now - 30, "the journal cannot be used: read-only")
    assert "the journal cannot be used: read-only" in status.status(site.state_dir)["note"]
    Told(site.state_dir).forget("run:")
    Told(site.state_dir).note("run:back", now - 7200, "the journal cannot be used: read-only")
    assert status.status(site.state_dir)["note"] == ""


def test_production_as_it_was_is_serving(site: Site) -> None:
    """A new build alone makes no other server."""
    one = site.start(site.recipe())
    known = {**one.identity, "said": {**one.identity["said"], "build": "b1"}}
    recipe.remember(site.state_dir, [dataclasses.replace(one, identity=known)])
    said = the_service(site)
    assert (said["state"], said["identity"]) == ("serving", "same")
    assert said["pids"] == [site.listener()]
    assert said["since"] is not None


def test_production_that_answers_as_another_is_degraded_and_not_down(site: Site) -> None:
    """It serves; what differs is named."""
    one = site.start(site.recipe())
    wanted = [question | {"want": 8192} for question in one.probe["identity"][:1]]
    other = dataclasses.replace(one, probe=one.probe | {"identity": wanted}, identity={})
    recipe.remember(site.state_dir, [other])
    said = the_service(site)
    assert (said["state"], said["why"]) == ("degraded", "context is 4096, wanted 8192")
    assert status.is_down(status.status(site.state_dir))


def test_production_that_is_gone_is_down(site: Site) -> None:
    """With the reason that the system gives."""
    recipe.remember(site.state_dir, [site.recipe()])
    said = the_service(site)
    assert said["state"] == "down"
    assert "refused" in said["why"]


def test_what_loads_is_down_since_it_was_stopped(site: Site) -> None:
    """It does not answer yet: that is no difference of model, and its own age says nothing."""
    one = site.start(site.recipe())
    (who,) = driver(one).standing().heads
    kill(who)
    slow = dataclasses.replace(one, supervisor=site.process(site.standin("--load-seconds", "30")))
    assert driver(slow).start() is None
    stopped = 1_790_000_000.0
    site.leave(
        site.owed(slow), "restoring", services={"llm": {"stop_asked": True, "stopped": stopped}}
    )
    soon(lambda: proc.owners(site.port) or None)
    said = status.status(site.state_dir)["production"]
    assert said["state"] == "down"
    assert said["since"] == at_epoch(stopped)
    assert " was " not in said["services"][0]["why"]
    assert said["services"][0]["why"]
    (site.state_dir / "recovery.json").unlink()
    recipe.remember(site.state_dir, [slow])
    assert status.status(site.state_dir)["production"]["since"] is None


def test_a_recipe_of_another_version_takes_nothing_away(site: Site) -> None:
    """Its service still answers."""
    one = site.start(site.recipe())
    recipe.remember(site.state_dir, [dataclasses.replace(one, supervisor={"kind": "moon"})])
    assert the_service(site)["state"] == "serving"


def test_an_open_debt_and_its_run_are_shown(site: Site) -> None:
    """Who has the box, what is owed, and who guards it."""
    one = site.start(site.recipe())
    run = site.act(site.owed(one), steps=["armed"])
    pid = int(until_says(run, "guardian"))
    until_says(run, "armed")
    said = status.status(site.state_dir)
    assert said["obligation"]["phase"] == "armed"
    assert said["run"] == {"run": site.run, "pid": run.pid, "since": ""}
    assert said["guardian"]["pid"] == pid
    kill(run)


def test_a_debt_that_cannot_be_read_is_shown_as_one(site: Site) -> None:
    """Silence here would look like peace."""
    site.leave(site.owed(site.recipe()))
    for name in (recipe.NAME, recipe.COPY):
        (site.state_dir / name).write_bytes(b"?")
    said = status.status(site.state_dir)
    assert said["obligation"]["run"] == site.run
    assert "what is owed cannot be read" in said["note"]


@pytest.mark.parametrize("damage", ["newer", "corrupt"])
def test_a_journal_that_cannot_be_read_takes_only_its_own_lines(site: Site, damage: str) -> None:
    """Production's state is no matter of the journal."""
    one = site.start(site.recipe())
    recipe.remember(site.state_dir, [one])
    if damage == "newer":
        with closing(sqlite3.connect(site.state_dir / "journal.db")) as db:
            db.execute("PRAGMA user_version=999")
    else:
        (site.state_dir / "journal.db").write_bytes(b"x" * 5000)
    said = status.status(site.state_dir)
    assert said["production"]["state"] == "serving"
    assert said["outbox"] == {"unsent": None, "oldest_s": None}
    assert "journal.db" in said["note"]


def test_what_the_journal_knows_is_shown(site: Site) -> None:
    """Drained, unsent alerts with their age, the latest run."""
    with Journal.open(site.state_dir) as journal:
        journal.drain("production was not restored")
        journal.post("key", {"text": "DOWN"})
    said = status.status(site.state_dir)
    assert said["drained"]["reason"] == "production was not restored"
    assert said["outbox"]["unsent"] == 1
    assert said["outbox"]["oldest_s"] < 60
    assert said["last"] is None


def test_looking_holds_nobody_up(site: Site) -> None:
    """The lock is free while and after."""
    status.status(site.state_dir)
    assert lock.holder(site.state_dir) is None
