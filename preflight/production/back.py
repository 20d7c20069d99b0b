"""Production's way back: could each service be started again, from what its recipe names?

A server can answer happily from files that are gone. So everything that a restart needs is looked
at before anything is stopped. It must not stop, start or change anything.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

from preflight.box import TIMEOUT, Box, FileFact
from preflight.check import Check, Deadline, Explained
from preflight.files.paths import Trouble, trouble_of
from preflight.host.room import program_trouble
from preflight.production.control import MayControl, OfWayBack, strings, unit_of
from preflight.production.unit_back import unit_troubles
from preflight.verdict import State, Verdict
from preflight.wording import named

_WEIGHTS = (".gguf", ".safetensors", ".bin", ".pt", ".pth")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_DELETED = " (deleted)"
_ORDER = (State.FAIL, State.UNKNOWN, State.WARN)


class WayBack(OfWayBack):
    """Everything that a restart of one service needs is there, and is what it runs from now."""

    id: ClassVar[str] = "prod.restore"
    cheap: ClassVar[bool] = True
    explains: ClassVar[tuple[Explained, ...]] = (
        Explained(
            "prod.restore",
            reads="every file that production was started from, what its processes map, its program, "
            "its directory, log, pidfile and API key, its unit with environment files, and whether "
            "this runs inside a service that would take production along",
            passes="everything that a restart needs is there, and is what production runs from",
            warns="the program, the unit or a file was changed since production started; the unit is "
            "not enabled; the API key is in the environment of one process alone",
            fails="a file is gone or another one, deleted under the running server included; the unit "
            "is masked, transient or changed without daemon-reload; the program, the directory or "
            "the log could not be used",
            unknown="a file or systemd does not answer; production may not be looked into and its "
            "recipe names no file",
            remedies=(
                "put the file back; until then do not restart production",
                "systemctl daemon-reload, and see that production still comes up with it",
                "put production under systemd",
            ),
        ),
    )

    kind: Literal["way_back"] = "way_back"
    deadline_s: float = 10.0

    @property
    def subject(self) -> str:
        """The service."""
        return f"the way back of {self.service}"

    def look(self, box: Box) -> Verdict:
        """Inputs, the live process's own files, then what its supervisor needs."""
        time = Deadline(self.deadline_s)
        facts = box.files([path for path, _ in self._recorded()], within=time.left())
        troubles = [
            *self._inputs(facts),
            *self._vanished(box, time),
            *self._outdated(box, facts),
            *self._secrets(box, time),
            *self._supervised(box, time),
        ]
        seen = " ".join(fact.fingerprint for fact in facts)
        inputs = tuple(f"input: {fact.path}" for fact in facts)
        if not troubles:
            found = f"its program, its place and all {len(facts)} inputs are there"
            return self._says(State.PASS, found, evidence=inputs, seen=seen)
        worst = min(troubles, key=lambda trouble: _ORDER.index(trouble.state))
        others = tuple(trouble.found for trouble in troubles if trouble is not worst)
        return self._says(
            worst.state, worst.found, remedy=worst.remedy, evidence=(*others, *inputs), seen=seen
        )

    def _says(self, state: State, found: str, **more: Any) -> Verdict:
        return self.says(state, found, wanted="everything a restart needs", **more)

    def _recorded(self) -> list[tuple[str, Mapping[str, Any]]]:
        """Every input's path with what was recorded of it."""
        inputs = [one for one in self.recipe.get("inputs", ()) if isinstance(one, dict)]
        return [(str(one.get("path", "")), one) for one in inputs]

    def _inputs(self, facts: Sequence[FileFact]) -> Iterator[Trouble]:
        for (path, recorded), fact in zip(self._recorded(), facts, strict=True):
            trouble = trouble_of(fact)
            if trouble is None or fact.read_fault in ("EACCES", "EPERM"):
                # whom production runs as has to read it, which need not be us
                trouble = _drift(recorded, fact)
            if trouble is not None:
                yield trouble._replace(found=f"{path} {trouble.found}")

    def _vanished(self, box: Box, time: Deadline) -> Iterator[Trouble]:
        """Weights that the live server maps and that are gone from disk, or were replaced."""
        if self.pid is None:
            return
        inputs = {path for path, _ in self._recorded()}
        looked = [box.vanished(pid) for pid in sorted({self.pid} | box.family(self.pid))]
        deleted = {
            (path, inode)
            for files in looked
            for path, inode in files or ()
            if path in inputs or path.endswith(_WEIGHTS)
        }
        if gone := self._not_back(deleted, box, time):
            found = (
                f"runs from a file that is gone from disk ({named(sorted(gone))}, deleted or "
                "replaced while it runs): it cannot be started again as it is"
            )
            yield Trouble(State.FAIL, found, "put it back; until then do not restart production")
        elif None in looked and not inputs:
            yield Trouble(
                State.UNKNOWN,
                "what it runs from cannot be seen, and its recipe names no file",
                "run as the same user, give the runner CAP_SYS_PTRACE, or name model",
            )

    def _not_back(
        self, deleted: Collection[tuple[str, int]], box: Box, time: Deadline
    ) -> frozenset[str]:
        """Those that are not the same file again at their path, or where their bytes are kept."""
        if not deleted:
            return frozenset()
        kept: Mapping[str, str] = self.recipe.get("kept") or {}
        ordered = sorted(deleted)
        places = [kept.get(path, path) for path, _ in ordered]
        facts = box.files(places, within=time.left())
        return frozenset(
            path
            for (path, inode), fact in zip(ordered, facts, strict=True)
            if fact.fault or fact.inode != inode
        )

    def _outdated(self, box: Box, facts: Sequence[FileFact]) -> Iterator[Trouble]:
        """What runs is no longer what lies on disk: a restart would start the new one."""
        live = box.process(self.pid) if self.pid is not None else None
        if live is None:
            return
        if live.exe is not None and live.exe.endswith(_DELETED):
            found = f"its program {live.exe.removesuffix(_DELETED)} was replaced since it started"
            yield Trouble(
                State.WARN, f"{found}: a restart runs the new one", "see which build it is"
            )
        since = live.since
        newer = [
            fact.path
            for fact in facts
            if since is not None and not fact.fault and fact.mtime_ns / 1e9 > since + 1
        ]
        if newer:
            found = f"{named(newer)} was written after production started"
            yield Trouble(
                State.WARN, f"{found}: a restart reads the new one", "see who did, and what"
            )

    def _secrets(self, box: Box, time: Deadline) -> Iterator[Trouble]:
        """The API key: who restores has to read it again, to see whether production serves."""
        probe = self.recipe.get("probe")
        key = probe.get("api_key") if isinstance(probe, dict) else None
        if not isinstance(key, dict):
            return
        path = key.get("file")
        if isinstance(path, str):
            (fact,) = box.files([path], within=time.left())
            trouble = trouble_of(fact)
            if trouble is not None:
                yield trouble._replace(found=f"its API key file {path} {trouble.found}")
        elif isinstance(key.get("env"), str):
            yield Trouble(
                State.WARN,
                f"its API key is in the environment of this process alone ({key['env']}): a recovery "
                "after a crash could not ask whether it serves",
                "write it to a file, and name that: api_key = { file = … }",
            )

    def _supervised(self, box: Box, time: Deadline) -> Iterator[Trouble]:
        match self.supervisor.get("kind"):
            case "process":
                yield from self._process(box, time)
            case "systemd":
                yield from unit_troubles(
                    box, self.supervisor, self.pid, within=min(5.0, time.left())
                )
            case "command":
                for verb in ("start", "stop", "status"):
                    argv = strings(self.supervisor.get(verb))
                    yield from _program(box, argv, _PATH, "/", within=time.left())
            case other:
                found = f"its supervisor is {other!r}, which nobody here can drive"
                yield Trouble(State.FAIL, found, "name a supervisor of a kind there is")

    def _process(self, box: Box, time: Deadline) -> Iterator[Trouble]:
        me, cwd = box.me(), str(self.supervisor.get("cwd") or "/")
        if self.owner_uid is not None and self.owner_uid != me.uid:
            found = f"runs as uid {self.owner_uid}; started by {me.user} it would run as {me.uid}"
            yield Trouble(State.FAIL, found, "run as that user, or put it under systemd")
        env = self.supervisor.get("env")
        path = str(env.get("PATH", _PATH)) if isinstance(env, dict) else _PATH
        argv = strings(self.supervisor.get("argv"))
        yield from _program(box, argv, path, cwd, within=time.left())
        yield from self._places(box, cwd, time)
        yield from self._own_unit(box, time)

    def _places(self, box: Box, cwd: str, time: Deadline) -> Iterator[Trouble]:
        """The working directory, and where log and pidfile are written."""
        written = [self.supervisor.get(key) for key in ("log", "pidfile")]
        paths = [path for path in written if isinstance(path, str) and path]
        directory, *files = box.files([cwd, *paths], within=time.left())
        if directory.fault or directory.kind != "directory":
            found = f"its working directory {cwd} is not there"
            yield Trouble(_unless_timeout(directory), found, "make it again")
        for fact in files:
            if fact.fault == "ENOENT":
                parent = fact.path.rsplit("/", 1)[0] or "/"
                fine = fact.nearest == parent and fact.nearest_writable
            else:
                fine = not fact.fault and fact.kind != "directory" and fact.writable
            if not fine:
                found = f"{fact.path} cannot be written by {box.me().user}"
                yield Trouble(_unless_timeout(fact), found, "mend its directory or permissions")

    def _own_unit(self, box: Box, time: Deadline) -> Iterator[Trouble]:
        """What we start shares our cgroup: in a service it would be killed when that one ends."""
        unit = box.me().unit
        if unit is None or not unit.endswith(".service"):
            return
        scope = "user" if "/user@" in (box.me().cgroup or "") else "system"
        ours = {"unit": unit, "scope": scope}
        shown = unit_of(box, ours, within=min(5.0, time.left()))
        mode = shown.get("KillMode")
        if mode in ("process", "none"):
            return
        how = f"KillMode={mode}" if mode else f"its KillMode is not known: {shown.said}"
        found = f"this runs inside {unit} ({how}): production started from here would die with it"
        state = State.FAIL if mode else State.UNKNOWN
        yield Trouble(state, found, "put production under systemd, or run from a session")


