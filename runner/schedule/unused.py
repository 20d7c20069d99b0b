"""Which pins nobody needs any more: their job or their service is gone from the configuration."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from runner.schedule import pins
from runner.schedule.ledger import Ledger
from runner.settings import Settings


def is_unused(owner: str, settings: Settings) -> bool:
    """Whether the owner of a pin, `job:NAME` or `service:NAME`, is there no more."""
    kind, _, name = owner.partition(":")
    if kind == "job":
        return not (Path(settings.jobs_dir) / f"{name}.toml").exists()
    return settings.service(name) is None


def release_unused(ledger: Ledger, settings: Settings) -> Iterator[str]:
    """Let go of what nobody needs, and say in words what could not be. Raises JournalError."""
    for row in _unused(ledger, settings):
        try:
            pins.release(row)
        except pins.CannotPin as error:
            yield f"{error.message} → {error.remedy}"
        else:
            ledger.unpin(str(row["owner"]), str(row["path"]))


def _unused(ledger: Ledger, settings: Settings) -> list[Mapping[str, Any]]:
    return [row for row in ledger.pins() if is_unused(str(row["owner"]), settings)]
