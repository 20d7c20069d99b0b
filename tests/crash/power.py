"""A power cut at every moment of a run: the disk as it may be found, rebuilt from its system calls.

What was not synced may be lost, kept, or kept in part: writes in any order, sectors of 512 bytes
torn, names that no fsync of their directory made durable. What the run took for durable must be
there, whatever the disk did.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner.journal import Journal, JournalError
from runner.recovery import recipe, state
from runner.recovery.files import RESERVE
from tests.crash.box import Box
from tests.crash.cases import Case

SECTOR = 512
MARKS = "marks"
_CALL = re.compile(r"^(\w+)\((.*)\)\s+= (-?\d+)")
_FD = re.compile(r"^(\d+)<((?:\\x[0-9a-f]{2}|[^>])*)>")
_TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')

Json = dict[str, Any]


@dataclass
class Op:
    """One change of a file or of a name in a directory, or a sync of one of them."""

    kind: str
    inode: int = -1
    path: str = ""
    other: str = ""
    offset: int = 0
    content: bytes = b""
    mark: Json = field(default_factory=dict)


def record(box: Box) -> list[Op]:
    """One run, undisturbed, as everything that it did to its state directory; with its marks."""
    from tests.crash.play import start_run  # it plays power cuts in turn

    box.shape_for(Case("power", candidate="refuted"))
    settings = box.write()
    box.fresh()
    box.start()
    box.state.mkdir()
    log = box.room / "calls.log"
    log.unlink(missing_ok=True)
    marks = box.room / MARKS
    marks.write_bytes(b"")
    pid = start_run(box, settings, marks=marks, calls=log)
    box.wait(pid, 120)
    box.soon(lambda: None if box.guardians() else True, within=30)
    return Reader(str(box.state), str(marks)).ops(log)


class Reader:
    """strace's lines as operations on inodes."""

    def __init__(self, root: str, marks: str) -> None:
        self._root, self._marks = root, marks
        self._names: dict[str, int] = {}
        self._open: dict[int, tuple[int, int, bool]] = {}  # fd → inode, position, append
        self._next = 0

    def ops(self, log: Path) -> list[Op]:
        """All of them, in order."""
        found: list[Op] = []
        for line in log.read_text(errors="replace").splitlines():
            call = _CALL.match(line)
            if call is None or int(call[3]) < 0:
                continue
            found.extend(self._op(call[1], call[2], int(call[3])))
        return found

    def _op(self, name: str, words: str, result: int) -> Iterator[Op]:
        texts = [_bytes(text) for text in _TEXT.findall(words)]
        held = _FD.match(words)
        fd, path = (int(held[1]), _path(held[2])) if held else (-1, "")
        if name in ("openat", "rename", "renameat", "renameat2", "unlink", "unlinkat", "mkdir"):
            yield from self._named(name, words, [text.decode() for text in texts], result)
        elif name == "close":
            self._open.pop(fd, None)
        elif path == self._marks:
            yield Op("mark", mark=json.loads(texts[0]))
        elif name in ("fsync", "fdatasync") and self._ours(path):
            inode = self._open.get(fd, (-1, 0, False))[0]
            yield Op("sync", inode=inode) if inode >= 0 else Op("syncdir", path=path)
        elif fd in self._open:
            yield from self._changed(name, words, texts, fd, result)

    def _named(self, name: str, words: str, texts: list[str], result: int) -> Iterator[Op]:
        """A change of names in a directory."""
        if not self._ours(texts[0]):
            return
        if name == "openat":
            yield from self._opened(texts[0], words, result)
        elif name == "mkdir":
            yield Op("mkdir", path=texts[0])
        elif name.startswith("unlink"):
            self._names.pop(texts[0], None)
            yield Op("unlink", path=texts[0])
        else:
            inode = self._names.pop(texts[0], -1)
            self._names[texts[1]] = inode
            yield Op("rename", inode=inode, path=texts[0], other=texts[1])

    def _ours(self, path: str) -> bool:
        return path == self._root or path.startswith(f"{self._root}/")

    def _opened(self, path: str, words: str, result: int) -> Iterator[Op]:
        if "O_DIRECTORY" in words or path.endswith("-shm"):
            return
        if path not in self._names:
            if "O_CREAT" not in words:
                return
            self._names[path] = self._next
            self._next += 1
            yield Op("create", inode=self._names[path], path=path)
        inode = self._names[path]
        if "O_TRUNC" in words:
            yield Op("truncate", inode=inode, offset=0)
        self._open[result] = (inode, 0, "O_APPEND" in words)

    def _changed(
        self, name: str, words: str, texts: list[bytes], fd: int, result: int
    ) -> Iterator[Op]:
        inode, position, append = self._open[fd]
        numbers = [int(word) for word in re.findall(r"(?<=, )\d+", words)]
        if name == "write":
            yield Op(
                "write", inode=inode, offset=-1 if append else position, content=texts[0][:result]
            )
            self._open[fd] = (inode, position + result, append)
        elif name == "pwrite64":
            yield Op("write", inode=inode, offset=numbers[-1], content=texts[0][:result])
        elif name == "ftruncate":
            yield Op("truncate", inode=inode, offset=numbers[-1])
        elif name == "fallocate":
            yield Op("extend", inode=inode, offset=numbers[-2] + numbers[-1])


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


