"""A way to tell a person, as config describes it, and where its secret lies. Knows no run."""

import re
from abc import ABC, abstractmethod
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, model_validator

from alerts import plain
from alerts.message import KINDS, Alert, DeliveryError

__all__ = ["WITHIN", "AbsolutePath", "Alert", "Channel", "DeliveryError", "SecretRef"]

WITHIN = 20.0
"""Seconds of wall clock that one delivery may take."""

_FROZEN = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)
_NAMES = {
    "credential": re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*"),
    "env": re.compile(r"[A-Za-z_][A-Za-z0-9_]*"),
}


def _absolute(path: str) -> str:
    # The value stays out of the text: somebody may have put a token here.
    if not path.startswith("/") or re.search(r"[*?\[\]\x00-\x1f]", path):
        raise ValueError("not an explicit absolute path → write the whole path, without ~ or *")
    return path


AbsolutePath = Annotated[str, AfterValidator(_absolute)]


class SecretRef(BaseModel):
    """Where a secret lies: `{ credential = "name" }`, `{ file = "/…" }` or `{ env = "NAME" }`."""

    model_config = _FROZEN

    file: AbsolutePath | None = None
    credential: str | None = None
    env: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _never_literal(cls, given: object) -> object:
        if isinstance(given, str):
            raise ValueError(  # noqa: TRY004 - pydantic collects ValueError, a TypeError would escape it
                "a secret is never written into the config → put it into a file that only you "
                'can read, and name that: { file = "/…" }, { credential = "…" } or { env = "…" }'
            )
        return given

    @model_validator(mode="after")
    def _one(self) -> Self:
        named = self.ref()
        if len(named) != 1:
            raise ValueError("name exactly one of file, credential and env")
        for key, shape in _NAMES.items():
            if key in named and not shape.fullmatch(named[key]):
                raise ValueError(f"this is not the name of a secret in {key} → give its name here")
        return self

    def ref(self) -> dict[str, str]:
        """The reference as plain JSON, for recovery; the secret itself is not in it."""
        return {key: str(value) for key, value in self.model_dump(exclude_none=True).items()}

    def read(self) -> str:
        """The secret; raises DeliveryError that says where it was looked for."""
        return plain.read_secret(self.ref())


def _kinds(on: tuple[str, ...]) -> tuple[str, ...]:
    if unknown := [kind for kind in on if kind not in KINDS]:
        raise ValueError(f"no such kind of alert: {', '.join(unknown)} → use {', '.join(KINDS)}")
    if not on:
        raise ValueError("an empty list would tell nothing → leave `on` out, or name what to tell")
    return on


class Channel(BaseModel, ABC):
    """One `[[alerts.channel]]`. A new kind is a subclass with a `kind`, named in alerts/table.py.

    `far` channels reach a person who is not at the box; an alert counts as delivered when one of
    them took it, and by a near one only where no far one is asked.
    """

    model_config = _FROZEN
    far: ClassVar[bool] = True

    kind: str
    on: Annotated[tuple[str, ...], AfterValidator(_kinds)] | None = None

    @abstractmethod
    def deliver(self, alert: Alert, *, within: float = WITHIN) -> str:
        """Send the alert's text as it stands, within so many seconds.

        Returns what is known of the delivery ("message 17"); raises DeliveryError.
        """

    def spec(self) -> dict[str, Any] | None:
        """The channel as recovery can use it with the standard library alone, if it can."""
        return None
