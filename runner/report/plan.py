"""What `runner run --dry-run` would do, as text: every check, the exact commands, the budgets."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from runner import words
from runner.secrets import redact_argv

Json = Mapping[str, Any]


def plan_lines(plan: Json) -> list[str]:
    """The plan in the order in which it would happen; nested parts are indented."""
    lines = [f"plan for {words.shown(plan.get('job'))}: nothing was touched"]
    for name, part in plan.items():
        if name != "job" and part not in (None, [], {}):
            lines += ["", f"{name.replace('_', ' ')}:", *_part(part, "  ")]
    return lines


def _part(part: object, indent: str) -> list[str]:
    if isinstance(part, Mapping):
        return [line for name, value in part.items() for line in _named(str(name), value, indent)]
    if isinstance(part, list | tuple):
        if _is_command(part):
            return [indent + _command(part)]
        return [line for each in part for line in _entry(each, indent)]
    return [f"{indent}{words.shown(part)}"]


def _named(name: str, value: object, indent: str) -> list[str]:
    if value in (None, [], {}):
        return []
    if isinstance(value, list | tuple) and _is_command(value):
        return [f"{indent}{name}: {_command(value)}"]
    if isinstance(value, Mapping | list | tuple):
        return [f"{indent}{name}:", *_part(value, f"{indent}  ")]
    if isinstance(value, float | int) and not isinstance(value, bool) and name.endswith("_s"):
        return [f"{indent}{name.removesuffix('_s').replace('_', ' ')}: {words.duration(value)}"]
    return [f"{indent}{name}: {words.shown(value)}"]


def _entry(each: object, indent: str) -> list[str]:
    """One of several: its first line begins with a dash."""
    if isinstance(each, Mapping):
        if "id" in each and "subject" in each:
            return [f"{indent}{words.shown(each['id'])}: {words.shown(each['subject'])}"]
        first, *rest = _part(each, f"{indent}  ") or [f"{indent}  -"]
        return [f"{indent}- {first.strip()}", *rest]
    return _part(each, indent)


def _is_command(part: Sequence[object]) -> bool:
    """A list of words of which the first is a program."""
    texts = all(isinstance(word, str) for word in part)
    return bool(part) and texts and (len(part) > 1 or str(part[0]).startswith("/"))


def _command(part: Sequence[object]) -> str:
    return words.shown(shlex.join(redact_argv([str(word) for word in part])))
