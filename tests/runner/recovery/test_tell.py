"""A person is told, at least once, by whatever still works; and nothing waits for that."""

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from runner.journal import Journal
from runner.recovery import account, recipe, recover, words
from runner.recovery.account import Scale
from runner.recovery.attempt import Served
from runner.recovery.files import alone
from runner.recovery.tell import Apart, deliver, post, tell
from runner.recovery.told import Told
from tests.fakes_runner import FakeClock
from tests.runner.recovery.site import Site

Json = dict[str, Any]


def whole(site: Site, clock: FakeClock, state: str, ago: float = 60.0, **more: Any) -> Json:
    """The account of a production that was stopped so long ago."""
    served = Served("llm", state, at=None if state == "down" else clock.now(), **more)
    scale = Scale.of(clock)
    one = account.service(site.recipe(), served, stopped=clock.now() - ago, scale=scale)
    return account.production([one])


@pytest.mark.parametrize(
    ("state", "ago", "news"),
    [
        ("serving", 60, "back"),
        ("degraded", 60, "back"),
        ("down", 5, "down:0:0"),
        ("down", 61, "down:1:0"),
        ("down", 301, "down:2:0"),
        ("down", 901, "down:3:0"),
        ("down", 3601, "down:4:1"),
        ("down", 7300, "down:4:2"),
    ],
)
def test_what_stays_down_is_told_again_and_ever_more_rarely(
    site: Site, state: str, ago: float, news: str
) -> None:
    """After a minute, five, fifteen, an hour, and then every hour."""
    clock = FakeClock()
    assert words.news(whole(site, clock, state, ago), Scale.of(clock)) == news


def test_the_first_line_is_whether_production_serves(site: Site) -> None:
    """A phone shows no more."""
    clock = FakeClock()
    owed = site.owed(site.recipe())

    def first(said: Json, phase: str = "stopping", **more: Any) -> str:
        return words.first_line(owed, phase, said, **({"shutdown": False} | more))

    assert (
        first(whole(site, clock, "serving")) == "SERVING since 00:00 · night INTERRUPTED · down 60s"
    )
    assert first(whole(site, clock, "degraded")).startswith("DEGRADED since 00:00")
    assert first(whole(site, clock, "down")) == "DOWN since 23:59 · llm does not start"
    assert "boot restores" in first(account.production([]), shutdown=True)


@pytest.mark.parametrize(
    ("event", "detail", "line"),
    [
        ("starting", {"service": "llm", "attempt": 1}, "starting llm"),
        ("starting", {"service": "llm", "attempt": 2}, "starting llm, try 2"),
        (
            "serving",
            {"service": "llm", "state": "serving", "load": 1.1767887},
            "llm serves again, it loaded in 1.2s",
        ),
        ("serving", {"service": "llm", "state": "serving", "load": None}, "llm serves again"),
        (
            "serving",
            {"service": "llm", "state": "degraded", "load": 95.0},
            "llm is degraded, it loaded in 2m",
        ),
        (
            "failed",
            {"service": "llm", "attempt": 1, "why": "out of memory"},
            "llm did not start: out of memory",
        ),
        (
            "recovering",
            {"run": "r", "phase": "stopping"},
            "run r died while it was stopping production",
        ),
        (
            "recovering",
            {"run": "r", "phase": None},
            "run r died while nobody knows what it was doing",
        ),
    ],
)
def test_what_a_restore_does_is_said_in_words(event: str, detail: Json, line: str) -> None:
    """For whoever watches it: no raw numbers, no lists of values."""
    assert words.heard(event, detail) == line


def test_an_outcome_is_written_once_and_its_alert_with_it(site: Site) -> None:
    """P4 and P5 in one transaction; what is told again is only what is new."""
    clock = FakeClock()
    owed = site.owed(site.recipe())
    for state in ("down", "down", "serving", "serving"):
        said = whole(site, clock, state, 5, why="no such file" if state == "down" else "")
        assert tell(site.state_dir, owed, {}, production=said, clock=clock, notes=["a note"])
    with Journal.open(site.state_dir, read_only=True) as journal:
        rows = journal.outbox()
        run = journal.run(site.run)
        drained = journal.drained()
    assert [row.key for row in rows] == [f"{site.run}:production down", f"{site.run}:back"]
    assert "llm: no such file" in rows[0].body["text"]
    assert "a note" in rows[0].body["text"]
    assert run is not None
    assert (run["outcome"], run["exit_code"]) == ("production down", 10)
    assert drained is not None
    assert "no such file" in drained["reason"]


