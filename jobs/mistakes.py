"""Mistakes that only show when several keys of a job are read together. Pure; builds no command."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import get_args

from jobs import flags
from jobs.claims import Context, Speculation, Throughput
from jobs.flags import Flags
from jobs.job import Differences, Job
from jobs.servers.llamacpp import FIELD_FLAGS, REMOTE, SECRET
from jobs.servers.llamacpp_flags import FLAGS
from jobs.shell import launches
from jobs.toml_lines import Key
from preflight.rings import AnyCheck

_NOT_FOR_TASKS = (
    "like", "set", "drop", "model", "mmproj", "draft", "served_model_name", "host", "port",
    "context", "parallel", "api_key", "health", "headroom_mib",
)  # fmt: skip
_NO_FLAGS = Flags()
_PADDING = 255
"""So many tokens llama-server may add to a context, which it rounds up to a multiple of 256."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """A mistake at a key of the job file, and what to do."""

    key: Key
    message: str
    remedy: str


def mistakes(job: Job) -> tuple[Mistake, ...]:
    """All of them, in the order of the file's tables."""
    one_kind = _task(job) if job.candidate.is_task else _server(job)
    return (*_accepted(job), *one_kind, *_claims(job))


def _accepted(job: Job) -> Iterator[Mistake]:
    """A reason given for a check that there is not accepts nothing."""
    known = sorted({one.id for kind in get_args(get_args(AnyCheck)[0]) for one in kind.explains})
    for name in job.accept:
        if name not in known and not name.startswith("self."):
            close = get_close_matches(name, known, 1)
            yield Mistake(
                ("accept", name),
                "is the id of no check",
                f"did you mean {close[0]}?" if close else "runner explain lists them",
            )


def table_of(kind: str | None) -> Flags:
    """The flags of a kind; where the kind comes from production, those of llama-server."""
    return FLAGS if kind in (None, "llamacpp") else _NO_FLAGS


def _task(job: Job) -> Iterator[Mistake]:
    candidate = job.candidate
    if candidate.command is None and candidate.binary is None:
        yield Mistake(("candidate",), "a task without a command", 'write command = ["/…", …]')
    for key in _NOT_FOR_TASKS:
        if key in candidate.model_fields_set:
            yield Mistake(("candidate", key), "means nothing for a task", "remove it")
    if job.baseline is not None:
        yield Mistake(("baseline",), "a task has no baseline", "remove it")
    for number, claim in enumerate(job.claim):
        if claim.kind != "exit_code":
            yield Mistake(
                ("claim", number, "kind"),
                f"a task is judged by its exit code, not by {claim.kind}",
                'remove it, or write kind = "exit_code"',
            )


def _server(job: Job) -> Iterator[Mistake]:
    candidate = job.candidate
    own = candidate.command is not None or candidate.binary is not None
    if candidate.kind is None and candidate.like is None:
        yield Mistake(
            ("candidate",), "has neither kind nor like", 'write like = "llm" or kind = "llamacpp"'
        )
    if candidate.command is not None and candidate.like is not None:
        yield Mistake(
            ("candidate", "command"),
            "is given although like names a command",
            "keep one of them; for another build of the program write binary",
        )
    yield from _launchers(job)
    if not own and candidate.like is None:
        yield Mistake(
            ("candidate",), "has no program", 'write binary = "/…", command = […] or like = …'
        )
    if not job.claim:
        yield Mistake(
            ("claim",),
            "a job without a claim proves nothing",
            'add a [[claim]], such as kind = "context" with tokens = 200000',
        )
    table = table_of(candidate.kind)
    yield from _differences(candidate, table, ("candidate",))
    yield from _said_twice(job, table)
    if job.baseline is not None:
        if not (job.baseline.set or job.baseline.drop or job.baseline.binary):
            yield Mistake(("baseline",), "differs in nothing", "write set, drop or binary")
        yield from _differences(job.baseline, table, ("baseline",))
    if table is FLAGS:
        yield from _llamacpp(job)
    elif not isinstance(candidate.port, int):
        yield Mistake(
            ("candidate", "port"),
            "must be a number: only llamacpp can be told a free port",
            "write the port that the command listens on",
        )
    if job.workload.fill and table is _NO_FLAGS and candidate.context is None:
        yield Mistake(
            ("workload", "fill"),
            "is a share of the context, which is not known",
            "write candidate.context, in tokens",
        )


def _launchers(job: Job) -> Iterator[Mistake]:
    """A program in another one's place, that is only the way to one."""
    replacing = (
        ("candidate", job.candidate.binary if job.candidate.like else None),
        ("baseline", job.baseline.binary if job.baseline else None),
    )
    for table, program in replacing:
        if program is not None and launches(program):
            yield Mistake(
                (table, "binary"),
                f"{program} is no server, but the way to one",
                "name the server's own program; what stands before production's stays there",
            )


def _differences(changed: Differences, table: Flags, at: Key) -> Iterator[Mistake]:
    """A flag that is set and dropped, or set twice under two names."""
    names = list(changed.set)
    for place, name in enumerate(names):
        for other in names[place + 1 :]:
            if table.same(name, other):
                yield Mistake((*at, "set", other), f"is the same flag as {name}", "keep one")
        for other in changed.drop:
            if table.same(name, other):
                yield Mistake((*at, "set", name), f"is also dropped, as {other}", "keep one")
        if any(table.same(name, secret) for secret in SECRET):
            yield _secret((*at, "set", name))


