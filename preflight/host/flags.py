"""Would this build take this command line? Asked of its own --help; nothing is started.

A flag that a build has dropped ends the start, minutes after production was stopped. What the
environment configures and how slots cut the context is told, because nobody looks there.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import ClassVar, Literal

from preflight.box import TIMEOUT, Box
from preflight.check import Check, Explained
from preflight.files.paths import Trouble
from preflight.verdict import BlastRadius, State, Verdict
from preflight.wording import clipped, seconds

_NAME = re.compile(r"(--?[A-Za-z][\w.-]*)(,\s+)?")
_ENV = re.compile(r"\(env: (\w+)\)")
_REMOVED = re.compile(r"the argument has been removed\.?\s*(?:use (.*?))?\s*(?:\(env|$)")
_ALLOWED = re.compile(r"allowed values: ([\w, -]+?)\s*(?:\(|$)")
_CHOICE = re.compile(r"^\s*[{\[<]?([\w+-]+(?:[,|][\w+-]+)+)[}\]>]?(?=\s|$)")
_FEWEST = 20
"""A --help with fewer flags is none of a server that we know."""
_ORDER = (State.FAIL, State.WARN)
_ALSO_ON_AND_OFF = frozenset({"1", "true", "enabled", "0", "false", "disabled", "-1"})
"""What common/arg.cpp takes wherever on and off are allowed (is_truthy and its like, b11434)."""

REPLACED: Mapping[str, str] = {
    "--draft": "--spec-draft-n-max",
    "--draft-n": "--spec-draft-n-max",
    "--draft-max": "--spec-draft-n-max",
    "--draft-min": "--spec-draft-n-min",
    "--draft-n-min": "--spec-draft-n-min",
    "--mlock": "--load-mode mlock",
    "--no-mmap": "--load-mode none",
    "--direct-io": "--load-mode dio",
    "--webui": "--ui",
    "--no-webui": "--no-ui",
}
"""What took a flag's place, for builds whose --help does not name it any more (b9181 to b11434)."""


@dataclass(frozen=True, slots=True)
class Helped:
    """One entry of a --help: its names, and what is said of it."""

    names: tuple[str, ...]
    removed: str | None = None
    """What to use instead, perhaps empty; None for a flag that still works."""
    deprecated: bool = False
    allowed: tuple[str, ...] = ()
    env: str = ""


def helped(text: str) -> dict[str, Helped]:
    """Every flag of llama-server's --help, under each of its names (b10434 and later)."""
    found: dict[str, Helped] = {}
    entries: list[tuple[tuple[str, ...], str]] = []
    for line in text.splitlines():
        names, rest = _names(line)
        if names:
            entries.append((names, rest))
        elif entries and line.startswith((" ", "\t")):
            entries[-1] = (entries[-1][0], f"{entries[-1][1]} {line.strip()}")
    for names, said in entries:
        one = _entry(names, said)
        found |= dict.fromkeys(names, one)
    return found


def _names(line: str) -> tuple[tuple[str, ...], str]:
    """The names that an entry begins with, and the rest of its line."""
    names: list[str] = []
    at = 0
    while match := _NAME.match(line, at):
        names.append(match[1])
        at = match.end()
        if not match[2]:
            break
    return tuple(names), line[at:]


def _entry(names: tuple[str, ...], said: str) -> Helped:
    removed = _REMOVED.search(said)
    allowed = _ALLOWED.search(said)
    choice = _CHOICE.match(said)
    values: tuple[str, ...] = ()
    if allowed:
        values = tuple(value.strip() for value in allowed[1].split(","))
    elif choice and "..." not in choice[1]:
        values = tuple(re.split(r"[,|]", choice[1]))
        values = values if all(value[:1].islower() for value in values) else ()
    env = _ENV.search(said)
    return Helped(
        names,
        removed=(removed[1] or "").strip() if removed else None,
        deprecated="DEPRECATED" in said,
        allowed=values,
        env=env[1] if env else "",
    )


