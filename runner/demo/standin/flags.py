"""The stand-in's command line. `__main__` tells what each of its evil flags does."""

import re
from dataclasses import dataclass
from pathlib import Path

_SPELLINGS = {
    "-m": "model",
    "-md": "draft",
    "--model-draft": "draft",
    "--spec-draft-model": "draft",
    "-c": "ctx_size",
    "-np": "parallel",
    "-a": "alias",
    "--spec-draft-n-max": "n_max",
}


@dataclass
class Flags:
    """The command line; `standin` tells what each flag does."""

    host: str = "127.0.0.1"
    port: int = 8080
    model: str = ""
    draft: str = ""
    alias: str = ""
    api_key: str = ""
    api_key_file: str = ""
    ctx_size: int = 4096
    parallel: int = 1
    metrics: bool = False
    spec_type: str = ""
    n_max: int = 3
    load_seconds: float = 0.0
    never_ready: bool = False
    health_only: bool = False
    models_200_while_loading: bool = False
    die_on_load: bool = False
    die_after: float = 0.0
    die_at_request: int = 0
    fatal_line: str = ""
    ignore_term: bool = False
    term_needs_two: bool = False
    hold_request: str = ""
    slow: float = 0.0
    no_mtp: bool = False
    wrong_model: bool = False
    shrink_ctx: int = 0
    openai_only: bool = False
    spawn_child: bool = False
    leave_child_on_exit: bool = False

    @property
    def context(self) -> int:
        """Tokens that one slot holds; llama-server pads what was asked to a multiple of 256."""
        return self.shrink_ctx or -(-self.ctx_size // self.parallel // 256) * 256

    @property
    def speculates(self) -> bool:
        """True where drafts are really made."""
        return self.spec_type not in ("", "none") and not self.no_mtp

    @property
    def served(self) -> str:
        """The model that it claims to serve."""
        return "/models/another.gguf" if self.wrong_model else self.model


def parse(words: list[str]) -> Flags:
    """Read the flags that the stand-in knows; anything else is passed over."""
    flags = Flags()
    rest = iter(words)
    for word in rest:
        name = _SPELLINGS.get(word, re.sub("^--", "", word).replace("-", "_"))
        if name not in Flags.__annotations__ or not word.startswith("-"):
            continue
        known = getattr(flags, name)
        if isinstance(known, bool):
            setattr(flags, name, True)
        else:
            setattr(flags, name, type(known)(next(rest)))
    if flags.api_key_file:
        flags.api_key = Path(flags.api_key_file).read_text().strip()
    return flags
