"""Turn pydantic's errors into sentences with file, line and key. Shared by job files and runner.toml."""

import difflib
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from jobs.errors import ConfigError, Problem
from jobs.toml_lines import Document, Key

M = TypeVar("M", bound=BaseModel)

_CLOSE = 0.6


def build(model: type[M], document: Document) -> M:
    """The model of this document; raises ConfigError naming every mistake with its line."""
    try:
        return model.model_validate(document.values)
    except ValidationError as error:
        raise ConfigError(problems(error, model, document)) from None


def problems(error: ValidationError, model: type[BaseModel], document: Document) -> list[Problem]:
    """One problem a key, in the order of the file."""
    found: dict[tuple[Key, str], Problem] = {}
    for detail in error.errors(include_url=False, include_input=False):
        problem, key = _problem(detail, model, document)
        found.setdefault((key, problem.message), problem)
    last = max((line for line in document.lines.values()), default=0) + 1
    return sorted(found.values(), key=lambda problem: problem.line or last)


@dataclass(frozen=True)
class _Place:
    """Where an error is: the key as written, the models that own its last name, the models within."""

    key: Key
    owners: tuple[type[BaseModel], ...]
    inside: tuple[type[BaseModel], ...]


def _problem(
    detail: ErrorDetails, model: type[BaseModel], document: Document
) -> tuple[Problem, Key]:
    place = _walk(model, detail["loc"])
    tagged = (*place.key, "kind")
    named = detail["type"] == "union_tag_invalid" and tagged in document.lines
    line = document.lines[tagged] if named else document.line(place.key)
    written = tagged if named else place.key
    shown = ".".join(str(part) for part in written if isinstance(part, str))
    message, remedy = _words(detail, model, place, _given(document, place.key))
    return Problem(document.file, line, shown, message, remedy), place.key


def _words(
    detail: ErrorDetails, model: type[BaseModel], place: _Place, given: str
) -> tuple[str, str]:
    """What is wrong and what to do. `given` says what sort of value stands there."""
    context = detail.get("ctx", {})
    match detail["type"]:
        case "extra_forbidden":
            words = _unknown(str(place.key[-1]), model, place)
        case "missing":
            words = "is missing", _meaning(place)
        case "union_tag_not_found":
            words = "has no kind", f'add kind = "…", one of: {_kinds(place.inside)}'
        case "union_tag_invalid":
            words = _no_kind(str(context.get("tag", "")), place)
        case "value_error":
            what, _, todo = str(context.get("error", detail["msg"])).partition("; ")
            words = what, todo
        case "literal_error":
            expected = str(context.get("expected", ""))
            several = " or " in expected
            said = f"is not one of {expected}" if several else f"should be {expected.lower()}"
            words = said, _meaning(place)
        case kind if kind in _SORTS:
            words = _another_sort(_SORTS[kind], place, given)
        case "string_too_short" | "too_short" if context.get("min_length") == 1:
            words = "is empty", _meaning(place)
        case kind if kind in _LIMITS:
            limits = {name: _plain(value) for name, value in context.items()}
            words = _LIMITS[kind].format(**limits), _meaning(place)
        case _:
            words = detail["msg"].removeprefix("Input "), _meaning(place)
    return words


_LIST, _TABLE = "a list", "a table"
_SORTS = {
    "string_type": "text in quotes",
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    **dict.fromkeys(("tuple_type", "list_type"), _LIST),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), _TABLE),
}
"""pydantic's errors about the sort of a value, and the sort that was wanted, in TOML's words."""

_NAMES: tuple[tuple[type, str], ...] = (
    (bool, "true or false"),  # before numbers: in Python it is one
    (str, "text"),
    (int, "a whole number"),
    (float, "a decimal number"),
    (list, _LIST),
    (dict, _TABLE),
)

_LIMITS = {
    "greater_than": "should be more than {gt}",
    "greater_than_equal": "should be at least {ge}",
    "less_than": "should be less than {lt}",
    "less_than_equal": "should be at most {le}",
    "string_too_short": "is too short: should have at least {min_length} characters",
    "string_pattern_mismatch": "has the wrong form",
}


def _plain(value: object) -> object:
    """A limit as a person writes it: 1 and not 1.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _given(document: Document, key: Key) -> str:
    """What sort of value stands in the file at this key; empty where none does."""
    value: object = document.values
    for part in key:
        if isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]
        else:
            return ""
    return next((name for sort, name in _NAMES if isinstance(value, sort)), "")


def _another_sort(wanted: str, place: _Place, given: str) -> tuple[str, str]:
    """A value of another sort; for tables the brackets decide."""
    header = ".".join(part for part in place.key if isinstance(part, str))
    if place.inside and wanted == _LIST and given == _TABLE:
        return "should be a list of tables, not one table", f"write [[{header}]]"
    if place.inside and wanted == _TABLE and given == _LIST:
        return "should be one table, not a list of tables", f"write [{header}]"
    return f"should be {wanted}{f', not {given}' if given else ''}", _meaning(place)


def _meaning(place: _Place) -> str:
    """The key's own description, as the thing to write there."""
    for owner in place.owners:
        field = owner.model_fields.get(str(place.key[-1])) if place.key else None
        if field and field.description:
            said = field.description.rstrip(".")
            plain = said[1:2].islower() or said[1:2] == " "  # TCP and URL stay as they are
            return f"write {said[0].lower() if plain else said[0]}{said[1:]}"
    return ""


