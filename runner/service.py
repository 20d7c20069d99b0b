"""One service of production as runner.toml describes it: a server, and how it is driven.

Must not know how it is stopped or started; its supervisor is data until recovery reads a recipe.
"""

import types
from abc import ABC
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, Union, cast

from pydantic import Field, model_validator

from jobs.fields import Duration, Name, Seconds
from jobs.servers import KINDS
from jobs.servers.base import Server, ServerFields
from runner.supervisors import AnySupervisor

LATER = "is not in this version; remove it"


class Fallback(ServerFields):
    """What to start instead when a service cannot be started as it was: its differences."""

    supervisor: AnySupervisor | None = Field(
        default=None, description="How this one is started, if not as the service is."
    )


class Service(Server, ABC):
    """One service of production: a server that must serve whenever no run holds the box."""

    reserved: ClassVar[Mapping[str, str]] = {
        **ServerFields.reserved,
        "load_after": f"loading models after the start {LATER}",
    }

    name: Name = Field(description="Name of the service, as jobs, alerts and status say it.")
    supervisor: AnySupervisor = Field(description="How the service is stopped and started.")
    idle_within: Duration = Field(
        default=Seconds(300),
        description="Longest wait for requests in flight before the stop; then the run is refused.",
    )
    keep_up: Literal[False] = Field(
        default=False,
        description="Reserved: start it also when it went down without a run having stopped it.",
    )
    pin: Annotated[bool, Field(strict=True)] = Field(
        default=False,
        description="Whether its files are to be pinned, so that the way back is always there: "
        "`runner pin` makes the pins, and preflight asks for them.",
    )
    fallback: tuple[Fallback, ...] = Field(
        default=(), description="What to start instead, in order, when it cannot be started again."
    )

    @model_validator(mode="after")
    def _has_port(self) -> Self:
        if self.port is None:
            raise ValueError("has no port; write port = …, the one this service listens on")
        return self

    def fallen_back(self) -> tuple[Self, ...]:
        """The service as each of its fallbacks would have it, in order."""
        return tuple(self._as(fallback) for fallback in self.fallback)

    def _as(self, fallback: Fallback) -> Self:
        changed = {name: getattr(fallback, name) for name in fallback.model_fields_set}
        if changed.get("command"):
            changed |= {"binary": None, "args": ()}
        elif changed.get("binary"):
            changed |= {"command": None}
        return self.model_copy(update={**changed, "fallback": ()})


def _service_of(kind: type[Server]) -> type[Service]:
    """The service that a kind of server makes; a new kind needs no line here."""

    def body(names: dict[str, Any]) -> None:
        names["__module__"] = __name__
        names["__doc__"] = "What must serve whenever no run holds the box."
        names["reserved"] = Service.reserved

    made = types.new_class(f"{kind.__name__}Service", (kind, Service), exec_body=body)
    return cast("type[Service]", made)


if TYPE_CHECKING:
    AnyService = Service
else:
    AnyService = Annotated[
        Union[tuple(_service_of(kind) for kind in KINDS.values())],  # noqa: UP007 - made of a table
        Field(discriminator="kind"),
    ]