def test_when_the_machine_goes_down_nothing_is_sent(site: Site) -> None:
    """It is written down, and the boot tells."""
    clock = FakeClock()
    nothing = account.production([])
    owed = site.owed(site.recipe())
    said = tell(site.state_dir, owed, {}, production=nothing, clock=clock, notes=[], shutdown=True)
    assert said == "shutdown"
    assert site.told() == []
    with Journal.open(site.state_dir, read_only=True) as journal:
        (row,) = journal.outbox()
    assert row.sent_at is None


def test_something_on_the_way_is_told_once(site: Site) -> None:
    """A start that took its time to fail, a box that somebody else holds."""
    owed = site.owed(site.recipe())
    scale = Scale.of(FakeClock())
    alert = words.trying(owed, {"service": "llm", "why": "out of memory"}, {}, scale)
    for _ in range(2):
        post(site.state_dir, owed, alert, clock=site.clock)
    assert site.told() == ["DOWN · llm did not start at once · trying on"]
    assert "out of memory" in site.alerts.read_text()


def test_two_who_deliver_at_once_do_not_send_twice(site: Site) -> None:
    """The daemon's tick and a recovery: one of them has the outbox."""
    owed = site.owed(site.recipe())
    with Journal.open(site.state_dir) as journal:
        journal.post("key", {"first_line": "DOWN", "text": "", "kind": "incident"})
    with alone(site.state_dir) as ours:
        assert ours
        deliver(site.state_dir, owed)
    assert site.told() == []
    deliver(site.state_dir, owed)
    assert site.told() == ["DOWN"]


def test_work_apart_is_one_at_a_time_and_is_waited_for_at_the_end() -> None:
    """What is so will be said the next time: level, not edge."""
    apart, go, done = Apart(), threading.Event(), list[int]()
    apart.do(lambda: (go.wait(10), done.append(1)))
    apart.do(lambda: done.append(2))
    assert done == []
    go.set()
    apart.finish()
    assert done == [1]
    apart.do(lambda: done.append(3))
    apart.finish()
    assert done == [1, 3]


FULL = """
import os, sys, json
from pathlib import Path
from runner.recovery import recover, recipe
from runner.recovery.recipe import Owed
from tests.fakes_runner import HastyClock
room, owed = Path(sys.argv[1]), Owed.from_json(json.loads(Path(sys.argv[2]).read_text()))
from runner.recovery import state
memory = state.StateFile(room)
memory.begin({"run": owed.run, "phase": "stopping", "lock_name": owed.lock_name})
memory.close()
recipe.write(room, owed)
if "no-reserve" in sys.argv:
    (room / "reserve").unlink()
if "read-only" in sys.argv:
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mount(b"x", str(room).encode(), None, 32 | 1, None) == 0, ctypes.get_errno()
else:
    with open(room / "filler", "wb", buffering=0) as filler:
        for size in (65536, 4096, 1):
            try:
                while True:
                    filler.write(bytes(size))
            except OSError:
                pass
for _ in range(1 + sys.argv.count("again")):
    done = recover.recover(room, clock=HastyClock())
kept = (room / "reserve").exists()
left = (room / recipe.NAME).exists()
print(json.dumps({"state": done.state, "said": done.said, "left": left, "kept": kept}))
"""


def small_disk(site: Site, *words: str) -> Json:
    """Recover with the state directory on a disk of its own, of 3 MiB; what came of it."""
    mount = shutil.which("unshare")
    disk = site.room / "disk"
    disk.mkdir()
    plan = site.room / "owed.json"
    plan.write_text(json.dumps(site.owed(site.recipe()).to_json()))
    inner = f'mount -t tmpfs -o size=3m small {disk} && exec "$@"'
    who = [] if os.getuid() == 0 else ["--map-root-user"]
    probe = [mount or "unshare", "--mount", *who, "/bin/sh", "-c", inner, "sh"]
    if subprocess.run([*probe, "/bin/true"], capture_output=True, check=False).returncode:
        pytest.skip("no disk of its own can be mounted here: this needs root or user namespaces")
    child = site.child(
        [*probe, sys.executable, "-c", FULL, str(disk), str(plan), *words],
        env={"PYTHONPATH": str(Path(__file__).parents[3])},
    )
    out, _ = child.communicate(timeout=60)
    said = json.loads(out.splitlines()[-1])
    assert isinstance(said, dict), out
    return said


