"""What preflight should know of one llama-server: roles of its files, its memory, its flags. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from jobs import flags
from jobs.flags import Piece
from jobs.servers.base import Command
from jobs.servers.llamacpp import LlamaCpp
from jobs.servers.llamacpp_flags import FLAGS
from jobs.servers.llamacpp_overrides import DRAFT, MODEL, PLACES, Rule, misread, rules_of
from jobs.servers.llamacpp_says import whole_number
from jobs.shell import program_at
from preflight.host.flags import Flags
from preflight.models.fit import Learned, Load
from preflight.models.roles import Roles

_OURS = re.compile(r"llama-server([-._][\w.+-]*)?")
_SCRIPTS = (".sh", ".py", ".pl")
_VARIABLE = "LLAMA_ARG_"
_AUTO_SLOTS = 4
"""How many slots llama-server takes by itself; they then share one context (b10434 to b11434)."""
_MTP = "draft-mtp"
_HEADS = frozenset({_MTP, "draft-eagle3", "draft-dflash", "draft-dspark"})
"""Kinds of speculation whose draft is a head of the model and needs no words of its own."""
_FALSE = frozenset({"0", "off", "false", "disabled"})
_OVERRIDDEN = re.compile(r"(^|,)[\w-]+\.context_length=")


def takes_questions(program: str) -> bool:
    """Whether a program is known to take `--help` and `--version` for questions, and just answers.

    Builds often lie side by side under names such as llama-server-b11434. A script of such a name
    may do anything.
    """
    name = PurePosixPath(program).name
    return _OURS.fullmatch(name) is not None and not name.endswith(_SCRIPTS)


class Words:
    """The command line of one arm, with the variables that stand behind it."""

    def __init__(self, command: Command, inherited: Mapping[str, str]) -> None:
        self.argv = command.argv
        self.cwd = command.cwd
        self.env = {**inherited, **command.env}

    def value(self, name: str) -> str | None:
        """What the server takes for a flag: its own value, else that of its variable."""
        own = flags.value_of(self.argv, name, FLAGS)
        known = FLAGS.find(name)
        return own if own is not None or known is None or not known.env else self.env.get(known.env)

    def number(self, name: str) -> int | None:
        """The same as a whole number."""
        return whole_number(self.value(name))

    def on(self, *names: str) -> bool:
        """Whether a switch is given, under exactly one of these names: its opposite is another."""
        given = [piece.name for piece in flags.pieces(self.argv, FLAGS) if piece.name]
        return any(name in names for name in given)

    def path(self, name: str) -> str | None:
        """A file that a flag names, as a whole path."""
        found = self.value(name)
        return str(PurePosixPath(self.cwd or "/") / found) if found else None

    def paths(self, name: str) -> tuple[str, ...]:
        """All files that a flag names."""
        found = flags.values_of(self.argv, name, FLAGS)
        parts = [part for value in found for part in value.split(",")]
        return tuple(str(PurePosixPath(self.cwd or "/") / part) for part in parts)

    @property
    def speculation(self) -> frozenset[str]:
        """The kinds of speculation that are asked for."""
        return frozenset((self.value("--spec-type") or "").split(",")) - {"", "none"}

    def share(self, place: int, count: int) -> float:
        """The part of the layers that the GPU at this place gets, of so many: -ts, else alike."""
        try:
            parts = [float(part) for part in (self.value("--tensor-split") or "").split(",")]
        except ValueError:
            parts = []
        total = sum(parts[:count])
        return parts[place] / total if len(parts) >= count and total > 0 else 1 / count

    @property
    def unified(self) -> bool:
        """Whether all slots share one context."""
        if self.on("-no-kvu", "--no-kv-unified"):
            return False
        return self.on("-kvu", "--kv-unified") or self._slots is None

    @property
    def _slots(self) -> int | None:
        asked = self.number("--parallel")
        return asked if asked is not None and asked > 0 else None

    @property
    def slots(self) -> int:
        """How many requests it works on at the same time."""
        return self._slots or _AUTO_SLOTS


def roles(server: LlamaCpp, words: Words, arm: str) -> Roles | None:
    """What each of its model files is used as; None where it names no model."""
    model = words.path("--model")
    if model is None:
        return None
    kinds = words.speculation
    free = any(
        _OVERRIDDEN.search(one) for one in flags.values_of(words.argv, "--override-kv", FLAGS)
    )
    return Roles(
        arm=arm,
        model=model,
        draft=words.path("--spec-draft-model"),
        mmproj=words.path("--mmproj"),
        adapters=words.paths("--lora"),
        mtp=_MTP in kinds,
        own_words=not kinds & _HEADS,
        context=None if free else server.context,
    )


def load(
    words: Words, arm: str, learned: tuple[Learned, ...], *, share: float = 1.0
) -> Load | None:
    """What it puts on the GPU, or its share of that; None where it names no model."""
    model = words.path("--model")
    if model is None:
        return None
    draft = words.path("--spec-draft-model")
    rules, draft_rules = (tuple(rules_of(words.argv, words.env, one)) for one in (MODEL, DRAFT))
    return Load(
        arm=arm,
        model=model,
        draft=draft,
        mmproj=words.path("--mmproj"),
        adapters=words.paths("--lora"),
        context=max(words.number("--ctx-size") or 0, 0),
        slots=words.slots,
        unified=words.unified,
        key=words.value("--cache-type-k") or "f16",
        value=words.value("--cache-type-v") or "f16",
        draft_key=words.value("--spec-draft-type-k") or "f16",
        draft_value=words.value("--spec-draft-type-v") or "f16",
        full_window=words.on("--swa-full"),
        batch=words.number("--ubatch-size") or 512,
        flash=words.value("--flash-attn") not in _FALSE,
        on_gpu=_on_gpu(words, "--n-gpu-layers", "--device"),
        overrides=tuple(rule for rule in rules if rule[1] in PLACES),
        draft_on_gpu=_on_gpu(words, "--spec-draft-ngl", "--spec-draft-device"),
        draft_overrides=tuple(rule for rule in draft_rules if rule[1] in PLACES),
        untold=_untold(words, [*rules, *(draft_rules if draft else ())]),
        cache_on_host=words.on("-nkvo", "--no-kv-offload"),
        mmproj_on_host=words.on("--no-mmproj-offload"),
        mtp=_MTP in words.speculation,
        drafted=words.number("--spec-draft-n-max") or 3,
        share=share,
        learned=learned,
    )


def _on_gpu(words: Words, layers: str, device: str) -> int | None:
    """How many layers go to the GPU; None for all."""
    if words.value(device) == "none":
        return 0
    asked = words.number(layers)
    return asked if asked is not None and asked >= 0 else None


def _untold(words: Words, rules: Sequence[Rule]) -> str:
    """Why it cannot be told how much goes to the GPU."""
    return "--rpc puts a part of it on other machines" if words.value("--rpc") else misread(rules)


def flag_check(
    server: LlamaCpp, words: Words, arm: str, *, loader: Mapping[str, str], claimed: int
) -> Flags | None:
    """Its flags, to be held against its own --help; None for a program that nobody knows."""
    program = words.argv[program_at(words.argv)] if words.argv else ""
    if not takes_questions(program) or not program.startswith("/"):
        return None
    total = words.number("--ctx-size") or 0
    divided = not words.unified and words.slots > 1 and (server.context or 0) < total
    return Flags(
        arm=arm,
        program=program,
        flags=tuple(
            (_bare(piece), piece.value) for piece in flags.pieces(words.argv, FLAGS) if piece.name
        ),
        environment=tuple(_unseen(words)),
        misread=tuple(_misread(words)),
        slots=words.slots,
        context=total if divided else 0,
        claimed=claimed,
        env=dict(loader),
    )


def _bare(piece: Piece) -> str:
    return piece.name.partition("=")[0]


def _unseen(words: Words) -> Iterator[tuple[str, str, str]]:
    """Variables that configure the server, where no flag of the command line overrules them."""
    for name in sorted(words.env):
        flag = FLAGS.of_env(name)
        if not name.startswith(_VARIABLE):
            continue
        if flag is None:
            yield name, words.env[name], "a flag that is not known here"
        elif not flags.has(words.argv, flag.names[0], FLAGS):
            yield name, words.env[name], flag.names[-1]


def _misread(words: Words) -> Iterator[str]:
    for name, value, shown in _unseen(words):
        flag = FLAGS.of_env(name)
        if flag is None or flag.kind in ("switch", "on"):
            continue
        for said, _ in flags.faults(("-", shown, value), FLAGS):
            yield f"{name}={value} in the environment: {said}"
