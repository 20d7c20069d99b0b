"""What every kind of server has in common: its fields, and the questions a run asks it.

A kind knows its own flags, endpoints and log lines, and nothing of jobs, claims or processes."""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from jobs.evidence import Evidence
from jobs.fields import (
    Count,
    Duration,
    ExplicitDirectory,
    ExplicitPath,
    Host,
    Mib,
    Model,
    Port,
    Seconds,
    SecretRef,
    base_url,
)
from jobs.shell import CommandLine, Program, executed, word_list

Probe = dict[str, Any]
"""The questions by which anybody may find out whether a server serves, as plain JSON."""

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Command:
    """What is executed: the words, the environment beyond the usual one, the working directory."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = None


@dataclass(frozen=True, slots=True)
class ServerFile:
    """One file that a server opens at start: its path, its part, whether it must be GGUF."""

    role: Literal["weights", "draft", "mmproj", "binary", "prompt", "other"]
    path: str
    gguf: bool = False


def programs(argv: Sequence[str]) -> list[ServerFile]:
    """The programs and scripts that a command line executes."""
    binaries, scripts = executed(argv)
    return [
        *(ServerFile("binary", path) for path in binaries),
        *(ServerFile("other", path) for path in scripts),
    ]


@dataclass(frozen=True, slots=True)
class Asked:
    """One measured request as this kind of server wants it."""

    path: str
    body: dict[str, Any]
    streams: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """What one reply says of itself; None where the server does not say it."""

    text: str = ""
    prompt_n: int | None = None
    prompt_ms: float | None = None
    cache_n: int | None = None
    predicted_n: int | None = None
    predicted_ms: float | None = None
    drafted: int | None = None
    accepted: int | None = None
    finish: str = ""
    truncated: bool = False


LATER: Mapping[str, str] = MappingProxyType(
    dict.fromkeys(
        ("vllm", "sglang", "ollama"),
        'is not in this version; kind = "openai" takes any server with the OpenAI API',
    )
)
"""Kinds of server that are known by name and not supported yet."""


def _variable(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ValueError(f"`{name}` is no name of a variable; write letters, digits and _ only")
    return name


Environment = Annotated[
    dict[Annotated[str, AfterValidator(_variable)], str],
    Field(description="Environment variables to set for the server; no secrets."),
]

Words = Annotated[
    tuple[str, ...],
    BeforeValidator(word_list),
    WithJsonSchema({"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "string"}]}),
]


class ServerFields(Model):
    """How to start one server, and what must be true of it once it runs."""

    later_kinds: ClassVar[Mapping[str, str]] = LATER
    reserved: ClassVar[Mapping[str, str]] = {
        "on_demand": "servers that load on demand are not in this version; remove it",
        "container": "containers are not in this version; name the server's own command",
        "user": "running as another user is not in this version; remove it",
        "api_keys": 'is called api_key; write api_key = { file = "/…" }',
    }

    binary: Program | None = Field(
        default=None,
        description="Path of the server program; its flags come from the other fields and `args`.",
    )
    command: CommandLine | None = Field(
        default=None,
        description="The whole command instead of `binary`: a list of words, or one string "
        "without shell operators.",
    )
    model: ExplicitPath | None = Field(
        default=None, description="Path of the weights; of a split model, its first shard."
    )
    mmproj: ExplicitPath | None = Field(
        default=None, description="Path of the vision projector that belongs to the model."
    )
    draft: ExplicitPath | None = Field(
        default=None, description="Path of the draft model for speculative decoding."
    )
    served_model_name: str | None = Field(
        default=None, min_length=1, description="The model name that clients ask for."
    )
    host: Host | None = Field(
        default=None, description="IP address the server listens on (default 127.0.0.1)."
    )
    context: Count | None = Field(
        default=None, description="Context in tokens that one request may use."
    )
    parallel: Count | None = Field(
        default=None, description="Number of requests the server works on at the same time."
    )
    args: Words = Field(default=(), description="Further arguments, a list of words.")
    env: Environment = Field(default_factory=dict)
    cwd: ExplicitDirectory | None = Field(
        default=None, description="Directory in which the server is started."
    )
    api_key: SecretRef | None = Field(
        default=None, description="Where the server's API key lies; never the key itself."
    )
    serves: Literal["chat", "embedding", "rerank"] = Field(
        default="chat", description="What its clients want of it: chat, embedding or rerank."
    )
    health: str | None = Field(
        default=None,
        pattern=r"^/[^\s?#]*$",
        description="URL path that answers 200 when the server is up (default /health).",
    )
    endpoint: Literal["chat", "completions"] = Field(
        default="chat",
        description='How kind "openai" is asked: chat, or completions (plain text, which also a '
        "reasoning model answers at once).",
    )
    ready_within: Duration = Field(
        default=Seconds(900),
        description='Longest time from start to a first counted answer, such as "15m".',
    )
    headroom_mib: Mib | None = Field(
        default=None,
        description="GPU memory in MiB that must stay free beside what the server needs.",
    )

    @model_validator(mode="after")
    def _one_program(self) -> Self:
        if self.binary and self.command:
            raise ValueError("has both binary and command; keep one of them")
        if self.model and self.model == self.mmproj:
            raise ValueError("has the same file as model and mmproj; one of them is wrong")
        if self.model and self.model == self.draft:
            raise ValueError("has the same file as model and draft; one of them is wrong")
        return self


class Server(ServerFields, ABC):
    """One kind of LLM server; a kind is a subclass with its own `kind`."""

    kind: str
    port: Port | None = Field(default=None, description="TCP port the server listens on.")

    fatal_lines: ClassVar[tuple[str, ...]] = ()
    """Regular expressions of log lines after which waiting for this server is pointless."""

    tokenizes: ClassVar[bool] = False
    """Whether it turns text into token ids and takes ids as a prompt."""

    @property
    def tokenize_path(self) -> str:
        """Where it turns text into token ids."""
        return "/tokenize"

    @abstractmethod
    def command_line(self) -> Command:
        """What starts it; raises ValueError saying which field is missing."""

    @abstractmethod
    def files(self) -> tuple[ServerFile, ...]:
        """The files it opens at start, by explicit path, the program first."""

    @abstractmethod
    def ready(self, *, api_key: Mapping[str, str] | None = None) -> Probe:
        """The questions that tell whether it serves, as plain JSON."""

    @abstractmethod
    def seen(self, command: Command) -> Self:
        """The same server with the command line it was seen to run with, and what that says."""

    @abstractmethod
    def observe(
        self,
        base_url: str,
        api_key: str | None = None,
        *,
        deadline_s: float = 5.0,
        arm: str = "candidate",
    ) -> tuple[Evidence, ...]:
        """What the server says of itself now, through its own endpoints."""

    @abstractmethod
    def log_evidence(
        self, text: str, *, source: str = "log:candidate.log", arm: str = "candidate"
    ) -> tuple[Evidence, ...]:
        """The lines of its log that speak for or against a claim."""

    @abstractmethod
    def asked(
        self,
        prompt: str | Sequence[int],
        *,
        temperature: float,
        max_tokens: int,
        seed: int,
        cached: bool,
    ) -> Asked:
        """One measured request; `cached` allows the server to reuse the prompt it already holds."""

    @abstractmethod
    def answer(self, events: Sequence[Any]) -> Answer:
        """What a whole reply says: one JSON object, or the objects of a stream."""

    def progress(self, event: Any) -> tuple[int, int] | None:
        """Prompt tokens done and in all, when an event of a stream tells."""
        del event
        return None

    def url(self) -> str:
        """The address at which it is asked."""
        if self.port is None:
            raise ValueError("has no port; write port = …")
        return base_url(self.host or LOOPBACK, self.port)

    def key_spec(self) -> dict[str, str] | None:
        """Where its API key lies, as plain JSON; None when it needs none."""
        return self.api_key.spec() if self.api_key else None

    @classmethod
    def is_fatal(cls, line: str) -> bool:
        """Whether this log line means that the server will never be ready."""
        return any(re.search(pattern, line) for pattern in cls.fatal_lines)
