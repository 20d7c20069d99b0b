"""The small types that job files and runner.toml share: paths, durations, addresses, ports, secrets.

Each refuses what would mean something else at midnight than it meant when it was written."""

import ipaddress
import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import CoreSchema, core_schema

from jobs.globbed import matching
from jobs.names import bad_name


class Model(BaseModel):
    """The base of everything written in TOML: frozen, no unknown keys, no values in error texts."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, allow_inf_nan=False
    )


_GLOB = re.compile(r"[*?\[\]]|\{[^{}]*,[^{}]*\}")
_VARIABLE = re.compile(r"\$(\{|\(|[A-Za-z_])|`")


def shell_leftover(text: str) -> str | None:
    """What in this path only a shell would expand, in words; None when it is literal."""
    if text.startswith("~"):
        return "`~` is for shells, and nothing expands it here"
    if _VARIABLE.search(text):
        return "variables are for shells, and nothing expands them here"
    if found := _GLOB.search(text):
        return (
            f"`{found.group()}` is a glob, which can match other files at midnight than today"
            f"{matching(text)}"
        )
    return None


def _explicit(path: str) -> str:
    if not path.strip():
        msg = "is empty; write the whole path"
    elif leftover := shell_leftover(path):
        msg = f"{leftover}; write the whole path"
    elif not path.startswith("/"):
        msg = "is a relative path; it must start with /"
    elif "\0" in path or "\n" in path:
        msg = "holds a line break or NUL"
    elif ".." in path.split("/"):
        msg = "goes up with `..`; write where the file really is"
    else:
        return path
    raise ValueError(msg)


def _file(path: str) -> str:
    if path.endswith(("/", "/.")):
        raise ValueError("names a directory; name the file")
    return path


ExplicitDirectory = Annotated[
    str,
    AfterValidator(_explicit),
    WithJsonSchema({"type": "string", "pattern": r"^/[^*?\[\]~$`]*$"}),
]
"""An absolute path of a directory, without globs, `~`, `$NAME` or `..`."""

ExplicitPath = Annotated[
    str,
    AfterValidator(_explicit),
    AfterValidator(_file),
    WithJsonSchema({"type": "string", "pattern": r"^/[^*?\[\]~$`]*[^/*?\[\]~$`]$"}),
]
"""An absolute path of one file, without globs, `~`, `$NAME` or `..`."""


class Seconds(float):
    """A span of time that a person wrote with its unit; a plain float of seconds to everybody else."""

    __slots__ = ()

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: type[Any], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Read by `duration`, and written as a person would write it."""
        del source, handler
        words = core_schema.plain_serializer_function_ser_schema(in_words, when_used="json")
        return core_schema.no_info_plain_validator_function(duration, serialization=words)


_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_LONGEST = 366 * 86400.0  # no clock overflows, and no night is that long
_SPAN = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


def duration(text: object) -> Seconds:
    """Seconds of "90s", "15m", "2h" or "1h30m"; a number without a unit is refused."""
    if isinstance(text, Seconds):
        return text
    if isinstance(text, bool) or not isinstance(text, str):
        shown = '"15m"'
        if isinstance(text, int | float) and not isinstance(text, bool) and 0 < text < _LONGEST:
            shown = f'"{text}s"'
        raise ValueError(f'is a duration: write it as text with its unit, such as {shown} or "2h"')  # noqa: TRY004  # pydantic turns ValueError into an error of this key
    parts = _SPAN.findall(text.replace(" ", ""))
    if not parts or "".join(number + unit for number, unit in parts) != text.replace(" ", ""):
        raise ValueError(
            'is no duration; write a number with ms, s, m, h or d, such as "90s" or "1h30m"'
        )
    found = Seconds(sum(float(number) * _UNITS[unit] for number, unit in parts))
    if found > _LONGEST:
        raise ValueError("is more than a year; write what the night has")
    return found


def in_words(seconds: float) -> str:
    """A span as a person would write it here: `90s`, `15m`, `1h30m`."""
    if seconds < 1:
        return f"{round(seconds * 1000)}ms"
    whole, text = round(seconds), ""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, whole = divmod(whole, size)
        text += f"{count}{unit}" if count else ""
    return text


Duration = Annotated[
    Seconds, WithJsonSchema({"type": "string", "pattern": r"^(\d+(\.\d+)?(ms|s|m|h|d) ?)+$"})
]
"""Seconds, written with a unit: "90s", "15m", "2h"."""


