"""How the stand-in makes up its answers and counts them; knows tokens, and nothing of HTTP."""

import os
import re
import sys
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from runner.demo.standin.flags import Flags
from runner.until import RealClock

_CLOCK = RealClock()
_PROMPT_SPEED = 200_000.0  # tokens per second
_SPEED, _SPEED_DRAFTING = 2_000.0, 3_000.0
_ACCEPTED = (3, 1, 2, 0, 3, 2, 1, 3)  # of each draft, in turn
_WORDS = ("no", "model", "runs", "here", "this", "stand", "in", "server", "makes", "words", "up")


class Log:
    """llama-server's log: time since the start, level, part, function, text; on stderr."""

    def __init__(self) -> None:
        self._start = _CLOCK.now()

    def __call__(self, level: str, part: str, function: str, text: str) -> None:
        micros = int((_CLOCK.now() - self._start) * 1e6)
        minutes, micros = divmod(micros, 60_000_000)
        seconds, micros = divmod(micros, 1_000_000)
        stamp = f"{minutes}.{seconds:02d}.{micros // 1000:03d}.{micros % 1000:03d}"
        sys.stderr.write(f"{stamp} {level} {part:<4} {function[:12]:>12}: {text}\n")
        sys.stderr.flush()


@dataclass
class Counters:
    """What /metrics shows, by llama-server's names."""

    prompt_tokens: int = 0
    prompt_tokens_cached: int = 0
    prompt_seconds: float = 0.0
    tokens_predicted: int = 0
    tokens_predicted_seconds: float = 0.0
    n_decode: int = 0
    spec_decode_num_draft_tokens: int = 0
    spec_decode_num_accepted_tokens: int = 0
    spec_decode_num_drafts: int = 0
    n_tokens_max: int = 0
    per_position: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Ask:
    """One prompt, and how it is to be answered; `gone` tells that nobody waits any more."""

    prompt: list[int]
    wanted: int
    greedy: bool
    reuse: bool
    gone: Callable[[], bool]


@dataclass(frozen=True)
class Read:
    """So much of the prompt is read."""

    total: int
    cached: int
    processed: int
    ms: float


@dataclass(frozen=True)
class Word:
    """One generated token."""

    text: str
    token: int
    number: int


@dataclass(frozen=True)
class Reply:
    """One answered prompt: the last event of an answer."""

    text: str
    prompt_tokens: int
    timings: Mapping[str, float]


class Refused(Exception):
    """The request gets an error object in llama-server's form."""

    def __init__(self, code: int, kind: str, message: str, **more: int) -> None:
        super().__init__(message)
        self.code = code
        self.body = {"error": {"code": code, "message": message, "type": kind, **more}}


