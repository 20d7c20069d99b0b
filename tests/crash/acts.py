"""What happens to the box while a run stands still, and how it is undone. Knows no runner."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runner.journal_file import SCHEMA
from tests.crash import apart

if TYPE_CHECKING:
    from tests.crash.box import Box
    from tests.crash.cases import Case


def _kill_production(box: Box) -> None:
    box.mark("ended by others")
    _end(box, signal.SIGKILL)


def _stop_production(box: Box) -> None:
    box.mark("ended by others")
    _end(box, signal.SIGTERM)


def _end(box: Box, number: signal.Signals) -> None:
    hit = box.copies()
    for pid in hit:
        os.kill(pid, number)
    box.ended(hit, within=5)


def _steal_port(box: Box) -> None:
    box.start_stranger("--mute")


def _serve_instead(box: Box) -> None:
    box.start_stranger()


def _give_port_back(box: Box) -> None:
    box.end_stranger()


def _lose_model(box: Box) -> None:
    box.model.unlink()


def _find_model(box: Box) -> None:
    box.model.write_bytes(b"weights")


def _fill_disk(box: Box) -> None:
    """To the last byte: what is written from now on fails, what is allocated already does not."""
    if not os.path.ismount(box.small):
        raise RuntimeError(f"{box.small} is no disk of its own")
    fd = os.open(box.small / "filler", os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        for size in (65536, 4096, 512, 1):
            try:
                while True:
                    os.write(fd, b"\0" * size)
            except OSError:
                continue
    finally:
        os.close(fd)


def _clear_disk(box: Box) -> None:
    (box.small / "filler").unlink(missing_ok=True)


def _make_read_only(box: Box) -> None:
    apart.make_read_only(box.state)


def _make_writable(box: Box) -> None:
    with contextlib.suppress(OSError):  # it is writable: nothing lies over it
        apart.unmount(box.state)


def _corrupt_journal(box: Box) -> None:
    for name in ("journal.db", "journal.db-wal"):
        path = box.state / name
        if path.exists():
            path.write_bytes(os.urandom(path.stat().st_size))


def _newer_journal(box: Box) -> None:
    with contextlib.closing(sqlite3.connect(box.state / "journal.db", timeout=5)) as db:
        db.execute("PRAGMA user_version=99")


def _known_journal(box: Box) -> None:
    path = box.state / "journal.db"
    if not path.exists():
        return
    with contextlib.closing(sqlite3.connect(path, timeout=5)) as db:
        if db.execute("PRAGMA user_version").fetchone()[0] == 99:
            db.execute(f"PRAGMA user_version={SCHEMA}")


def _lock_journal(box: Box) -> None:
    db = sqlite3.connect(box.state / "journal.db", isolation_level=None, timeout=5)
    db.execute("BEGIN IMMEDIATE")  # nobody else can write any more
    box.held.append(db)


def _unlock_journal(box: Box) -> None:
    for db in box.held:
        db.close()
    box.held.clear()


def _remove_state(box: Box) -> None:
    shutil.rmtree(box.state)


def _lose_recipe(box: Box) -> None:
    for name in ("recovery.json", "recovery.copy.json"):
        (box.state / name).unlink(missing_ok=True)


def _corrupt_recipe(box: Box) -> None:
    path = box.state / "recovery.json"
    path.write_bytes(os.urandom(path.stat().st_size))


def _break_config(box: Box) -> None:
    (box.room / "runner.toml").write_text("this = is [no toml")


def _freeze_guardian(box: Box) -> None:
    for pid in box.guardians():
        os.kill(pid, signal.SIGSTOP)


def _thaw_guardian(box: Box) -> None:
    for pid in box.guardians():
        os.kill(pid, signal.SIGCONT)


def _kill_guardian(box: Box) -> None:
    for pid in box.guardians():
        os.kill(pid, signal.SIGKILL)


def _nothing(_: Box) -> None:
    return


@dataclass(frozen=True)
class Act:
    """Something that happens, its undoing, and what is to be expected of a run meanwhile."""

    do: Callable[[Box], None]
    undo: Callable[[Box], None] = _nothing
    told: str = ""
    """Production cannot come back until it is undone, and a person is told so in this word."""
    for_ever: bool = False
    """What came instead is left alone; when that goes, nobody brings production."""
    back_first: bool = False
    """It hinders nobody: production is back before it is undone."""
    tells: str = ""
    """If the run is killed then a person is told, in this word, before it is undone."""
    refuses: bool = False
    """The run must see it, and not stop production."""
    small: bool = False
    """Needs a state directory on a small disk of its own."""
    goes_on: bool = True
    """The run may go on afterwards; else it stands still until somebody ends it."""
    guarded: bool = True
    """Somebody will end a run that stands still; else that is for the timer to do."""


ACTS = {
    "kill-production": Act(_kill_production),
    "stop-production": Act(_stop_production),
    "steal-port": Act(_steal_port, _give_port_back, told="DOWN"),
    "serve-instead": Act(_serve_instead, _give_port_back, told="DEGRADED", for_ever=True),
    "lose-model": Act(_lose_model, _find_model, told="DOWN"),
    "fill-disk": Act(_fill_disk, _clear_disk, back_first=True, small=True),
    "corrupt-journal": Act(_corrupt_journal),
    "read-only": Act(
        _make_read_only, _make_writable, back_first=True, tells="cannot be used", small=True
    ),
    "lock-journal": Act(_lock_journal, _unlock_journal, back_first=True),
    "break-config": Act(_break_config),
    "remove-state": Act(_remove_state, back_first=True),
    "lose-recipe": Act(_lose_recipe, back_first=True),
    "corrupt-recipe": Act(_corrupt_recipe, back_first=True),
    "freeze-guardian": Act(_freeze_guardian, _thaw_guardian),
    "kill-guardian": Act(_kill_guardian, refuses=True),
    "freeze": Act(_nothing, goes_on=False),
    "freeze-unguarded": Act(_kill_guardian, goes_on=False, guarded=False),
    "newer-journal": Act(_newer_journal, _known_journal, back_first=True),
}


_NOTHING = Act(_nothing)


def act(box: Box, case: Case) -> None:
    """Let it happen."""
    box.mark("act")
    ACTS[case.act].do(box)


def undo(box: Box, case: Case) -> None:
    """Undo it, as time or a person would."""
    if case.act:
        ACTS[case.act].undo(box)


def undo_all(box: Box) -> None:
    """Whatever happened, the next case finds a box that works."""
    for one in ACTS.values():
        with contextlib.suppress(OSError, sqlite3.Error):
            one.undo(box)


def expects(case: Case) -> Act:
    """What is to be expected of what happens in this case."""
    return ACTS[case.act] if case.act else _NOTHING


def goes_on(case: Case) -> bool:
    """Whether the run goes on after what happened."""
    return ACTS[case.act].goes_on