def _path(text: str) -> str:
    return _bytes(text).decode() if text.startswith("\\x") else text


class Disk:
    """What may be found after a power cut right after the first `count` operations.

    With a `draw`, each thing that was not synced is kept or lost by chance, and torn; without one
    everything that was not synced is lost.
    """

    def __init__(self, ops: list[Op], count: int, draw: random.Random | None) -> None:
        self._ops, self._draw = ops[:count], draw
        self._last_sync: dict[int | str, int] = {}
        for place, op in enumerate(self._ops):
            if op.kind in ("sync", "syncdir"):
                self._last_sync[op.inode if op.kind == "sync" else op.path] = place
        self.files: dict[str, bytearray] = {}
        self.dirs: set[str] = set()
        self._rebuild()

    def _rebuild(self) -> None:
        contents: dict[int, bytearray] = {}
        names: dict[str, int] = {}
        for place, op in enumerate(self._ops):
            if op.kind in ("write", "truncate", "extend"):
                self._apply(contents.setdefault(op.inode, bytearray()), op, self._synced(place))
            elif op.kind in ("create", "rename", "unlink", "mkdir") and self._kept_name(place, op):
                _rename(names, self.dirs, op)
        for path, inode in names.items():
            self.files[path] = contents.get(inode, bytearray())

    def _synced(self, place: int) -> bool:
        return self._last_sync.get(self._ops[place].inode, -1) > place

    def _kept_name(self, place: int, op: Op) -> bool:
        if self._last_sync.get(os.path.dirname(op.other or op.path), -1) > place:
            return True
        return self._draw is not None and self._draw.random() < 0.5

    def _apply(self, content: bytearray, op: Op, synced: bool) -> None:
        kept = synced or (self._draw is not None and self._draw.random() < 0.5)
        if not kept:
            return
        if op.kind == "truncate":
            del content[op.offset :]
            content.extend(bytes(max(0, op.offset - len(content))))
            return
        if op.kind == "extend":
            content.extend(bytes(max(0, op.offset - len(content))))
            return
        offset = len(content) if op.offset < 0 else op.offset
        content.extend(bytes(max(0, offset + len(op.content) - len(content))))
        for start in range(0, len(op.content), SECTOR):
            if synced or self._draw is None or self._draw.random() < 0.7:
                piece = op.content[start : start + SECTOR]
                content[offset + start : offset + start + len(piece)] = piece

    def write(self, root: str, into: Path) -> None:
        """Put it there."""
        shutil.rmtree(into, ignore_errors=True)
        for room in ("runs", "spool", "public"):
            (into / room).mkdir(parents=True, exist_ok=True)
        for path in self.dirs:
            (into / os.path.relpath(path, root)).mkdir(parents=True, exist_ok=True)
        for path, content in self.files.items():
            if path.endswith(f"/{RESERVE}"):
                continue  # a megabyte of nothing
            target = into / os.path.relpath(path, root)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
            target.chmod(0o600)


def _rename(names: dict[str, int], dirs: set[str], op: Op) -> None:
    if op.kind == "mkdir":
        dirs.add(op.path)
    elif op.kind == "unlink":
        names.pop(op.path, None)
    else:
        if op.kind == "rename":
            names.pop(op.path, None)
        names[op.other or op.path] = op.inode


def torn(ops: list[Op], box: Box, seed: int, every: int = 1) -> tuple[int, list[str]]:
    """Look at every state that a power cut may leave: how many there were, and what was lost."""
    into = box.room / "cut"
    count, broken = 0, []
    changes = [place for place, op in enumerate(ops, start=1) if op.kind != "mark"]
    for place in [*changes[::every], len(ops)]:
        for draw in (None, random.Random(f"{seed}/{place}/a"), random.Random(f"{seed}/{place}/b")):
            Disk(ops, place, draw).write(str(box.state), into)
            count += 1
            broken += [f"after {place} calls: {said}" for said in lost(ops, place, into)]
    return count, broken


