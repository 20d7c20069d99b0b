"""Who holds the box: one at a time, freed by the kernel, and never by looking."""

import json
import os
import signal
import socket
import sys
import threading
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from preflight.linux import proc
from runner.recovery import lock
from tests.runner.recovery.site import Site, kill, stop, until_says
from tests.servers import soon


def held(site: Site) -> AbstractContextManager[None]:
    """Both locks of a site."""
    return lock.hold(site.state_dir, run="me", since="now", name=site.lock_name)


def test_a_second_runner_is_told_who_has_the_box(site: Site) -> None:
    """Run, process and since when."""
    with held(site), pytest.raises(lock.Busy) as busy, held(site):
        pass
    assert str(busy.value) == f"the box is held by run me, pid {os.getpid()}, since now"
    assert busy.value.holder.who == proc.ident(os.getpid())


def test_the_box_is_one_for_two_state_directories(site: Site, tmp_path: Path) -> None:
    """Two users, two directories, one GPU: the name covers what the file cannot."""
    other = tmp_path / "other"
    other.mkdir()
    with held(site):
        answered = lock.box_holder(site.lock_name)
        assert answered is not None
        assert (answered.run, answered.pid) == ("me", os.getpid())
        with (
            pytest.raises(lock.Busy, match="run me"),
            lock.hold(other, run="x", since="", name=site.lock_name),
        ):
            pass
    assert lock.box_holder(site.lock_name) is None
    assert lock.holder(site.state_dir) is None


def test_a_lock_dies_with_its_holder(site: Site) -> None:
    """kill -9: nobody ever removes a stale lock."""
    run = site.act(site.owed(site.recipe()), guardian=False, steps=["restoring"])
    until_says(run, "restoring")
    holder = lock.holder(site.state_dir)
    assert holder is not None
    assert (holder.run, holder.pid) == (site.run, run.pid)
    kill(run)
    soon(lambda: True if lock.holder(site.state_dir) is None else None)
    with held(site):
        pass


def test_whoever_looks_does_not_get_in_the_way(site: Site) -> None:
    """`runner status` at the wrong moment must not make a recovery believe that the box is held."""
    (site.state_dir / lock.NAME).touch()
    watching = (
        "import sys; from pathlib import Path; from runner.recovery import lock\n"
        "print('up', flush=True)\n"
        "while True: lock.holder(Path(sys.argv[1]))"
    )
    child = site.child([sys.executable, "-c", watching, str(site.state_dir)])
    until_says(child, "up")
    for _ in range(100):
        with held(site):
            pass


def test_the_box_is_free_as_soon_as_it_is_let_go(site: Site) -> None:
    """Whoever comes next must not find the name still taken."""
    for _ in range(300):
        with held(site):
            pass


def test_a_stopped_holder_is_known_by_its_process(site: Site) -> None:
    """It cannot answer; the kernel says whose the name is."""
    run = site.act(site.owed(site.recipe()), guardian=False, steps=["restoring"])
    until_says(run, "restoring")
    stop(run)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lock, "_ASK_WITHIN", 0.1)
        holder = lock.box_holder(site.lock_name)
    assert holder is not None
    assert holder.pid == run.pid


def test_a_lock_file_that_cannot_be_made_stops_a_run_and_no_recovery(
    site: Site, tmp_path: Path
) -> None:
    """A recovery goes on by the box's name alone when its state directory is gone."""
    gone = tmp_path / "gone"
    with (
        pytest.raises(FileNotFoundError),
        lock.hold(gone, run="r", since="", name=site.lock_name),
    ):
        pass
    with lock.hold(gone, run="r", since="", name=site.lock_name, file_needed=False):
        assert lock.box_holder(site.lock_name) is not None


def test_what_a_holder_wrote_proves_nothing_without_its_lock(site: Site) -> None:
    """The file of a dead holder is only text."""
    me = proc.ident(os.getpid())
    assert me is not None
    said = {"run": "r1", "since": "", "who": me.to_json()}
    (site.state_dir / lock.NAME).write_text(json.dumps(said))
    assert lock.holder(site.state_dir) is None


def test_a_name_that_is_asked_by_many_at_once_answers_all(site: Site) -> None:
    """Everybody who asks is told, one after the other."""
    with held(site):
        said: list[lock.Holder | None] = []
        asking = [
            threading.Thread(target=lambda: said.append(lock.box_holder(site.lock_name)))
            for _ in range(8)
        ]
        for one in asking:
            one.start()
        for one in asking:
            one.join()
    assert [one.run if one else None for one in said] == ["me"] * 8


def test_a_child_of_the_holder_does_not_hold_the_lock(site: Site) -> None:
    """Production outlives the run that restored it; an inherited lock would, too."""
    with held(site):
        child = site.child(["/bin/sleep", "60"], close_fds=False)
    assert lock.holder(site.state_dir) is None
    assert lock.box_holder(site.lock_name) is None
    kill(child, signal.SIGTERM)


def test_a_stranger_on_the_name_is_named(site: Site) -> None:
    """Whatever it is, it holds the box; its pid is what a person needs."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stranger:
        stranger.bind("\0" + site.lock_name)
        stranger.listen(1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lock, "_ASK_WITHIN", 0.1)
            with pytest.raises(lock.Busy, match=f"another runner, pid {os.getpid()}"), held(site):
                pass
    assert lock.holder(site.state_dir) is None
