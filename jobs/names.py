"""What a job or a service may be called. Standard library only, so that listing jobs is quick."""

import re

_NAME = re.compile(r"[A-Za-z0-9_-]+")


def bad_name(name: str, what: str = "a job") -> str | None:
    """Why this cannot be the name of a job or a service; None when it can."""
    if _NAME.fullmatch(name):
        return None
    if not name:
        return f"the name of {what} is empty"
    for sign, word in (("/", "a slash"), (".", "a dot"), (" ", "a space")):
        if sign in name:
            return f"`{name}` has {word}; the name of {what} is letters, digits, `-` and `_` only"
    return f"`{name}`: the name of {what} is letters, digits, `-` and `_` only"