def _said_twice(job: Job, table: Flags) -> Iterator[Mistake]:
    """A field, and the flag that says the same, in set, drop, args or the command itself."""
    candidate = job.candidate
    if table is not FLAGS:
        return
    written = (*(candidate.command or ("-",)), *candidate.args)
    for field, flag in (*FIELD_FLAGS, ("context", "--ctx-size")):
        value = getattr(candidate, field)
        if value is None:
            continue
        for name in (*candidate.set, *candidate.drop):
            if table.same(flag, name):
                part = "set" if name in candidate.set else "drop"
                yield Mistake(
                    ("candidate", part, name), f"and {field} say the same twice", "keep one of them"
                )
        said = flags.value_of(written, flag, table)
        if said is not None and said != str(value) and field != "context":
            yield Mistake(
                ("candidate", field),
                f"is {value}, but the command says `{flag} {said}`",
                "make them agree, or remove one",
            )


def _llamacpp(job: Job) -> Iterator[Mistake]:
    candidate = job.candidate
    written = (*(candidate.command or ("-",)), *candidate.args)
    key = "command" if candidate.command else "args"
    yield from _words(written, ("candidate", key))
    for changed, at in ((candidate, "candidate"), (job.baseline, "baseline")):
        for name, setting in (changed.set if changed else {}).items():
            made = flags.derive(("-",), {name: setting}, (), FLAGS)
            for message, remedy in flags.faults(made, FLAGS):
                yield Mistake((at, "set", name), message, remedy)
    yield from _environment(candidate.env)
    key_of = candidate.api_key
    if key_of is not None and key_of.env not in (None, "LLAMA_API_KEY"):
        yield Mistake(
            ("candidate", "api_key", "env"),
            "llama-server reads its key only from LLAMA_API_KEY",
            'write env = "LLAMA_API_KEY", or file = "/…"',
        )
    named = candidate.model or candidate.like or flags.has(written, "--model", FLAGS)
    if not named and not any(FLAGS.same("--model", name) for name in candidate.set):
        yield Mistake(("candidate",), "names no model", 'write model = "/…/model.gguf"')


def _words(argv: Sequence[str], at: Key) -> Iterator[Mistake]:
    for message, remedy in flags.faults(argv, FLAGS):
        yield Mistake(at, message, remedy)
    for name in SECRET:
        if flags.has(argv, name, FLAGS):
            yield _secret(at)
    for name in REMOTE:
        if flags.has(argv, name, FLAGS):
            yield Mistake(
                at, f"{name} fetches a model instead of naming a file", 'write model = "/…"'
            )


def _secret(at: Key) -> Mistake:
    return Mistake(
        at,
        "a key in a command line is seen by everybody on the box",
        'write api_key = { file = "/…" }',
    )


def _environment(env: Mapping[str, str]) -> Iterator[Mistake]:
    for name in env:
        flag = FLAGS.of_env(name)
        if name in {"LLAMA_API_KEY", "HF_TOKEN"}:
            yield _secret(("candidate", "env", name))
        elif flag is not None or name.startswith("LLAMA_ARG_"):
            shown = flag.names[-1] if flag else "its flag"
            yield Mistake(
                ("candidate", "env", name),
                "configures the server where nobody looks for it",
                f"write {shown} in args or set",
            )


def _claims(job: Job) -> Iterator[Mistake]:
    """Claims that the workload can never prove."""
    for number, claim in enumerate(job.claim):
        at: Key = ("claim", number)
        if isinstance(claim, Throughput):
            yield from _throughput(job, claim, at)
        if isinstance(claim, Speculation | Throughput):
            yield from _temperature(job, claim.temperature, at)
        if isinstance(claim, Context) and job.candidate.is_task is False:
            yield from _context(job, claim, at)


def _context(job: Job, claim: Context, at: Key) -> Iterator[Mistake]:
    if not job.workload.fill:
        yield Mistake(
            at,
            "needs a prompt that fills the context, and the workload has none",
            "write workload.fill = [0.95]",
        )
    elif job.candidate.context is not None:
        share = max(job.workload.fill)
        most = share * (job.candidate.context + _PADDING)
        if most < claim.to_fill:
            yield Mistake(
                (*at, "filled_at_least"),
                f"wants {claim.to_fill:,} tokens filled, and the workload fills {share:g} of "
                f"{job.candidate.context:,}",
                "raise workload.fill, or lower filled_at_least",
            )


def _throughput(job: Job, claim: Throughput, at: Key) -> Iterator[Mistake]:
    if claim.faster_than == "baseline" and job.baseline is None:
        yield Mistake(
            (*at, "faster_than"), "there is no [baseline]", "add [baseline] with set or drop"
        )
    if claim.of == "prompt" and (
        claim.depth is not None or job.workload.prompts.startswith("builtin:")
    ):
        yield Mistake(
            (*at, "of"),
            "reading a prompt is measured on cold prompts of 512 tokens and more; a filled "
            "context is read once, and the built-in prompts are shorter",
            "write workload.prompts with a file of long prompts, and no depth",
        )
    if claim.depth is not None and claim.depth not in job.workload.fill:
        yield Mistake(
            (*at, "depth"),
            f"is not one of workload.fill = {list(job.workload.fill)}",
            "write one of them, or add it there",
        )


def _temperature(job: Job, temperature: float | None, at: Key) -> Iterator[Mistake]:
    if temperature is not None and temperature not in job.workload.temperatures:
        yield Mistake(
            (*at, "temperature"),
            f"is not one of workload.temperatures = {list(job.workload.temperatures)}",
            "write one of them, or add it there",
        )
