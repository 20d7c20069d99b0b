"""Writes docs/reference/*.md from the models and the checks, so that they cannot drift.

`python -m runner.report.reference` writes them; a test compares them with what it would write.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.outcome import MEANINGS
from runner.report.checks import explanations
from runner.report.schema import schemas

DOCS = Path(__file__).parents[2] / "docs" / "reference"
_MADE = "<!-- Made by `python -m runner.report.reference`; edit the models instead. -->"

Json = Mapping[str, Any]

_CONFIG_HEAD = f"""{_MADE}

# Configuration

Two kinds of files are written by hand: one `runner.toml` for the box, and one `jobs/NAME.toml` for
each job. Both are TOML. Keys that are not listed here are refused, with the line and a suggestion.

* **duration** is text with a unit: `"90s"`, `"15m"`, `"1h30m"`.
* **path** is absolute and literal: no `~`, no `$NAME`, no globs.
* **secret** says where a secret lies, and is never the secret itself: `{{ file = "/path" }}`,
  `{{ env = "NAME" }}` or `{{ credential = "name" }}` (a systemd credential).
* A key without a default must be written.

`runner.toml` is looked for at `--config`, `$RUNNER_CONFIG`, `./runner.toml`,
`$XDG_CONFIG_HOME/runner/runner.toml` and `/etc/runner/runner.toml`; `runner doctor` shows which one
is used. `runner schema` prints the same as JSON Schema.
"""


def config() -> str:
    """The reference of both files as Markdown."""
    both = schemas()
    parts = [_CONFIG_HEAD, "## runner.toml\n", *_tables(both["runner"])]
    parts += ["## jobs/NAME.toml\n", *_tables(both["job"])]
    return "\n".join(parts)


def exit_codes() -> str:
    """The table of exit codes as Markdown."""
    rows = [f"| {code} | {outcome} | {meaning} |" for code, (outcome, meaning) in MEANINGS.items()]
    return "\n".join(
        [
            _MADE,
            "",
            "# Exit codes",
            "",
            "`runner run` exits with the code of its outcome. The other verbs use 0, 2 for an error",
            "in usage or configuration, 3 where a check refuses, and 10 where production is down.",
            "",
            "| code | outcome | meaning |",
            "|---|---|---|",
            *rows,
            "",
            "Anything else, 1 included, means that it died before it could say: ask `runner status`.",
            "",
            "With `--json` a verb that fails prints one object, with the same exit code:",
            "",
            "```json",
            '{"error": {"code": 2, "where": "runner.toml:7", "message": "…", "remedy": "…"}}',
            "```",
            "",
            "`problems` beside it lists every mistake of a file, where there are several.",
            "",
        ]
    )


_CHECKS_HEAD = f"""{_MADE}

# Checks

Before anything is stopped the box is looked at ring by ring, the smallest blast radius first. A ring
that refuses is finished, so that one alert names everything in it; what lies outside is skipped. A
*fail* refuses, and so does an *unknown*, which is a question that could not be answered; a *warn* does
not. A job may accept the unknown of one check by its id and with a reason, except where production's
own way back hangs on it: `[accept]` and `"file.gguf" = "zfs keeps zeros as holes"`.

Right before the first stop the checks marked *gate* are asked again, each within 2 s; whatever has
changed since refuses.