def lost(ops: list[Op], count: int, found: Path) -> Iterator[str]:
    """What the run took for durable after so many operations, and is not there."""
    marks = [op.mark for op in ops[:count] if op.kind == "mark"]
    done = Counter(mark["did"] for mark in marks)
    begun = Counter(mark["did"] for mark in marks if mark.get("entered"))
    yield from _journal_lost(done, found)
    try:
        owed = recipe.read(found)
    except recipe.Unreadable as error:
        yield f"the recipe cannot be read: {error}"
    else:
        if owed is None and done["recipe.write"] and not begun["enter recipe.close"]:
            yield "the recipe is lost"
        if owed is not None and done["recipe.close"]:
            yield "a debt that was paid is back"
    acknowledged = max(
        (mark["sequence"] for mark in marks if mark["did"] == "state.write"), default=0
    )
    if acknowledged and done["recipe.write"] and not done["recipe.close"]:
        found_at = _sequence(found)
        if found_at < acknowledged:
            yield f"recovery.state is at {found_at}, {acknowledged} was acknowledged"


def _sequence(found: Path) -> int:
    try:
        raw = (found / state.NAME).read_bytes()
    except OSError:
        return 0
    slots = [state._unpack(raw[place : place + state._SLOT]) for place in (0, state._SLOT)]
    return max((slot[0] for slot in slots if slot), default=0)


def _journal_lost(done: Counter[str], found: Path) -> Iterator[str]:
    try:
        Journal.open(found).shut()
    except JournalError as error:
        yield f"the journal cannot be opened: {error}"
        return
    if any("damaged" in name for name in os.listdir(found)):
        yield "the journal was damaged"
        return
    with closing(sqlite3.connect(found / "journal.db")) as db:
        runs = db.execute("SELECT count(*) FROM runs").fetchone()[0]
        events = db.execute("SELECT count(*) FROM events").fetchone()[0]
        ended = db.execute("SELECT count(*) FROM runs WHERE outcome IS NOT NULL").fetchone()[0]
        alerts = db.execute("SELECT count(*) FROM outbox").fetchone()[0]
    if runs < done["journal.begin"]:
        yield "a run that had begun is lost"
    if events < done["journal.event"] + done["journal.close"]:
        yield f"{events} events are there, {done['journal.event']} were acknowledged"
    if ended < done["journal.close"] or alerts < done["journal.close"]:
        yield "an outcome, or its alert, is lost"


def cut(box: Box, said: str) -> list[str]:
    """The power goes after so many calls of a run, and the box boots again: what was lost.

    `said` is calls:seed, where seed 0 loses all that was not synced.
    """
    if box.calls is None:
        box.calls = record(box)
    place, _, seed = said.partition(":")
    changes = [at for at, op in enumerate(box.calls, start=1) if op.kind != "mark"]
    count = changes[int(place) % len(changes)]
    draw = random.Random(said) if int(seed or 0) else None
    found = box.room / "cut"
    Disk(box.calls, count, draw).write(str(box.state), found)
    broken = list(lost(box.calls, count, found))
    box.end_all()
    reboot(box, found)
    return broken


def reboot(box: Box, found: Path) -> None:
    """Make a found disk the state directory of a box that has booted anew."""
    shutil.rmtree(box.state, ignore_errors=True)
    shutil.copytree(found, box.state)
    old = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    new = "0" * 8 + old[8:]
    for name in (recipe.NAME, recipe.COPY):
        path = box.state / name
        if path.exists():
            path.write_bytes(path.read_bytes().replace(old.encode(), new.encode()))
    raw = bytearray()
    path = box.state / state.NAME
    if path.exists():
        for place in (0, state._SLOT):
            slot = path.read_bytes()[place : place + state._SLOT].ljust(state._SLOT, b"\0")
            said = state._unpack(slot)
            if said is not None:
                text = json.dumps(said[1]).replace(old, new)
                slot = state._pack(said[0], text.encode()).ljust(state._SLOT, b"\0")
            raw += slot
        path.write_bytes(raw)
    if (box.state / "journal.db").exists():
        _another_boot(box.state / "journal.db", old, new)


def stop_asked(found: Path) -> bool:
    """Whether the disk says that production was asked to end, or does not say that it was not."""
    return (found / recipe.NAME).exists() and state.read(found).get("phase") != "armed"


def _another_boot(path: Path, old: str, new: str) -> None:
    try:
        with closing(sqlite3.connect(path)) as db, db:
            db.execute("UPDATE runs SET ident = replace(ident, ?, ?)", (old, new))
    except sqlite3.Error:
        return