class Flags(Check):
    """The flags of one arm, against what its own program says it knows."""

    id: ClassVar[str] = "host.flags"
    radius: ClassVar[BlastRadius] = BlastRadius.HOST
    explains: ClassVar[tuple[Explained, ...]] = (
        Explained(
            "host.flags",
            reads="the program's own --help, the arm's command line, LLAMA_ARG_* variables, slots "
            "and context",
            passes="every flag is known to this build, with a value that it takes",
            warns="a deprecated flag; a variable that configures the server unseen; slots that "
            "divide the context",
            fails="a flag that this build does not know or has removed; a value that is not among "
            "the allowed ones; a variable whose value would be misread; a share of the context that "
            "is less than a claim wants",
            unknown="--help gave no answer within the deadline, or lists no flags",
            remedies=(
                "use the flag that replaced it, which is named where it is known",
                "write what a variable says as a flag",
                "parallel = 1, or -kvu so that slots share the context",
            ),
        ),
    )

    kind: Literal["flags"] = "flags"
    arm: str = "candidate"
    program: str
    flags: tuple[tuple[str, str | None], ...] = ()
    """Each flag as it is written, with its value; None for a switch."""
    environment: tuple[tuple[str, str, str], ...] = ()
    """Variables that configure the server: name, value, and the flag that they stand for."""
    misread: tuple[str, ...] = ()
    """What the server would misread of the environment, in words."""
    slots: int = 1
    context: int = 0
    """What all slots together get, where they divide it; 0 where they do not."""
    claimed: int = 0
    """The context that one request has to have, as a claim wants it."""
    env: Mapping[str, str] = {}
    deadline_s: float = 10.0

    @property
    def subject(self) -> str:
        """The arm and its program."""
        return f"the flags of the {self.arm}"

    def look(self, box: Box) -> Verdict:
        """Run --help, and hold every flag against it."""
        ran = box.run([self.program, "--help"], within=self.deadline_s, env=dict(self.env))
        if ran.fault == TIMEOUT:
            return self._says(
                State.UNKNOWN,
                f"{self.program} did not answer --help within {seconds(self.deadline_s)} (timeout)",
                remedy=f"try: {self.program} --help",
            )
        known = helped(ran.out or ran.err)
        if ran.code is None or len(known) < _FEWEST:
            said = ran.said or clipped(ran.last_line, 80) or "no word"
            return self._says(
                State.UNKNOWN,
                f"{self.program} --help lists no flags: {said}",
                remedy=f"try: {self.program} --help",
            )
        troubles = [*self._flags(known), *self._environment(), *self._divided()]
        if not troubles:
            count = len(self.flags)
            return self._says(State.PASS, f"all {count} flags are known to this build")
        worst = min(troubles, key=lambda trouble: _ORDER.index(trouble.state))
        others = tuple(trouble.found for trouble in troubles if trouble is not worst)
        return self._says(worst.state, worst.found, remedy=worst.remedy, evidence=others)

    def _says(
        self, state: State, found: str, *, remedy: str = "", evidence: tuple[str, ...] = ()
    ) -> Verdict:
        wanted = "flags that this build takes"
        return self.says(state, found, wanted=wanted, remedy=remedy, evidence=evidence)

    def _flags(self, known: Mapping[str, Helped]) -> Iterator[Trouble]:
        for name, value in self.flags:
            entry = known.get(name)
            if entry is None:
                close = REPLACED.get(name) or next(iter(get_close_matches(name, known, 1)), "")
                remedy = f"use {close}" if close else f"see: {self.program} --help"
                yield Trouble(State.FAIL, f"this build does not know {name}", remedy)
            elif entry.removed is not None:
                instead = entry.removed or REPLACED.get(name, "")
                remedy = f"use {instead}" if instead else "remove it"
                yield Trouble(State.FAIL, f"{name} has been removed from this build", remedy)
            elif value is not None and (wrong := _not_allowed(value, entry.allowed)):
                close = next(iter(get_close_matches(wrong, entry.allowed, 1)), "")
                remedy = f"did you mean {close}?" if close else f"one of {', '.join(entry.allowed)}"
                yield Trouble(State.FAIL, f"{name} {value}: {wrong} is no value it takes", remedy)
            elif entry.deprecated:
                remedy = f"use {REPLACED[name]}" if name in REPLACED else "replace it"
                yield Trouble(State.WARN, f"{name} is deprecated in this build", remedy)

    def _environment(self) -> Iterator[Trouble]:
        for said in self.misread:
            yield Trouble(State.FAIL, said, "correct or unset the variable")
        for name, value, flag in self.environment:
            found = f"{name}={clipped(value, 40)} in the environment sets {flag} unseen"
            yield Trouble(State.WARN, found, f"write {flag} in the job, or unset the variable")

    def _divided(self) -> Iterator[Trouble]:
        if self.slots < 2 or not self.context:
            return
        each = self.context // self.slots
        found = f"{self.slots} slots divide the context: {each:,} of {self.context:,} tokens each"
        if self.claimed > each:
            more = f"{found}, and a claim wants {self.claimed:,}"
            yield Trouble(State.FAIL, more, "parallel = 1, or context instead of -c")
        else:
            yield Trouble(State.WARN, found, "write context, which counts for one request")


def _not_allowed(value: str, allowed: tuple[str, ...]) -> str:
    """The part of a value that is not among the allowed ones; empty where all are."""
    if not allowed or ("off" in allowed and value in _ALSO_ON_AND_OFF):
        return ""
    return next((part for part in value.split(",") if part not in allowed), "")
