"""A broken upgrade in the night: with no package importable, production still comes back."""

import json
import sys
from pathlib import Path

import pytest

from preflight.linux import proc
from runner.recovery import keeper, lock, recipe, state, wire
from tests.runner.recovery.site import Site, gone, kill, until_says
from tests.servers import soon

ROOT = Path(__file__).parents[3]

BARE = """
import importlib.abc, runpy, sys

class Broken(importlib.abc.MetaPathFinder):
    ours = {"preflight", "jobs", "alerts", "runner"}
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        pythons = top in sys.stdlib_module_names or top.startswith("_sysconfigdata_")
        if pythons or top in self.ours:
            return None
        raise ImportError(f"{name} is broken")

sys.meta_path.insert(0, Broken())
root, *sys.argv[1:] = sys.argv[1:]
sys.path.insert(0, root)
sys.argv[0] = "runner.recovery"
runpy.run_module("runner.recovery", run_name="__main__", alter_sys=True)
"""
"""No site-packages, no environment, and a finder that breaks whatever is not Python's own or ours."""


def bare(site: Site, verb: str, *words: str) -> list[str]:
    """`python -m runner.recovery VERB` where nothing else can be imported."""
    known = ["--state-dir", str(site.state_dir), *words]
    return [sys.executable, "-S", "-E", "-c", BARE, str(ROOT), verb, *known]


def test_the_finder_breaks_what_it_should(site: Site) -> None:
    """Else the tests below would show nothing."""
    text = BARE.replace("runpy.run_module", "import pydantic; runpy.run_module")
    out, _ = site.child([sys.executable, "-S", "-E", "-c", text, str(ROOT)]).communicate(timeout=20)
    assert "pydantic is broken" in out


def test_recover_brings_production_back(site: Site) -> None:
    """And tells, by journal and channel."""
    one = site.recipe()
    site.leave(site.owed(one))
    child = site.child(bare(site, "recover", "--json"))
    out, _ = child.communicate(timeout=30)
    assert child.returncode == 0, out
    assert json.loads(out.splitlines()[-1])["state"] == "closed"
    assert site.serves(one)
    assert site.told()[0].startswith("SERVING since")


def test_a_guardian_keeps_and_restores(site: Site) -> None:
    """The whole of it: armed, asked to spawn, the run killed, production back."""
    one = site.start(site.recipe())
    run = site.act(site.owed(one), guardian=False, steps=["armed", "noted", "stopped"])
    until_says(run, "stopped")
    guardian = site.child(bare(site, "guardian", site.run))
    directory = site.state_dir / "runs" / site.run

    def acknowledged() -> wire.Lines | None:
        try:
            return wire.Lines(wire.connect(directory, 5))
        except OSError:
            return None

    lines = soon(acknowledged)
    lines.send({"do": "hello"})
    assert lines.receive()
    who = proc.ident(guardian.pid)
    assert who is not None
    kept = keeper.Keeper(lines, who, None)
    env = site.env | {proc.TAG: site.run}
    log = directory / "candidate.log"
    candidate = kept.spawn(["/bin/sleep", "60"], environment=env, cwd="/", log=log)
    assert isinstance(candidate, proc.Ident)
    kill(run)
    gone([candidate])
    soon(lambda: None if site.is_owed else True, within=20)
    assert site.serves(one)
    assert guardian.wait(timeout=20) == 0
    lines.close()


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_status_tells(site: Site, words: tuple[str, ...]) -> None:
    """Whatever else is broken: does production serve?"""
    one = site.start(site.recipe())
    recipe.remember(site.state_dir, [one])
    child = site.child(bare(site, "status", *words))
    out, _ = child.communicate(timeout=20)
    assert child.returncode == 0, out
    if words:
        assert json.loads(out)["production"]["state"] == "serving"
    else:
        assert out.startswith("Production: SERVING")


def test_a_folder_named_runner_in_the_current_directory_shadows_nothing(site: Site) -> None:
    """`python -I` looks only where Python was told to."""
    shadow = site.room / "runner" / "recovery"
    shadow.mkdir(parents=True)
    for room in (shadow.parent, shadow):
        (room / "__init__.py").write_text("raise SystemExit('shadowed')")
    argv = [sys.executable, "-I", "-m", "runner.recovery", "status", "--json"]
    argv += ["--state-dir", str(site.state_dir)]
    inside = ["/bin/sh", "-c", f'cd {site.room} && exec "$@"', "sh", *argv]
    out, _ = site.child(inside).communicate(timeout=20)
    assert json.loads(out)["production"]["state"] == "none"


def test_an_unknown_verb_is_refused(site: Site) -> None:
    """With the verbs there are."""
    out, _ = site.child([sys.executable, "-I", "-m", "runner.recovery", "dance"]).communicate()
    assert out.startswith("usage: python -I -m runner.recovery recover|")


def test_recover_says_what_it_would_do_and_does_not(site: Site) -> None:
    """`--dry-run`, for people and programs."""
    one = site.recipe()
    site.leave(site.owed(one))
    out, _ = site.recovery("recover", "--dry-run").communicate(timeout=20)
    assert f"run {site.run} owes production" in out
    assert "llm is inactive; if it does not serve, start it by process" in out
    assert site.copies() == []
    out, _ = site.recovery("recover", "--dry-run", "--json").communicate(timeout=20)
    assert json.loads(out)["owed"] == site.run


def test_recover_has_an_exit_code_for_a_production_that_stays_down(site: Site) -> None:
    """10 outranks all others; 0 when nothing is owed or somebody else is at it."""
    quiet = site.recovery("recover", "--quiet")
    assert quiet.communicate(timeout=20)[0] == ""
    assert quiet.returncode == 0
    one = site.recipe(["/no/such/server"])
    site.leave(site.owed(one))
    down = site.recovery()
    assert "/no/such/server" in down.communicate(timeout=30)[0]
    assert down.returncode == 10
    with lock.hold(site.state_dir, run=site.run, since="", name=site.lock_name):
        held = site.recovery()
        assert "the box is held by run" in held.communicate(timeout=20)[0]
        assert held.returncode == 0
    assert state.read(site.state_dir)["run"] == site.run


def test_a_named_config_that_is_not_there_is_said_and_the_debt_paid(site: Site) -> None:
    """A typing mistake, or a configuration that was deleted in the night: it hides no debt."""
    one = site.recipe()
    site.leave(site.owed(one))
    usual = site.room / "home" / "runner"
    usual.parent.mkdir()
    site.state_dir.rename(usual)
    nowhere = site.room / "nowhere.toml"
    argv = [sys.executable, "-I", "-m", "runner", "--config", str(nowhere), "recover"]
    child = site.child(argv, env={"XDG_STATE_HOME": str(usual.parent)})
    out, _ = child.communicate(timeout=60)
    assert child.returncode == 0, out
    assert f"{nowhere}: there is no such file" in out
    assert str(usual) in out
    assert site.serves(one)
    again = site.child([*argv, "--json"], env={"XDG_STATE_HOME": str(usual.parent)})
    out, _ = again.communicate(timeout=60)
    said = json.loads(out)
    assert said["state"] == "nothing"
    assert str(nowhere) in said["note"]