def _no_kind(tag: str, place: _Place) -> tuple[str, str]:
    for owner in place.inside:
        later = _words_of(owner, "later_kinds")
        if tag in later:
            what, _, todo = later[tag].partition("; ")
            return f"kind `{tag}` {what}", f"{todo} (kinds there are: {_kinds(place.inside)})"
    close = difflib.get_close_matches(tag, _tags(place.inside), 1, _CLOSE)
    guess = f"; did you mean `{close[0]}`?" if close else ""
    return f"there is no kind `{tag}`{guess}", f"kinds there are: {_kinds(place.inside)}"


def _unknown(name: str, root: type[BaseModel], place: _Place) -> tuple[str, str]:
    """An unknown key: reserved, misspelt, or written under the wrong header."""
    names = sorted({key for owner in place.owners for key in _keys(owner)})
    for owner in place.owners:
        if told := _words_of(owner, "reserved").get(name):
            what, _, todo = told.partition("; ")
            return what, todo or "remove it"
    close = difflib.get_close_matches(name.replace("-", "_"), names, 1, _CLOSE)
    homes = _homes(name, root, place)
    message = "unknown key"
    if close:
        message += f"; did you mean `{close[0]}`?"
    if homes:
        message += f"; `{name}` belongs to {' or '.join(homes)}"
    if homes:
        return message, f"move it to {homes[0]}" if not close else "rename or move it"
    if close:
        return message, f"write {close[0]}, or remove it"
    return message, f"remove it; the keys here are: {', '.join(names)}"


def _homes(name: str, root: type[BaseModel], place: _Place) -> list[str]:
    """The other tables in which this key would be known."""
    homes: dict[str, list[str]] = {}
    for header, owner in _tables(root):
        if name in _keys(owner) and owner not in place.owners:
            home = header or "the top of the file, before any [table]"
            homes.setdefault(home, []).extend(_tags((owner,)) if "[[" in home else ())
    return [
        f"{home} (kind {' or '.join(kinds)})" if kinds else home for home, kinds in homes.items()
    ][:3]


def _tables(root: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel]]]:
    """Each table of the file: its header and its model; the top of the file has no header."""
    waiting: list[tuple[str, bool, type[BaseModel]]] = [("", False, root)]
    seen: set[tuple[str, type[BaseModel]]] = set()
    while waiting:
        path, many, owner = waiting.pop(0)
        if (path, owner) in seen:
            continue
        seen.add((path, owner))
        yield (f"[[{path}]]" if many else f"[{path}]") if path else "", owner
        for name, field in owner.model_fields.items():
            key = f"{path}.{field.alias or name}" if path else field.alias or name
            several = get_origin(field.annotation) in (tuple, list)
            waiting += [(key, several, inner) for inner in _models(field.annotation)]


def _walk(root: type[BaseModel], loc: tuple[int | str, ...]) -> _Place:
    """Follow an error's location; tags of kinds and names of validators are no part of the file."""
    key: Key = ()
    owners: tuple[type[BaseModel], ...] = ()
    inside: tuple[type[BaseModel], ...] = (root,)
    annotation: Any = root
    for part in loc:
        if isinstance(part, int):
            key = (*key, part)
        elif (field := _field(inside, part)) is not None:
            owners, inside, annotation, key = inside, _models(field), field, (*key, part)
        elif tagged := tuple(owner for owner in inside if part in _tags((owner,))):
            inside = tagged
        elif inside:  # a key that none of the models here knows
            owners, inside, key = inside, (), (*key, part)
        elif get_origin(annotation) in (dict, Mapping) and part != "[key]":
            key = (*key, part)
    return _Place(key, owners, inside)


def _field(owners: Iterable[type[BaseModel]], name: str) -> Any:
    for owner in owners:
        for key, field in owner.model_fields.items():
            if name == (field.alias or key):
                return field.annotation
    return None


def _keys(owner: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in owner.model_fields.items()]


def _models(annotation: Any) -> tuple[type[BaseModel], ...]:
    """The models inside an annotation, through unions, tuples, lists and Annotated."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return (annotation,)
    if get_origin(annotation) in (Annotated, Union, types.UnionType, tuple, list, dict):
        return tuple(model for part in get_args(annotation) for model in _models(part))
    return ()


def _tags(owners: Iterable[type[BaseModel]]) -> list[str]:
    """The values of `kind` in these models."""
    tags: list[str] = []
    for owner in owners:
        field = owner.model_fields.get("kind")
        if field is not None and get_origin(field.annotation) is Literal:
            tags += [tag for tag in get_args(field.annotation) if isinstance(tag, str)]
    return tags


def _kinds(owners: Iterable[type[BaseModel]]) -> str:
    return ", ".join(_tags(owners))


def _words_of(owner: type[BaseModel], name: str) -> Mapping[str, str]:
    """A class's own table of words that mean something later, or meant something once."""
    table = getattr(owner, name, None)
    return typing.cast("Mapping[str, str]", table) if isinstance(table, Mapping) else {}
