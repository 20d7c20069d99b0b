"""What every verb is asked with: --json, --config, and where these lead. Knows no verb."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import click

from jobs import toml_lines
from jobs.errors import ConfigError
from runner import where, who
from runner.cli.out import Failure
from runner.journal import Journal

if TYPE_CHECKING:
    from runner.settings import Settings

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Place:
    """The configuration in use as plain TOML, and the directories it leads to; no model is built."""

    config: Path
    raw: dict[str, Any]
    state_dir: Path
    jobs_dir: Path
    zone: tzinfo

    def journal(self) -> Journal:
        """The journal, for reading. Raises JournalError, and NotOwner for all but its owner.

        Root reads as the owner: SQLite may have to make files beside the database.
        """
        who.become_owner(self.state_dir)
        return Journal.open(self.state_dir, read_only=True, zone=self.zone)


def answers(verb: Callable[P, R]) -> Callable[P, R]:
    """A verb that answers: with `--json` as one object, and with `--config` also after its name."""
    with_json = click.option(
        "--json", "as_json", is_flag=True, help="Print exactly one JSON object."
    )
    return with_json(
        click.option("--config", "config", metavar="FILE", hidden=True, help="As before the verb.")(
            verb
        )
    )


def config_path(config: str | None) -> Path:
    """The configuration to use. Raises Failure that names every place looked at."""
    found = where.find_config(config or before_the_verb())
    if found.path is None:
        raise Failure(
            found.missing,
            where=found.paths,
            remedy="write one, or name it with --config; `runner doctor` shows where it is "
            "looked for",
        )
    return found.path


def place(config: str | None) -> Place:
    """The directories of the configuration, read as plain TOML. Raises Failure and ConfigError."""
    path = config_path(config)
    raw = toml_lines.read(path).values
    return Place(
        path,
        raw,
        where.state_dir(raw, path),
        where.jobs_dir(raw, path),
        where.timezone(raw),
    )


def settings(config: str | None) -> "Settings":
    """The whole configuration as models. Raises Failure and ConfigError."""
    path = config_path(config)
    from runner.settings import load_settings  # noqa: PLC0415 - pydantic only where it is needed

    try:
        return load_settings(path)
    except ConfigError:
        from runner.schedule.conf import for_a_unit  # noqa: PLC0415 - only for a broken file

        kept = for_a_unit(path)
        if kept is None:
            raise
        return load_settings(kept)


def before_the_verb() -> str | None:
    """The `--config` given before the verb."""
    found = _global("config")
    return str(found) if found else None


def verbosity() -> int:
    """How often `-v` was given before the verb."""
    return int(_global("verbose") or 0)


def _global(name: str) -> Any:
    context = click.get_current_context(silent=True)
    return (context.find_root().obj or {}).get(name) if context else None