def test_on_a_full_disk_production_comes_back_and_the_space_kept_back_is_for_the_alert(
    site: Site,
) -> None:
    """The journal has room again; the alert is written and delivered."""
    done = small_disk(site)
    assert (done["state"], done["left"]) == ("closed", False)
    assert site.serves(site.recipe())
    assert len(site.told()) == 1
    assert "the journal cannot be used" not in site.alerts.read_text()


def test_on_a_full_disk_without_any_space_a_person_is_told_all_the_same(site: Site) -> None:
    """Then without a journal."""
    done = small_disk(site, "no-reserve")
    assert (done["state"], done["left"]) == ("closed", False)
    assert site.serves(site.recipe())
    assert len(site.told()) == 1


def test_on_a_disk_that_became_read_only_production_comes_back(site: Site) -> None:
    """The debt cannot be removed; that is said, and nothing raises."""
    done = small_disk(site, "read-only")
    assert (done["state"], done["left"]) == ("closed", True)
    assert "cannot be removed" in done["said"]
    assert site.serves(site.recipe())
    assert "the journal cannot be used" in site.alerts.read_text()


def test_on_a_read_only_disk_a_look_each_half_minute_tells_once(site: Site) -> None:
    """Each look is a process of its own, and none of them can write down that it told."""
    done = small_disk(site, "read-only", "again", "again")
    assert (done["state"], done["left"], done["kept"]) == ("closed", True, True)
    assert len(site.told()) == 1


@pytest.mark.parametrize("later", [3599.0, 3600.0])
def test_what_is_told_past_the_journal_is_told_again_ever_more_rarely(
    site: Site, later: float
) -> None:
    """After an hour, six, and then every day: never at each look, and never for the last time."""
    told = Told(site.state_dir)
    assert told.due("run:back", 100.0)
    assert told.note("run:back", 100.0, "the journal cannot be used")
    assert told.due("run:back", 100.0 + later) == (later >= 3600)
    assert told.due("run:down:0:0", 100.0)  # what is new is told at once
    assert told.due("run:back", 50.0)  # another boot
    told.note("run:back", 3700.0, "still")
    assert not told.due("run:back", 3700.0 + later)
    assert told.due("run:back", 3700.0 + 6 * 3600)
    for times in range(5):
        told.note("run:back", 30000.0 + times, "still")
    assert not told.due("run:back", 30004.0 + 23 * 3600)
    assert told.due("run:back", 30004.0 + 24 * 3600)
    assert told.all()["run:back"]["since"] == 100.0
    told.forget("run:")
    assert told.all() == {}


@pytest.mark.parametrize("content", [b"", b"[]", b'{"run:back": {"at": "x"}}', b'{"run:back": 1}'])
def test_nobody_is_silenced_by_nonsense(site: Site, content: bytes) -> None:
    """What cannot be read was not told."""
    told = Told(site.state_dir)
    told.note("run:back", 100.0, "why")
    for file in told.files:
        if file.exists():
            file.write_bytes(content)
    assert told.due("run:back", 101.0)
    assert told.note("run:back", 101.0, "why")
    assert not told.due("run:back", 102.0)


def test_nobody_is_silenced_by_another_user_or_a_link(site: Site) -> None:
    """The room is everybody's: only a file of our own counts."""
    told = Told(site.state_dir)
    told.note("run:back", 100.0, "why")
    (file,) = [one for one in told.files if one.exists()]
    elsewhere = site.room / "elsewhere"
    elsewhere.write_bytes(file.read_bytes())
    file.unlink()
    file.symlink_to(elsewhere)
    assert told.due("run:back", 101.0)
    told.note("run:back", 101.0, "why")
    assert not file.is_symlink()
    if os.getuid() == 0:
        os.chown(file, 12345, 12345)
        assert told.due("run:back", 102.0)


def test_a_mailer_is_used_by_the_recovery_too(site: Site) -> None:
    """And a file beside it is not mistaken for a person."""
    mail = site.room / "mail"
    mailer = {"kind": "command", "command": ["/bin/sh", "-c", f"cat > {mail}"]}
    one = site.start(site.recipe())
    owed = site.owed(one)
    owed.tell.append(mailer)
    site.leave(owed, "restoring")
    assert recover.recover(site.state_dir, clock=site.clock).state == "closed"
    assert mail.read_text().startswith("SERVING since")
    assert len(site.told()) == 1
    assert recipe.read(site.state_dir) is None
