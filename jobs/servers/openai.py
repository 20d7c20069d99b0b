"""Any server with the OpenAI API and a page that says it is up. Knows no kind's own flags."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

from jobs import wire
from jobs.evidence import Evidence, metrics, now
from jobs.servers.base import Answer, Asked, Command, Probe, Server, ServerFile, programs
from jobs.servers.llamacpp_says import count, real_number, table, whole_text

_PROBED = "Say in one sentence what a port is."
_COUNTED_TOKENS = 16
_GREEDY_TOKENS = 32

_ENDPOINTS: Mapping[str, str] = {
    "chat": "/v1/chat/completions",
    "completions": "/v1/completions",
    "embedding": "/v1/embeddings",
    "rerank": "/v1/rerank",
}


class OpenAI(Server):
    """A server with the OpenAI API and a health page."""

    kind: Literal["openai"] = "openai"

    fatal_lines: ClassVar[tuple[str, ...]] = ()

    def command_line(self) -> Command:
        """The command as written, with `args`; the fields are expectations, not flags."""
        if self.command is None and self.binary is None:
            raise ValueError("has neither binary nor command; name the server program")
        argv = (*(self.command or (str(self.binary),)), *self.args)
        return Command(argv, self.env, self.cwd)

    def seen(self, command: Command) -> Self:
        """The same server with the command line it was seen to run with."""
        return self.model_copy(
            update={
                "binary": None,
                "command": command.argv,
                "args": (),
                "env": command.env,
                "cwd": command.cwd,
            }
        )

    def files(self) -> tuple[ServerFile, ...]:
        """The program and the files named by fields; what else it opens only it knows."""
        argv = self.command_line().argv
        named = programs(argv)
        for role in ("weights", "draft", "mmproj"):
            path = self.model if role == "weights" else getattr(self, role)
            if path:
                named.append(ServerFile(role, path, path.endswith(".gguf")))
        return tuple(dict.fromkeys(named))

    def ready(self, *, api_key: Mapping[str, str] | None = None) -> Probe:
        """Health, the model by name, and a counted answer: some list models while still loading."""
        name = self.served_model_name
        return {
            "base": self.url(),
            "api_key": dict(api_key) if api_key else self.key_spec(),
            "health": self.health or "/health",
            "identity": [
                {
                    "name": "model_id",
                    "path": "/v1/models",
                    "at": ["data", 0, "id"],
                    "want": name,
                    "how": "equals" if name else "record",
                }
            ],
            "completion": self._question(_COUNTED_TOKENS),
            "greedy": self._question(_GREEDY_TOKENS) if self.serves == "chat" else None,
            "fatal": list(self.fatal_lines),
        }

    def _question(self, tokens: int) -> dict[str, Any]:
        counted = "completion_tokens" if self.serves == "chat" else "total_tokens"
        at: Mapping[str, list[str | int]] = {
            "chat": ["choices", 0, "message", "content"],
            "completions": ["choices", 0, "text"],
            "embedding": ["data", 0, "embedding"],
            "rerank": ["results"],
        }
        return {
            "path": _ENDPOINTS[self._wanted()],
            "body": self._body(_PROBED, tokens, temperature=0.0, seed=1),
            "counted": ["usage", counted],
            "text": at[self._wanted()],
        }

    def _wanted(self) -> str:
        return self.endpoint if self.serves == "chat" else self.serves

    def _body(self, text: str, tokens: int, *, temperature: float, seed: int) -> dict[str, Any]:
        named = {"model": self.served_model_name} if self.served_model_name else {}
        if self.serves == "embedding":
            return {**named, "input": text}
        if self.serves == "rerank":
            return {**named, "query": "What is a port?", "documents": [text]}
        asked = {**named, "max_tokens": tokens, "temperature": temperature, "seed": seed}
        if self.endpoint == "completions":
            return {**asked, "prompt": text}
        return {**asked, "messages": [{"role": "user", "content": text}]}

    def observe(
        self,
        base_url: str,
        api_key: str | None = None,
        *,
        deadline_s: float = 5.0,
        arm: str = "candidate",
    ) -> tuple[Evidence, ...]:
        """The models it lists with the context it allows them, and llama.cpp's counters if it has any."""
        reply = wire.get(base_url, "/v1/models", api_key=api_key, within_s=deadline_s / 2)
        counters = wire.get(base_url, "/metrics", api_key=api_key, within_s=deadline_s / 2)
        return (
            *_models(reply, arm),
            *metrics(counters.text, prefix="llamacpp:", arm=arm, at=now()),
        )

    def log_evidence(
        self, text: str, *, source: str = "log:candidate.log", arm: str = "candidate"
    ) -> tuple[Evidence, ...]:
        """Nothing: what the lines of an unknown server mean is not known."""
        del text, source, arm
        return ()

    def asked(
        self,
        prompt: str | Sequence[int],
        *,
        temperature: float,
        max_tokens: int,
        seed: int,
        cached: bool,
    ) -> Asked:
        """A plain completion; whether it reuses a prompt is up to the server."""
        del cached
        text = prompt if isinstance(prompt, str) else " ".join(str(token) for token in prompt)
        body = self._body(text, max_tokens, temperature=temperature, seed=seed)
        return Asked(_ENDPOINTS[self._wanted()], body)

    def answer(self, events: Sequence[Any]) -> Answer:
        """The first choice and `usage`; milliseconds only where the server sends `timings`."""
        said = table(events[-1] if events else None)
        usage, timings = table(said.get("usage")), table(said.get("timings"))
        details = table(usage.get("prompt_tokens_details"))
        choices = said.get("choices")
        choice = table(choices[0] if isinstance(choices, list) and choices else None)
        message = table(choice.get("message"))
        spoken = message.get("content") or message.get("reasoning_content")
        text = whole_text(str(spoken or choice.get("text") or ""))
        if said.get("data") or said.get("results"):
            text = "vector"
        prompt, cached = count(usage.get("prompt_tokens")), details.get("cached_tokens")
        cache_n = count(timings.get("cache_n", cached))
        return Answer(
            text=text,
            prompt_n=None if prompt is None else prompt - (cache_n or 0),
            prompt_ms=real_number(timings.get("prompt_ms")),
            cache_n=cache_n,
            predicted_n=count(usage.get("completion_tokens")),
            predicted_ms=real_number(timings.get("predicted_ms")),
            drafted=count(timings.get("draft_n")),
            accepted=count(timings.get("draft_n_accepted")),
            finish=str(choice.get("finish_reason") or ""),
        )


def _models(reply: wire.Reply, arm: str) -> tuple[Evidence, ...]:
    said = reply.json() if reply.ok else None
    listed = said.get("data") if isinstance(said, dict) else None
    found: list[Evidence] = []
    for model in listed if isinstance(listed, list) else ():
        if not isinstance(model, dict):
            continue
        name = whole_text(str(model.get("id")))
        found.append(_quote("model_id", f"id = {name}", name, arm))
        allowed = count(model.get("max_model_len"))
        if allowed:
            found.append(_quote("n_ctx", f"max_model_len = {allowed}", allowed, arm))
    return tuple(found)


def _quote(kind: str, said: str, value: str | int, arm: str) -> Evidence:
    return Evidence(kind, "GET /v1/models", said, value, now(), arm)
