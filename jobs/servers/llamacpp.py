"""llama-server of llama.cpp: its flags, its readiness, what it says of itself, what it measures."""

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, ClassVar, Literal, Self

from jobs import flags
from jobs.evidence import Evidence
from jobs.fields import SecretRef
from jobs.servers import llamacpp_log, llamacpp_says
from jobs.servers.base import Answer, Asked, Command, Probe, Server, ServerFile, programs
from jobs.servers.llamacpp_flags import FLAGS
from jobs.servers.llamacpp_says import whole_number

_PROBED = "The server that answers this is counted, because"
_GREEDY_TOKENS = 24
_COUNTED_TOKENS = 8

FIELD_FLAGS: tuple[tuple[str, str], ...] = (
    ("model", "--model"),
    ("mmproj", "--mmproj"),
    ("draft", "--spec-draft-model"),
    ("served_model_name", "--alias"),
    ("host", "--host"),
    ("port", "--port"),
    ("parallel", "--parallel"),
)
"""The flags that fields stand for, one for one; `context` stands for a share of `--ctx-size`."""

_FILES: tuple[tuple[Literal["weights", "draft", "mmproj", "other"], str, bool], ...] = (
    ("weights", "--model", True),
    ("draft", "--spec-draft-model", True),
    ("mmproj", "--mmproj", True),
    ("other", "--lora", True),
    ("other", "--control-vector", True),
    ("other", "--chat-template-file", False),
    ("other", "--grammar-file", False),
    ("other", "--json-schema-file", False),
    ("other", "--api-key-file", False),
    ("other", "--ssl-key-file", False),
    ("other", "--ssl-cert-file", False),
)
REMOTE = ("--hf-repo", "--hf-file", "--model-url", "--docker-repo")
"""Flags that fetch a model instead of naming a file."""

SECRET = ("--api-key", "--hf-token")
"""Flags whose value must never stand in a command line of ours."""


