"""The table of verbs, the grouped help, and how every error becomes one answer and one exit code.

A verb's module is imported when the verb is called: `runner list` must not wait for what
`runner run` needs.
"""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass

import click

from jobs.errors import ConfigError
from runner import __version__
from runner.cli.out import Failure, complain, say
from runner.journal_file import JournalError
from runner.outcome import MEANINGS, USAGE, Outcome, exit_code
from runner.who import NotOwner

TONIGHT = "Tonight"
HAPPENED = "What happened"
BREAKS = "When it breaks"
SET_UP = "Set up"


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb: where the help lists it, where its code is, and what it is for."""

    section: str
    place: str
    help: str


VERBS = {
    "run": Verb(TONIGHT, "runner.cli.tonight:run", "Run one job now; --dry-run shows the plan."),
    "check": Verb(
        TONIGHT, "runner.cli.checking:check", "Look whether jobs could run; touch nothing."
    ),
    "cancel": Verb(TONIGHT, "runner.cli.tonight:cancel", "End a run orderly, production first."),
    "next": Verb(
        TONIGHT, "runner.cli.scheduling:next_", "The coming fires, and what would refuse them."
    ),
    "pause": Verb(TONIGHT, "runner.cli.scheduling:pause", "Let a job, or all, not fire for now."),
    "resume": Verb(TONIGHT, "runner.cli.scheduling:resume", "Let it fire again."),
    "status": Verb(HAPPENED, "runner.cli.recovering:status", "Is production serving now?"),
    "why": Verb(HAPPENED, "runner.cli.scheduling:why", "What became of a job's slot, and why."),
    "history": Verb(HAPPENED, "runner.cli.happened:history", "The runs so far, newest first."),
    "show": Verb(
        HAPPENED, "runner.cli.happened:show", "One run with its checks, claims and evidence."
    ),
    "logs": Verb(HAPPENED, "runner.cli.story:logs", "The log of a run's candidate; -f follows it."),
    "recover": Verb(
        BREAKS, "runner.cli.recovering:recover", "Bring production back if a run owes it."
    ),
    "release": Verb(BREAKS, "runner.cli.breaks:release", "Take over what a run owes production."),
    "undrain": Verb(
        BREAKS, "runner.cli.breaks:undrain", "Let jobs fire again after a failed restore."
    ),
    "alerts": Verb(
        BREAKS, "runner.cli.alerting:alerts", "list, flush and test what tells a person."
    ),
    "tell": Verb(
        BREAKS, "runner.cli.alerting:tell", "Deliver what is not delivered; for its unit."
    ),
    "audit": Verb(
        BREAKS, "runner.cli.auditing:audit", "Whether every promise holds, by an independent look."
    ),
    "drill": Verb(
        BREAKS, "runner.cli.drilling:drill", "Kill a real run on purpose; how long were we down?"
    ),
    "doctor": Verb(
        SET_UP, "runner.cli.doctor:doctor", "Which config is used, and what is missing."
    ),
    "serve": Verb(
        SET_UP, "runner.cli.serving:serve", "The daemon: fires jobs, watches, looks ahead, tells."
    ),
    "install-units": Verb(
        SET_UP, "runner.cli.installing:install_units", "systemd units and polkit rule for this box."
    ),
    "explain": Verb(
        SET_UP, "runner.cli.checking:explain", "What a check reads, its rules, and what helps."
    ),
    "reservations": Verb(
        SET_UP, "runner.cli.reserving:reservations", "What coming runs need, for everybody."
    ),
    "may-i": Verb(
        SET_UP, "runner.cli.reserving:may_i", "delete PATH, use PORT, stop UNIT: yes or no."
    ),
    "pin": Verb(SET_UP, "runner.cli.pinning:pin", "Keep the bytes of a job's files."),
    "unpin": Verb(SET_UP, "runner.cli.unpinning:unpin", "Let go of pins."),
    "list": Verb(SET_UP, "runner.cli.listing:list_jobs", "The jobs there are."),
    "schema": Verb(
        SET_UP, "runner.cli.schema:schema", "JSON Schema of runner.toml and of job files."
    ),
    "demo": Verb(SET_UP, "runner.cli.demo:demo", "The whole story on a box of its own in .demo/."),
}
_ALIASES = {"restore": "recover"}
_AFTER = frozenset({"--json"})


def _epilog() -> str:
    """The exit codes in a line: `0 proven; 2 usage …`; interruptions by their signals."""
    names: dict[str, list[str]] = {}
    for code, (outcome, _) in MEANINGS.items():
        name = "usage or configuration error" if code == USAGE else outcome
        names.setdefault(name, []).append(str(code))
    codes = "; ".join(f"{'/'.join(codes)} {name}" for name, codes in names.items())
    return f"Exit codes: {codes}. Anything else: it died before it could say; ask `runner status`."


class Verbs(click.Group):
    """The verbs, imported on use and listed by what a person is up to."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """The verbs in the order of the table."""
        return list(VERBS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a verb or of its alias."""
        verb = VERBS.get(_ALIASES.get(cmd_name, cmd_name))
        if verb is None:
            return None
        module, name = verb.place.split(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The grouped list; no verb's module is imported for it."""
        for section in (TONIGHT, HAPPENED, BREAKS, SET_UP):
            with formatter.section(section):
                formatter.write_dl(
                    [(name, verb.help) for name, verb in VERBS.items() if verb.section == section]
                )

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with a guess where the verb is misspelt."""
        if args and args[0] not in {*VERBS, *_ALIASES} and not args[0].startswith("-"):
            import difflib  # noqa: PLC0415 - only for a misspelt verb

            close = difflib.get_close_matches(args[0], [*VERBS, *_ALIASES], 1)
            guess = f"; did you mean `{close[0]}`?" if close else ""
            raise click.UsageError(f"there is no verb `{args[0]}`{guess}", ctx)
        return super().resolve_command(ctx, args)


@click.command(
    cls=Verbs,
    epilog=_epilog(),
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option("--config", metavar="FILE", help="runner.toml to use; see `runner doctor`.")
@click.option("-v", "--verbose", count=True, help="Log more to standard error (twice: all).")
@click.version_option(__version__, prog_name="runner", message="%(prog)s %(version)s")
@click.pass_context
def app(ctx: click.Context, config: str | None, verbose: int) -> None:
    """Unattended validation jobs on the GPU box that serves your language model.

    Production down, proof, production back; and a person told of anything that went wrong.
    """
    ctx.obj = {"config": config, "verbose": verbose}
    if ctx.invoked_subcommand is None:
        say(ctx.get_help())
        ctx.exit(USAGE)


def main(argv: Sequence[str]) -> int:
    """Run one verb; returns its exit code. Whatever goes wrong becomes one sentence or object."""
    as_json = "--json" in argv
    try:
        _refuse_bytes(argv)
        code = app.main(list(argv), prog_name="runner", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as helpful:  # `runner alerts`, and nothing more
        say(helpful.format_message())
        return USAGE
    except Exception as error:  # noqa: BLE001 - the last place where a fault can still be told
        failure = _failure(error)
        complain(failure, as_json=as_json)
        return failure.code
    except KeyboardInterrupt:
        complain(Failure("interrupted", code=130), as_json=as_json)
        return exit_code(Outcome.INTERRUPTED, "INT")
    return code if isinstance(code, int) else 0


def _refuse_bytes(argv: Sequence[str]) -> None:
    """Words that are no text can be written into no journal. A path to ask about is only compared."""
    odd = [word for word in argv if any("\udc80" <= sign <= "\udcff" for sign in word)]
    if odd and "may-i" not in argv:
        raise Failure(f"`{odd[0]}` is not UTF-8 text", remedy="write it as UTF-8")


def _failure(error: Exception) -> Failure:
    """Any error as what to tell: expected ones as they stand, others as a fault of ours."""
    match error:
        case Failure():
            return error
        case ConfigError():
            return from_config(error)
        case NotOwner():
            return Failure(error.message, where=error.where, remedy=error.remedy)
        case JournalError():
            message, _, remedy = str(error).partition(" → ")
            return Failure(message, where="journal", remedy=remedy)
        case click.Abort() | click.ClickException():
            return _from_click(error)
        case _:
            return _fault(error)


def _from_click(error: click.Abort | click.ClickException) -> Failure:
    if isinstance(error, click.Abort):
        return Failure("interrupted", code=exit_code(Outcome.INTERRUPTED, "INT"))
    context: click.Context | None = getattr(error, "ctx", None)
    where = context.command_path if context else "runner"
    if isinstance(error, click.NoSuchOption) and where == "runner" and error.option_name in _AFTER:
        return Failure(
            f"{error.option_name} is an option of the verb",
            remedy=f"write it last, as in `runner status {error.option_name}`",
        )
    return Failure(
        error.format_message().replace("a valid integer range", "a whole number"),
        where="" if where == "runner" else where,
        remedy=f"see `{where} --help`",
    )


def _fault(error: Exception) -> Failure:
    """A fault of ours, with its traceback on standard error."""
    from runner import logs  # noqa: PLC0415 - only for a fault of ours

    logs.configure()
    logs.get("runner.cli").error("a fault of the runner", exc_info=error)
    return Failure(
        f"a fault of the runner: {type(error).__name__}: {error}",
        code=exit_code(Outcome.BUG),
        remedy="please report it with the lines above; `runner status` tells how the box is",
    )


def from_config(error: ConfigError) -> Failure:
    """What is wrong with a file: the first problem on top, all of them beside it."""
    first = error.problems[0]
    return Failure(
        f"{first.key}: {first.message}" if first.key else first.message,
        where=f"{first.file}:{first.line}" if first.line is not None else first.file,
        remedy=first.remedy,
        problems=error.problems,
    )