`runner check JOB` asks all of them and touches nothing, `runner explain ID` prints what stands here.
"""


def checks() -> str:
    """The reference of every check as Markdown."""
    parts = [_CHECKS_HEAD]
    ring = ""
    for one in explanations():
        if one["ring"] != ring:
            ring = str(one["ring"])
            parts.append(f"## Ring {ring}\n")
        parts += [*_check(one)]
    return "\n".join(parts)


def _check(one: Json) -> Iterator[str]:
    timed = one["deadline"][:1].isdecimal()
    marks = [f"deadline {one['deadline']}" if timed else "known beforehand"]
    marks += ["gate"] if one["gate"] else []
    marks += [] if one["acceptable"] else ["never accepted unknown"]
    yield f"### `{one['id']}`\n"
    yield f"{one['about']} *({', '.join(marks)})*\n"
    yield f"Reads {one['reads']}.\n"
    yield "| comes out | when |"
    yield "|---|---|"
    for state, rule in one["rules"].items():
        yield f"| {state} | {_cell(rule)} |"
    yield ""
    if one["remedies"]:
        yield f"What helps: {'; '.join(one['remedies'])}.\n"


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


def _tables(schema: Json) -> Iterator[str]:
    """Each table of a file in the order of the models; kinds with the same keys share one."""
    waiting: list[tuple[str, Json]] = [("", schema)]
    seen: set[int] = set()
    while waiting:
        header, model = waiting.pop(0)
        if header:
            yield f"### `{header}`\n"
        if text := model.get("description"):
            yield f"{text}\n"
        yield "| key | value | default | |"
        yield "|---|---|---|---|"
        needed = set(model.get("required", []))
        for name, field in model.get("properties", {}).items():
            yield _row(name, field, schema, needed=name in needed)
            models = [one for one in _models(field, schema) if id(one) not in seen]
            seen.update(id(one) for one in models)
            waiting += _inner(header, name, field, models)
        yield ""


def _row(name: str, field: Json, schema: Json, *, needed: bool) -> str:
    default = "needed" if needed else _default(field)
    text = (
        str(field.get("description") or _described(field, schema))
        .replace("\n", " ")
        .replace("|", r"\|")
    )
    return f"| `{name}` | {_value(field, schema)} | {default} | {text} |"


def _described(field: Json, schema: Json) -> str:
    """What a table is for, by its own model."""
    ref = field.get("$ref", "").rsplit("/", 1)[-1]
    return str(schema.get("$defs", {}).get(ref, {}).get("description", ""))


def _default(field: Json) -> str:
    value = field.get("default")
    if value in (None, "", [], {}):
        return ""
    return f"`{json.dumps(value, ensure_ascii=False)}`"


def _value(field: Json, schema: Json) -> str:
    """What is written there, in a word or two."""
    if "enum" in field or "const" in field:
        values = field.get("enum", [field.get("const")])
        return " \\| ".join(f"`{json.dumps(each)}`" for each in values)
    if "$ref" in field:
        return _referred(field["$ref"], schema)
    if options := field.get("anyOf") or field.get("oneOf"):
        words = [_value(option, schema) for option in options if option.get("type") != "null"]
        return " or ".join(dict.fromkeys(words))
    if field.get("type") == "array":
        return f"list of {_value(field.get('items', {}), schema)}"
    return _plain(field)


def _plain(field: Json) -> str:
    pattern = str(field.get("pattern", ""))
    if "ms|s|m|h|d" in pattern:
        return "duration"
    if pattern.startswith(r"^/[^*"):
        return "path"
    words = {"string": "text", "integer": "number", "number": "number", "boolean": "true or false"}
    return words.get(str(field.get("type")), "table")


def _referred(ref: str, schema: Json) -> str:
    name = ref.rsplit("/", 1)[-1]
    if "SecretRef" in name:
        return "secret"
    kind = schema["$defs"][name].get("properties", {}).get("kind", {})
    return f'table with `kind = "{kind["const"]}"`' if "const" in kind else "table"


def _inner(
    header: str, name: str, field: Json, models: Sequence[Json]
) -> Iterator[tuple[str, Json]]:
    """The tables below a key: `[[production]]` once, or once for each kind with keys of its own."""
    whole = f"{header.strip('[]').partition(']')[0]}.{name}" if header else name
    shown = f"[[{whole}]]" if field.get("type") == "array" else f"[{whole}]"
    kinds = [model["properties"].get("kind", {}).get("const") for model in models]
    if len(models) > 1 and len({tuple(model["properties"]) for model in models}) == 1:
        together = {**models[0]["properties"], "kind": {"enum": kinds}}
        needed = [*models[0].get("required", []), "kind"]
        yield shown, {**models[0], "properties": together, "required": needed}
        return
    for kind, model in zip(kinds, models, strict=True):
        yield (f'{shown} kind = "{kind}"' if kind else shown), model


def _models(field: Json, schema: Json) -> Iterator[Json]:
    """The models of the tables that a key may hold."""
    if "$ref" in field:
        name = field["$ref"].rsplit("/", 1)[-1]
        model = schema["$defs"][name]
        if "SecretRef" not in name and "properties" in model:
            yield model
    for option in [*field.get("anyOf", []), *field.get("oneOf", []), field.get("items")]:
        if isinstance(option, dict):
            yield from _models(option, schema)


def main() -> None:
    """Write all of them."""
    DOCS.mkdir(parents=True, exist_ok=True)
    (DOCS / "config.md").write_text(config(), "utf-8")
    (DOCS / "exit-codes.md").write_text(exit_codes(), "utf-8")
    (DOCS / "checks.md").write_text(checks(), "utf-8")


if __name__ == "__main__":
    main()
