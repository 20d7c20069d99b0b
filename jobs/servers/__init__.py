"""The kinds of server there are. A new kind is one file here and one line in this table."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated

from pydantic import Field

from jobs.servers.base import LATER, Server
from jobs.servers.llamacpp import LlamaCpp
from jobs.servers.openai import OpenAI

AnyServer = Annotated[LlamaCpp | OpenAI, Field(discriminator="kind")]

KINDS: Mapping[str, type[Server]] = MappingProxyType({"llamacpp": LlamaCpp, "openai": OpenAI})


def no_kind(kind: str) -> str:
    """Why there is no such kind, and which there are, as `what is wrong; what to do`."""
    known = ", ".join(KINDS)
    if kind in LATER:
        return f"`{kind}` {LATER[kind]} (kinds there are: {known})"
    return f"there is no kind `{kind}`; kinds there are: {known}"


__all__ = ["KINDS", "LATER", "AnyServer", "LlamaCpp", "OpenAI", "Server", "no_kind"]
