"""What a dead run left behind is ended, all of it, and nothing else is."""

import dataclasses
import os

import pytest

from preflight.linux import proc
from runner.recovery import cgroups, leftovers
from runner.recovery.drivers import driver
from tests.runner.recovery.site import Site, gone, kill, stop
from tests.servers import soon


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The waits, shortened."""
    monkeypatch.setattr(leftovers, "CLEAR_S", 3.0)


def test_whatever_bears_the_runs_tag_is_ended(site: Site) -> None:
    """A candidate's children keep its environment, whatever session they went to."""
    shell = "setsid -f /bin/sleep 60; trap '' TERM; while :; do /bin/sleep 60; done"
    candidate = site.child(["/bin/sh", "-c", shell], env={proc.TAG: site.run})
    other = site.child(["/bin/sleep", "60"], env={proc.TAG: "r2"})
    members = soon(lambda: it if len(it := proc.tagged(site.run)) == 3 else None)
    whole = {proc.ident(pid) for pid in members}
    assert leftovers.end_leftovers(site.owed(site.recipe()), {"run": site.run}, site.clock) == []
    gone(who for who in whole if who is not None)
    assert candidate.wait(timeout=5) == -9
    assert other.poll() is None


def test_production_is_spared_whatever_tag_it_carries(site: Site) -> None:
    """Somebody restarted it from inside the candidate: it is production all the same."""
    one = site.start(site.recipe())
    (who,) = driver(one).standing().heads
    child = site.child(["/bin/sleep", "60"], env={proc.TAG: site.run})
    supervisor = {"kind": "command", "start": ["/bin/true"], "stop": ["/bin/true"]}
    supervisor["status"] = ["/bin/true"]
    behind = dataclasses.replace(one, supervisor=supervisor)
    found = proc.ident(child.pid)
    assert found is not None
    known = {"run": site.run, "candidate": {"who": found.to_json()}}
    assert leftovers.end_leftovers(site.owed(behind), known, site.clock) == []
    gone([found])
    assert proc.alive(who)


def test_a_candidate_that_escaped_onto_productions_port_is_ended(site: Site) -> None:
    """It sheds its tag and listens where production should: a listener alone is no production."""
    home = cgroups.make(site.run)
    if home is None:
        pytest.skip("this machine grants no cgroup: then nobody could tell")
    bare = {"PATH": os.environ["PATH"]}
    argv = site.odd()
    join = f"echo 0 > {home}/cgroup.procs; exec env -i {' '.join(argv)}"
    escaped = site.child(["/bin/sh", "-c", join], env=bare)
    assert site.listener() == escaped.pid
    site.record(escaped.pid)
    known = {"run": site.run, "candidate": {"who": None, "cgroup": str(home)}}
    assert leftovers.end_leftovers(site.owed(site.recipe()), known, site.clock) == []
    assert escaped.wait(timeout=5) == -9
    assert not home.exists()


def test_a_cgroup_that_bears_another_name_is_not_the_candidates(site: Site) -> None:
    """Whatever stands in the file, nothing but this run's own home is ever killed."""
    home = cgroups.make(f"{site.run}-not-mine")
    if home is None:
        pytest.skip("this machine grants no cgroup")
    bystander = site.child(["/bin/sleep", "60"])
    (home / "cgroup.procs").write_text(str(bystander.pid))
    known = {"run": site.run, "candidate": {"who": None, "cgroup": str(home)}}
    leftovers.end_leftovers(site.owed(site.recipe()), known, site.clock)
    assert bystander.poll() is None
    kill(bystander)
    bystander.wait()
    cgroups.remove(home)


def test_a_cgroup_inside_the_candidates_hides_nobody(site: Site) -> None:
    """A candidate may make cgroups of its own below the one it was given."""
    home = cgroups.make(site.run)
    if home is None:
        pytest.skip("this machine grants no cgroup")
    (home / "inner").mkdir()
    hidden = site.child(["/bin/sleep", "60"])
    (home / "inner" / "cgroup.procs").write_text(str(hidden.pid))
    assert cgroups.members(home) == {hidden.pid}
    cgroups.kill(home)
    assert hidden.wait(timeout=5) == -9
    cgroups.remove(home)
    assert not home.exists()


def test_children_of_a_guardian_that_hangs_are_the_candidates(site: Site) -> None:
    """They shed tag and session; the subreaper is their parent still."""
    shell = "env -i setsid /bin/sleep 60 & wait"
    guardian = site.child(["/bin/sh", "-c", shell])
    who = proc.ident(guardian.pid)
    assert who is not None
    escaped = soon(lambda: proc.descendants(guardian.pid) or None)
    site.record(*escaped)
    members = [found for pid in escaped if (found := proc.ident(pid)) is not None]
    stop(guardian)
    known = {"run": site.run, "guardian": who.to_json()}
    assert leftovers.end_leftovers(site.owed(site.recipe()), known, site.clock) == []
    gone(members)
    assert guardian.poll() is None


def test_what_cannot_be_known_is_said(site: Site) -> None:
    """P3: no cgroup, and the guardian is dead: whether something escaped, nobody can tell."""
    dead = site.child(["/bin/true"])
    who = {"boot": proc.boot_id(), "pid": dead.pid, "start": 1}
    dead.wait()
    known = {"run": site.run, "phase": "candidate", "guardian": who}
    assert leftovers.end_leftovers(site.owed(), known, site.clock) == [leftovers.UNKNOWN]
    assert leftovers.end_leftovers(site.owed(), known | {"phase": "armed"}, site.clock) == []
