"""Whether sudo lets this user run a command without ever asking for a password.

`sudo -l COMMAND` alone does not tell: it also says yes to a command that needs a password (sudo(8);
seen with 1.9.13). So the rules themselves are listed, and the last one that matches decides, as it
does for sudo. A ticket that a person left behind by hand is never counted: `-k`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from preflight.box import TIMEOUT, Box, Ran
from preflight.files.paths import Trouble
from preflight.verdict import State
from preflight.wording import clipped

_PROMPTLESS = ("-n", "--non-interactive")
_WITHIN_S = 5.0


def is_sudo(argv: Sequence[str]) -> bool:
    """Whether this command goes through sudo."""
    return bool(argv) and argv[0].rsplit("/", 1)[-1] == "sudo"


def why(ran: Ran) -> str:
    """Why a command failed, in its own words."""
    return clipped(ran.said or ran.last_line or f"exit code {ran.code}", 160)


def sudo_trouble(box: Box, verb: str, argv: Sequence[str], *, within: float) -> Trouble | None:
    """What would keep this command from running at midnight; None when sudo lets it pass."""
    rest = [word for word in argv[1:] if word not in _PROMPTLESS]
    if len(rest) == len(argv) - 1:
        return Trouble(
            State.FAIL,
            f"its {verb} command could ask for a password at midnight",
            f"write it as: {argv[0]} -n {' '.join(rest)}",
        )
    ran = box.run([argv[0], "-n", "-k", "-l", *rest], within=min(_WITHIN_S, within))
    if ran.fault == TIMEOUT:
        return Trouble(State.UNKNOWN, f"{ran.said} (timeout)", f"try: sudo -n -l {' '.join(rest)}")
    allow = f"give it a NOPASSWD rule in /etc/sudoers.d, for {' '.join(rest)}"
    if ran.code != 0:
        return Trouble(
            State.FAIL,
            f"sudo does not let this user {verb} it without a password ({why(ran)})",
            allow,
        )
    if box.me().uid == 0:
        return None  # root is never asked
    return _asked(box, verb, argv[0], ran.out.strip().splitlines(), allow, within=within)


def _asked(
    box: Box, verb: str, sudo: str, said: Sequence[str], allow: str, *, within: float
) -> Trouble | None:
    listed = box.run([sudo, "-n", "-k", "-l", "-l"], within=min(_WITHIN_S, within))
    free = password_free(listed.out, said[-1].strip()) if listed.code == 0 and said else None
    if free:
        return None
    if free is None:
        return Trouble(
            State.UNKNOWN,
            f"sudo permits to {verb} it, and does not tell whether it would ask for a password",
            f"try: sudo -k -n -l -l, and {allow}",
        )
    return Trouble(State.FAIL, f"sudo permits to {verb} it, and would ask for a password", allow)


def password_free(listing: str, command: str) -> bool | None:
    """What `sudo -l -l` says of a command, given as sudo itself prints it.

    None when no rule that is understood matches.
    """
    defaults, _, rules = listing.partition("may run the following commands")
    found: bool | None = None
    free = "!authenticate" in re.split(r"[\s,]+", defaults)
    for options, rule in _rules(rules):
        if _matches(rule, command):
            found = "!authenticate" in options or (free and "authenticate" not in options)
    return found


def _rules(text: str) -> Iterator[tuple[list[str], str]]:
    """Each command of each entry, with the options of its entry."""
    for entry in text.split("Sudoers entry:")[1:]:
        options: list[str] = []
        commands = False
        for line in entry.splitlines()[1:]:
            word = line.strip()
            if word.startswith("Options:"):
                options = re.split(r"[\s,]+", word.removeprefix("Options:").strip())
            elif word == "Commands:":
                commands = True
            elif commands and word:
                yield options, word


def _matches(rule: str, command: str) -> bool:
    """Whether a rule of sudoers(5) covers a command with its arguments."""
    rule = re.sub(r"^(sha\d+:\S+[ ,]+)+", "", rule)
    if rule.startswith("!"):
        return False
    if rule == "ALL":
        return True
    path, space, arguments = rule.partition(" ")
    program, _, given = command.partition(" ")
    if not _like(path, program, slashes=False):
        return False
    if not space:
        return True
    return given == "" if arguments == '""' else _like(arguments, given, slashes=True)


def _like(pattern: str, text: str, *, slashes: bool) -> bool:
    """sudo's own wildcards; in a path they do not reach over a slash."""
    if pattern.startswith("^"):
        try:
            return re.search(pattern, text) is not None
        except re.error:
            return False
    if pattern.endswith("/") and not slashes:
        return text.startswith(pattern) and "/" not in text[len(pattern) :]
    anything = "." if slashes else "[^/]"
    parts = {"*": f"{anything}*", "?": anything}
    plain = pattern.replace("\\", "")
    return re.fullmatch("".join(parts.get(c, re.escape(c)) for c in plain), text) is not None