def _host(text: str) -> str:
    if text.lower().rstrip(".") in {"localhost", "localhost.localdomain", "ip6-localhost"}:
        raise ValueError(
            "`localhost` is 127.0.0.1 or ::1, which are two different ports; write 127.0.0.1"
        )
    try:
        ipaddress.ip_address(text)
    except ValueError:
        raise ValueError(
            "is no IP address; write the address the server listens on, such as 127.0.0.1"
        ) from None
    return text


Host = Annotated[str, AfterValidator(_host)]
"""The IP address that a server of this box listens on."""


def probed(host: str) -> str:
    """The address at which a server that listens on `host` is asked: a wildcard answers on loopback."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104  # a lookup, no bind


def base_url(host: str, port: int) -> str:
    """`http://127.0.0.1:8080` of a listening address."""
    address = probed(host)
    return f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"


Port = Annotated[int, Field(strict=True, ge=1, le=65535)]


def _port_or_free(value: object) -> object:
    port = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 65535
    if value == "free" or port:
        return value
    raise ValueError('is a port: write a number from 1 to 65535, or "free"')


PortOrFree = Annotated[
    int | Literal["free"],
    BeforeValidator(_port_or_free),
    WithJsonSchema(
        {"anyOf": [{"type": "integer", "minimum": 1, "maximum": 65535}, {"const": "free"}]}
    ),
]
"""A port number, or "free": the runner asks the kernel for one right before the start."""

MOST = 2**31 - 1
"""The largest number that every server takes."""

Count = Annotated[int, Field(strict=True, ge=1, le=MOST)]
Repeats = Annotated[int, Field(strict=True, ge=1, le=10_000)]
Mib = Annotated[int, Field(strict=True, ge=0, le=MOST)]
Share = Annotated[float, Field(gt=0, le=1)]
Temperature = Annotated[float, Field(ge=0, le=5)]

CheckId = Annotated[str, Field(pattern=r"^[a-z]+\.[a-z]+$")]


def _name(name: str) -> str:
    if wrong := bad_name(name, "a service"):
        raise ValueError(wrong)
    return name


Name = Annotated[
    str, AfterValidator(_name), WithJsonSchema({"type": "string", "pattern": "^[A-Za-z0-9_-]+$"})
]

_SECRET_LIMIT = 64 * 1024


class SecretRef(Model):
    """Where a secret lies; never the secret itself."""

    file: ExplicitPath | None = Field(
        default=None, description="Path of a file whose first line is the secret."
    )
    env: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
        description="Name of an environment variable that holds the secret.",
    )
    credential: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9_.-]+$",
        description="Name of a systemd credential (LoadCredential=) that holds the secret.",
    )

    @model_validator(mode="before")
    @classmethod
    def _never_literal(cls, value: Any) -> Any:
        if isinstance(value, str):
            raise ValueError(  # noqa: TRY004  # pydantic reports only ValueError at its key
                'is a secret: never write it here; write { file = "/…" } or { env = "NAME" }'
            )
        return value

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if sum(part is not None for part in (self.file, self.env, self.credential)) != 1:
            raise ValueError("needs exactly one of file, env and credential")
        return self

    def spec(self) -> dict[str, str]:
        """Plain JSON of where it lies, for programs that know no models: `{file}` or `{env}`."""
        if self.env is not None:
            return {"env": self.env}
        return {"file": self._path()}

    def read(self) -> str:
        """The secret; raises OSError or ValueError with a sentence that does not hold it."""
        if self.env is not None:
            text = os.environ.get(self.env, "")
        else:
            with Path(self._path()).open(encoding="utf-8") as stream:
                text = stream.read(_SECRET_LIMIT)
        lines = [line.strip() for line in text.splitlines()]
        secret = next((line for line in lines if line and not line.startswith("#")), "")
        if not secret:
            raise ValueError(f"{self.named()} holds no secret")
        if not (secret.isascii() and secret.isprintable()):
            raise ValueError(f"{self.named()} holds characters that no request can carry")
        return secret

    def named(self) -> str:
        """Where it lies, in words."""
        if self.env is not None:
            return f"the environment variable {self.env}"
        if self.credential is not None:
            return f"the credential {self.credential}"
        return str(self.file)

    def _path(self) -> str:
        if self.file is not None:
            return self.file
        return f"{os.environ.get('CREDENTIALS_DIRECTORY', '/run/credentials')}/{self.credential}"