class LlamaCpp(Server):
    """llama-server of llama.cpp."""

    kind: Literal["llamacpp"] = "llamacpp"

    fatal_lines: ClassVar[tuple[str, ...]] = llamacpp_log.FATAL
    tokenizes: ClassVar[bool] = True

    @property
    def tokenize_path(self) -> str:
        """`/tokenize`, behind the prefix of its command line."""
        return f"{self._prefix()}/tokenize"

    # -- its command line ------------------------------------------------------------------

    def command_line(self) -> Command:
        """The command with the fields set in it; raises ValueError without binary or command."""
        if self.command is None and self.binary is None:
            raise ValueError("has neither binary nor command; name the server program")
        argv = (*(self.command or (str(self.binary),)), *self.args)
        return Command(flags.derive(argv, self._put(argv), (), FLAGS), self.env, self.cwd)

    def _put(self, argv: Sequence[str]) -> dict[str, flags.Setting]:
        """The fields as flags."""
        put: dict[str, flags.Setting] = {}
        for field, flag in FIELD_FLAGS:
            value = getattr(self, field)
            if value is not None and self._given(argv, flag) != str(value):
                put[flag] = str(value)
        if self.context is not None:
            total = self.context * self._divides(argv)
            if self._given(argv, "--ctx-size") != str(total):
                put["--ctx-size"] = str(total)
        for kind, flag in (("embedding", "--embeddings"), ("rerank", "--reranking")):
            if self.serves == kind and not flags.has(argv, flag, FLAGS):
                put[flag] = True
        if self.api_key and self.api_key.env is None:
            put["--api-key-file"] = self.api_key.spec()["file"]
        return put

    def _given(self, argv: Sequence[str], flag: str) -> str | None:
        """What the command line says of a flag, or else the environment."""
        return _value(argv, flag) or _env(Command(tuple(argv), self.env), flag)

    def _divides(self, argv: Sequence[str]) -> int:
        """Into how many equal parts the server cuts its context: 1 when slots share it.

        With `--parallel` left to the server it takes four slots that share one context.
        """
        if flags.has(argv, "--kv-unified", FLAGS):
            return 1
        slots = self.parallel or whole_number(_value(argv, "--parallel")) or 1
        return max(slots, 1)

    def seen(self, command: Command) -> Self:
        """The same server, with what its live command line says where the fields say nothing."""
        argv, found = command.argv, dict[str, object]()
        key_file = _value(argv, "--api-key-file")
        if self.api_key is None and key_file:
            found["api_key"] = SecretRef.model_construct(file=_absolute(key_file, command.cwd))
        for field, flag in FIELD_FLAGS:
            value: str | int | None = _value(argv, flag) or _env(command, flag)
            if getattr(self, field) is None and value is not None:
                whole = whole_number(value) if field in ("port", "parallel") else None
                found[field] = value if field not in ("port", "parallel") else whole
        asked = whole_number(_value(argv, "--ctx-size") or _env(command, "--ctx-size"))
        if self.context is None and asked:
            found["context"] = asked // self._divides(argv)
        return self.model_copy(
            update={
                **found,
                "binary": None,
                "command": argv,
                "args": (),
                "env": command.env,
                "cwd": command.cwd,
            }
        )

    def files(self) -> tuple[ServerFile, ...]:
        """The program, the weights and whatever else the command line names as a file."""
        command = self.command_line()
        argv = command.argv
        named = programs(argv)
        for role, flag, gguf in _FILES:
            for value in flags.values_of(argv, flag, FLAGS):
                named += [
                    ServerFile(role, _absolute(part, command.cwd), gguf)
                    for part in (value.split(",") if flags.may_repeat(flag, FLAGS) else [value])
                ]
        return tuple(dict.fromkeys(named))

    def _argv(self) -> tuple[str, ...]:
        """Its command line as far as it is known; nothing where a supervisor owns it."""
        return self.command_line().argv if self.command or self.binary else ()

    def _prefix(self) -> str:
        return _value(self._argv(), "--api-prefix") or ""

    # -- is it up, and is it the one that was asked for ------------------------------------

    def ready(self, *, api_key: Mapping[str, str] | None = None) -> Probe:
        """Health, `/props` as asked, and a counted answer; a router has no slots and is refused."""
        prefix = self._prefix()
        model = _value(self._argv(), "--model") or self.model
        props = f"{prefix}/props"
        settings = ["default_generation_settings", "n_ctx"]
        completion = self._completion(prefix, _COUNTED_TOKENS)
        return {
            "base": self.url(),
            "api_key": dict(api_key) if api_key else self.key_spec(),
            "health": self.health or f"{prefix}/health",
            "identity": [
                _asks("slots", props, ["total_slots"], 1, "at_least"),
                _asks("context", props, settings, self.context or 1, "at_least"),
                _asks("model_path", props, ["model_path"], model, "equals" if model else "record"),
                _asks("build", props, ["build_info"], None, "record"),
            ],
            "completion": completion,
            "greedy": self._completion(prefix, _GREEDY_TOKENS) if self.serves == "chat" else None,
            "fatal": list(self.fatal_lines),
        }

    def _completion(self, prefix: str, tokens: int) -> dict[str, Any]:
        """A small question whose answer is counted by the server."""
        if self.serves == "embedding":
            return {
                "path": f"{prefix}/v1/embeddings",
                "body": {"input": _PROBED},
                "counted": ["usage", "prompt_tokens"],
                "text": ["data", 0, "embedding"],
            }
        if self.serves == "rerank":
            return {
                "path": f"{prefix}/v1/rerank",
                "body": {"query": "Who serves?", "documents": [_PROBED]},
                "counted": ["usage", "total_tokens"],
                "text": ["results"],
            }
        return {
            "path": f"{prefix}/completion",
            "body": {
                "prompt": _PROBED,
                "n_predict": tokens,
                "temperature": 0.0,
                "seed": 1,
                "ignore_eos": True,
                "cache_prompt": False,
            },
            "counted": ["timings", "predicted_n"],
            "text": ["content"],
        }

    # -- what it says of itself ------------------------------------------------------------

    def observe(
        self,
        base_url: str,
        api_key: str | None = None,
        *,
        deadline_s: float = 5.0,
        arm: str = "candidate",
    ) -> tuple[Evidence, ...]:
        """`/props`, `/slots` and `/metrics`; what does not answer is said as `….absent`."""
        return llamacpp_says.observe(
            base_url + self._prefix(), api_key, deadline_s=deadline_s, arm=arm
        )

    def log_evidence(
        self, text: str, *, source: str = "log:candidate.log", arm: str = "candidate"
    ) -> tuple[Evidence, ...]:
        """The lines of its log about context and speculation."""
        return llamacpp_log.read(text, source=source, arm=arm)

    # -- measured requests -----------------------------------------------------------------

    def asked(
        self,
        prompt: str | Sequence[int],
        *,
        temperature: float,
        max_tokens: int,
        seed: int,
        cached: bool,
    ) -> Asked:
        """A streamed `/completion` with server timings; ids go as they are, so counts are exact."""
        prefix = self._prefix()
        whole = prompt if isinstance(prompt, str) else list(prompt)
        if self.serves == "embedding":
            return Asked(f"{prefix}/v1/embeddings", {"input": whole})
        if self.serves == "rerank":
            return Asked(f"{prefix}/v1/rerank", {"query": "Who serves?", "documents": [whole]})
        body = {
            "prompt": whole,
            "n_predict": max_tokens,
            "temperature": temperature,
            "seed": seed,
            "ignore_eos": True,
            "cache_prompt": cached,
            "stream": True,
            "return_progress": True,
        }
        return Asked(f"{prefix}/completion", body, streams=True)

    def answer(self, events: Sequence[Any]) -> Answer:
        """The text of all events, and the timings of the last."""
        return llamacpp_says.answer(events)

    def progress(self, event: Any) -> tuple[int, int] | None:
        """Prompt tokens done and in all."""
        return llamacpp_says.progress(event)


def _asks(name: str, path: str, at: list[str], want: object, how: str) -> dict[str, object]:
    return {"name": name, "path": path, "at": at, "want": want, "how": how}


def _value(argv: Sequence[str], flag: str) -> str | None:
    return flags.value_of(argv, flag, FLAGS)


def _env(command: Command, flag: str) -> str | None:
    known = FLAGS.find(flag)
    return command.env.get(known.env) if known and known.env else None


def _absolute(path: str, cwd: str | None) -> str:
    return str(PurePosixPath(cwd or "/") / path)