def way_back(recipe: dict[str, Any]) -> tuple[Check, ...]:
    """Both questions about one service's recipe: the permission, and the things."""
    return MayControl(recipe=recipe), WayBack(recipe=recipe)


def _unless_timeout(fact: FileFact) -> State:
    return State.UNKNOWN if fact.fault == TIMEOUT else State.FAIL


def _drift(recorded: Mapping[str, Any], fact: FileFact) -> Trouble | None:
    """How a file differs from what the recipe recorded of it."""
    for key, now in (("size", fact.size), ("inode", fact.inode)):
        then = recorded.get(key)
        if isinstance(then, int) and then != now:
            found = f"is not the file that production runs from ({key} was {then}, is {now})"
            remedy = "put the old one back, or restart production by hand and look at it"
            return Trouble(State.FAIL, found, remedy)
    then = recorded.get("mtime_ns")
    if isinstance(then, int) and then != fact.mtime_ns:
        found = "was written to or touched since its recipe was made"
        return Trouble(State.WARN, found, "see who did, and what")
    return None


def _program(
    box: Box, argv: Sequence[str], path: str, cwd: str, *, within: float
) -> Iterator[Trouble]:
    """The first word of a command, found as exec would find it."""
    if not argv:
        yield Trouble(State.FAIL, "a command is missing from its recipe", "name the command")
        return
    word = argv[0]
    if "/" in word:
        places = [word if word.startswith("/") else f"{cwd.rstrip('/')}/{word}"]
    else:
        places = [f"{place}/{word}" for place in path.split(":") if place.startswith("/")]
    facts = box.files(places, within=within)
    if any(program_trouble(fact) is None for fact in facts):
        return
    there = [fact for fact in facts if fact.fault != "ENOENT"]
    if "/" not in word and not there:
        found = f"its program {word} is nowhere in PATH={path}"
        yield Trouble(State.FAIL, found, "install it, or name its full path")
        return
    fact = (there or list(facts))[0]
    trouble = program_trouble(fact)
    if trouble is not None:
        yield trouble._replace(found=f"its program {fact.path} {trouble.found}")