class Engine:
    """Makes up words, takes the time that its speeds imply, and counts; one request at a time."""

    def __init__(self, flags: Flags, log: Log) -> None:
        self.flags = flags
        self.counters = Counters()
        self.processing = False
        self._log = log
        self._slot = threading.Lock()
        self._cached: list[int] = []
        self._pieces: dict[int, str] = {}
        self._requests = 0
        self._drafts = 0

    def tokens(self, prompt: object) -> list[int]:
        """A token for each word; a list of tokens is taken as it is."""
        if isinstance(prompt, list):
            return [int(token) for token in prompt]
        pieces = re.findall(r"\s*\S+|\s+", str(prompt))
        found = {piece: 1000 + zlib.crc32(piece.encode()) % 30_000 for piece in pieces}
        self._pieces |= {token: piece for piece, token in found.items()}
        return [found[piece] for piece in pieces]

    def text(self, tokens: list[int]) -> str:
        """The words of tokens that were seen before."""
        return "".join(self._pieces.get(token, f" {token}") for token in tokens)

    def answer(self, ask: Ask) -> Iterator[Read | Word | Reply]:
        """Generate what is asked, each event at its time; the Reply comes last."""
        if len(ask.prompt) >= self.flags.context:
            size = f"request ({len(ask.prompt)} tokens) exceeds the available context size "
            message = f"{size}({self.flags.context} tokens), try increasing it"
            more = {"n_prompt_tokens": len(ask.prompt), "n_ctx": self.flags.context}
            raise Refused(400, "exceed_context_size_error", message, **more)
        with self._slot:
            self.processing = True
            try:
                self._misbehave(ask)
                yield from self._answer(ask)
            finally:
                self.processing = False

    def _misbehave(self, ask: Ask) -> None:
        self._requests += 1
        if self._requests == self.flags.die_at_request:
            os._exit(1)
        if self.flags.hold_request and self.flags.hold_request in self.text(ask.prompt):
            while not ask.gone():
                _CLOCK.pause(0.02)
            raise ConnectionAbortedError

    def _answer(self, ask: Ask) -> Iterator[Read | Word | Reply]:
        prompt, started = ask.prompt, _CLOCK.now()
        cached = _common(prompt, self._cached) if ask.reuse else 0
        wanted = min(ask.wanted, self.flags.context - len(prompt))
        fresh = len(prompt) - cached
        speed = self.flags.slow or (_SPEED_DRAFTING if self.flags.speculates else _SPEED)
        prompt_s, predicted_s = fresh / _PROMPT_SPEED, wanted / speed
        yield Read(len(prompt), cached, cached, 0.0)
        _until(started + prompt_s)
        yield Read(len(prompt), cached, len(prompt), prompt_s * 1000)
        first = zlib.crc32(str(prompt).encode()) + (0 if ask.greedy else self._requests)
        words = [f" {_WORDS[(first + number) % len(_WORDS)]}" for number in range(wanted)]
        generated = self.tokens("".join(words))
        for number, (word, token) in enumerate(zip(words, generated, strict=True), 1):
            _until(started + prompt_s + number / speed)
            yield Word(word, token, number)
        drafted, accepted = self._draft(wanted)
        self._cached = prompt + generated
        self._count(cached, fresh, prompt_s, wanted, predicted_s)
        timings: dict[str, float] = {
            "cache_n": cached,
            "prompt_n": fresh,
            "prompt_ms": prompt_s * 1000,
            "prompt_per_token_ms": 1000 / _PROMPT_SPEED,
            "prompt_per_second": _PROMPT_SPEED,
            "predicted_n": wanted,
            "predicted_ms": predicted_s * 1000,
            "predicted_per_token_ms": 1000 / speed,
            "predicted_per_second": speed,
        }
        if drafted:
            timings |= {"draft_n": drafted, "draft_n_accepted": accepted}
        self._print_timing(timings, len(prompt))
        yield Reply("".join(words), len(prompt), timings)

    def _draft(self, wanted: int) -> tuple[int, int]:
        """Draft as often as `wanted` tokens need; returns tokens drafted and accepted."""
        counters, drafted, accepted, made = self.counters, 0, 0, 1  # the prompt gives the first
        while self.flags.speculates and made < wanted:
            tried = min(self.flags.n_max, wanted - made)
            right = min(_ACCEPTED[self._drafts % len(_ACCEPTED)], tried, wanted - made - 1)
            self._drafts += 1
            drafted, accepted, made = drafted + tried, accepted + right, made + right + 1
            counters.spec_decode_num_drafts += 1
            missing = self.flags.n_max - len(counters.per_position)
            counters.per_position += [0] * missing
            for position in range(right):
                counters.per_position[position] += 1
        counters.spec_decode_num_draft_tokens += drafted
        counters.spec_decode_num_accepted_tokens += accepted
        return drafted, accepted

    def _count(
        self, cached: int, fresh: int, prompt_s: float, wanted: int, predicted_s: float
    ) -> None:
        counters = self.counters
        counters.prompt_tokens += fresh
        counters.prompt_tokens_cached += cached
        counters.prompt_seconds += prompt_s
        counters.tokens_predicted += wanted
        counters.tokens_predicted_seconds += predicted_s
        counters.n_decode += 1 + wanted
        counters.n_tokens_max = max(counters.n_tokens_max, cached + fresh + wanted)

    def _print_timing(self, timings: Mapping[str, float], prompt: int) -> None:
        task = f"id  0 | task {self._requests} | "
        for name, kind in (("prompt eval time", "prompt"), ("       eval time", "predicted")):
            count, ms = timings[f"{kind}_n"], timings[f"{kind}_ms"]
            line = f"{task}{name} = {ms:10.2f} ms / {count:5.0f} tokens"
            self._log("I", "slot", "print_timing", line)
        if "draft_n" in timings:
            drafted, accepted = timings["draft_n"], timings["draft_n_accepted"]
            share = f"draft acceptance = {accepted / drafted:.5f}"
            counts = f"({accepted:5.0f} accepted / {drafted:5.0f} generated)"
            self._log("I", "slot", "print_timing", f"{task}{share} {counts}")
            total = self.counters
            drafts = f"#gen drafts = {total.spec_decode_num_drafts:6}"
            made = f"#gen tokens = {total.spec_decode_num_draft_tokens:6}"
            right = f"#acc tokens = {total.spec_decode_num_accepted_tokens:5}"
            line = f"statistics {self.flags.spec_type:>16}: {drafts}, {made}, {right}"
            self._log("I", "spec", "common_speculative", line)
        held = prompt + int(timings["predicted_n"]) - 1
        release = f"{task}stop processing: n_tokens = {held}, truncated = 0"
        self._log("I", "slot", "release", release)

    def metrics(self) -> str:
        """The counters in Prometheus' text form."""
        lines = []
        for name, value in vars(self.counters).items():
            if name == "per_position":
                continue
            full = f"llamacpp:{name}" + ("" if name == "n_tokens_max" else "_total")
            lines += [f"# TYPE {full} counter", f"{full} {value:g}" if value else f"{full} 0"]
        for name, count in (("processing", int(self.processing)), ("deferred", 0)):
            full = f"llamacpp:requests_{name}"
            lines += [f"# TYPE {full} gauge", f"{full} {count}"]
        accepted = "llamacpp:spec_decode_num_accepted_tokens_per_pos_total"
        for position, count in enumerate(self.counters.per_position):
            lines.append(f'{accepted}{{position="{position}"}} {count}')
        return "\n".join(lines) + "\n"


def _until(due: float) -> None:
    while (left := due - _CLOCK.now()) > 0:
        _CLOCK.pause(left)


def _common(prompt: list[int], cached: list[int]) -> int:
    """Tokens at the start that need no work; the last one is always read again."""
    pairs = zip(prompt[:-1], cached, strict=False)
    return next(
        (at for at, (a, b) in enumerate(pairs) if a != b), min(len(prompt) - 1, len(cached))
    )
