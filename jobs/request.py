"""One request that will be measured. A plain fact, shared by planning and asking."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Request:
    """What to ask, and how.

    A short request carries its `text`. One that fills the context has `tokens` instead: how long its
    prompt is, made from the built-in texts and `nonce`, and the same for the same nonce. `cached`
    allows the server to reuse a prompt that it already holds.
    """

    id: str
    arm: str
    temperature: float
    prompt: str
    text: str = field(default="", repr=False)
    fill: float | None = None
    tokens: int | None = None
    nonce: str = ""
    repeat: int = 1
    warmup: bool = False
    max_tokens: int = 256
    cached: bool = False
    seed: int = 1

    def to_json(self) -> dict[str, object]:
        """The request as plain JSON, without its text."""
        return {
            "id": self.id,
            "arm": self.arm,
            "temperature": self.temperature,
            "prompt": self.prompt,
            "fill": self.fill,
            "tokens": self.tokens,
            "repeat": self.repeat,
            "warmup": self.warmup,
            "max_tokens": self.max_tokens,
            "cached": self.cached,
            "seed": self.seed,
        }
