"""`runner next`, `why`, `pause`, `resume` and `run --at`: what is to come, and what became of it."""

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from runner import who, words
from runner.cli import options, out
from runner.outcome import Outcome, exit_code
from runner.recovery.files import read_json

if TYPE_CHECKING:
    from runner.settings import Settings

Json = dict[str, Any]


def _when(text: str, settings: "Settings") -> datetime:
    """A time as a person writes it: `03:00` (the next one), `2026-12-24 03:00`, ISO 8601, `2h`."""
    from jobs.fields import duration  # noqa: PLC0415 - after a broken config has been told
    from runner.schedule.cron import existing  # noqa: PLC0415 - likewise
    from runner.schedule.windows import next_clock  # noqa: PLC0415 - likewise

    now = datetime.now(UTC)
    try:
        if len(text) in {4, 5} and ":" in text:
            return next_clock(f"{datetime.strptime(text, '%H:%M'):%H:%M}", now, settings.zone)  # noqa: DTZ007 - a time on the wall, which gets its zone right here
        if text[-1:] in "smhd" and text[:1].isdigit():
            return now + timedelta(seconds=duration(text))
        at = datetime.fromisoformat(text)
    except ValueError:
        raise out.Failure(
            f"`{text}` is no time",
            remedy='write 03:00, "2026-12-24 03:00", or 2h for in two hours',
        ) from None
    return at.astimezone(UTC) if at.tzinfo else existing(at, settings.zone)


def _mine(config: str | None) -> "Settings":
    """The settings, as whoever may write the journal."""
    settings = options.settings(config)
    who.become_owner(Path(settings.state_dir), config=options.config_path(config))
    return settings


def _me() -> str:
    return who.named(int(os.environ.get("SUDO_UID") or os.getuid()))


def _known_job(name: str, settings: "Settings") -> None:
    """Raises ConfigError for a job that could not run because of its own file."""
    from jobs.load import load_job  # noqa: PLC0415 - after a broken config has been told

    load_job(Path(settings.jobs_dir), name)


def _known_name(name: str, settings: "Settings") -> None:
    """Raises Failure for a name that no job has: its file may be broken, but a typo is none."""
    from jobs.errors import ConfigError  # noqa: PLC0415 - after a broken config has been told
    from jobs.names import bad_name  # noqa: PLC0415 - likewise

    if name in {row.job for row in settings.schedule}:
        return
    try:
        _known_job(name, settings)
    except ConfigError:
        if bad_name(name) or not (Path(settings.jobs_dir) / f"{name}.toml").exists():
            raise


def plan_run(job: str, at: str, config: str | None, *, overridden: bool, as_json: bool) -> int:
    """Ask for one run at a time; the daemon starts it."""
    if overridden:
        raise out.Failure("--at goes with neither --set nor --dry-run", where="--at")
    settings = _mine(config)
    from runner.journal import Journal  # noqa: PLC0415 - after a broken config has been told
    from runner.schedule.ledger import Ledger, Planned  # noqa: PLC0415 - likewise

    _known_job(job, settings)
    when = _when(at, settings)
    if when <= datetime.now(UTC):
        raise out.Failure(f"{words.iso(when, settings.zone)} is over", where="--at")
    state_dir = Path(settings.state_dir)
    with Journal.open(state_dir, zone=settings.zone) as journal:
        new = Ledger(journal).plan(Planned(job, int(when.timestamp()), time.time(), _me()))
    said = words.day_and_clock(words.iso(when, settings.zone))
    lines = [f"{job} runs at {said}" + ("" if new else "; that was asked for already")]
    serves = _nudge(state_dir)
    if not serves:
        lines.append("no daemon runs here: start `runner serve`, or nothing will happen")
    answer = {"job": job, "at": words.iso(when, settings.zone), "new": new, "served": serves}
    out.answer(answer, lines, as_json=as_json)
    return 0


def _nudge(state_dir: Path) -> bool:
    """Let the daemon look at once; whether there is one."""
    from runner.schedule.process import nudge  # noqa: PLC0415 - after a broken config has been told

    return nudge(state_dir)


@click.command()
@click.argument("job", required=False)
@click.option("--all", "every", is_flag=True, help="Every job of this box.")
@click.option("--until", metavar="TIME", help="It ends then by itself: 08:00, 2h, a date.")
@click.option("--reason", required=True, help="Why; it stands in the ledger.")
@options.answers
def pause(
    job: str | None,
    until: str | None,
    reason: str,
    config: str | None,
    *,
    every: bool,
    as_json: bool,
) -> int:
    """Let JOB, or with --all every job, not fire; slots until then are written down as paused."""
    settings = _mine(config)
    from runner.journal import Journal  # noqa: PLC0415 - after a broken config has been told
    from runner.schedule.ledger import Ledger, Pause  # noqa: PLC0415 - likewise

    name = _one(job, every=every)
    if job is not None:
        _known_name(job, settings)
    if not reason.strip():
        raise out.Failure("a reason is missing", where="--reason", remedy="say why, in a few words")
    end = _when(until, settings) if until is not None else None
    if end is not None and end <= datetime.now(UTC):
        raise out.Failure(f"{words.iso(end, settings.zone)} is over", where="--until")
    with Journal.open(Path(settings.state_dir), zone=settings.zone) as journal:
        Ledger(journal).pause(
            Pause(name, end.timestamp() if end else None, reason, time.time(), _me())
        )
    till = words.iso(end, settings.zone) if end else None
    said = f"until {words.day_and_clock(till)}" if till else "until `runner resume`"
    _nudge(Path(settings.state_dir))
    out.answer(
        {"job": name, "until": till, "reason": reason},
        f"{'every job' if every else job} is paused {said}; a run that goes on is not touched",
        as_json=as_json,
    )
    return 0


@click.command()
@click.argument("job", required=False)
@click.option("--all", "every", is_flag=True, help="The pause of every job.")
@options.answers
def resume(job: str | None, config: str | None, *, every: bool, as_json: bool) -> int:
    """Let JOB, or with --all every job, fire again."""
    settings = _mine(config)
    from runner.journal import Journal  # noqa: PLC0415 - after a broken config has been told
    from runner.schedule.ledger import Ledger  # noqa: PLC0415 - likewise

    name = _one(job, every=every)
    with Journal.open(Path(settings.state_dir), zone=settings.zone) as journal:
        resumed = Ledger(journal).resume(name)
    _nudge(Path(settings.state_dir))
    what = "every job" if every else job
    said = f"{what} fires again" if resumed else f"{what} was not paused"
    out.answer({"job": name, "resumed": resumed}, said, as_json=as_json)
    return 0


def _one(job: str | None, *, every: bool) -> str:
    from runner.schedule.ledger import EVERY_JOB  # noqa: PLC0415 - after a broken config

    if (job is None) == (not every):
        raise out.Failure("name one JOB, or --all", remedy="such as: runner pause 200k-mtp …")
    return job or EVERY_JOB


@click.command("next")
@click.argument("job", required=False)
@click.option("--from", "begin", metavar="TIME", help="Fires after this time (default: now).")
@click.option("--count", "-n", type=click.IntRange(1, 1000), default=10, show_default=True)
@click.option("--ical", is_flag=True, help="As iCalendar, for a calendar program.")
@click.option("--look/--no-look", default=True, help="Run each job's preflight now (default).")
@options.answers
def next_(
    job: str | None,
    begin: str | None,
    count: int,
    config: str | None,
    *,
    ical: bool,
    look: bool,
    as_json: bool,
) -> int:
    """The coming fires, and what would refuse them if they were now. Touches nothing."""
    if ical and as_json:
        raise out.Failure("--ical does not go with --json", where="runner next", remedy="give one")
    settings = options.settings(config)
    from runner.journal import Journal  # noqa: PLC0415 - after a broken config has been told
    from runner.schedule import coming  # noqa: PLC0415 - likewise
    from runner.schedule.held import is_held  # noqa: PLC0415 - likewise
    from runner.schedule.ledger import Ledger  # noqa: PLC0415 - likewise

    state_dir = Path(settings.state_dir)
    mine = who.owner_of(state_dir) in {None, os.geteuid()} or os.geteuid() == 0
    start = _when(begin, settings) if begin is not None else datetime.now(UTC)
    if job is not None:
        _known_name(job, settings)
    if mine:
        who.become_owner(state_dir, config=options.config_path(config))
        with Journal.open(state_dir, zone=settings.zone) as journal:
            ledger = Ledger(journal)
            slots = coming.slots(settings, ledger, start, job=job, count=count)
            if look and not is_held(settings):
                _look_at(slots, settings)
    else:
        slots = coming.slots(settings, None, start, job=job, count=count)
        _as_published(slots, state_dir)
    if ical:
        from runner.schedule.ical import calendar  # noqa: PLC0415 - only when asked

        out.say(calendar(slots).replace("\r\n", "\n").rstrip("\n"))
        return 0
    notes = coming.notes(settings, start, job=job)
    lines = _next_lines(slots, notes, job)
    out.answer({"slots": slots, "notes": notes}, lines, as_json=as_json)
    return 0


def _as_published(slots: list[Json], state_dir: Path) -> None:
    """Put in what the owner's daemon has found out, for users who may not look themselves."""
    said = read_json(state_dir / "public" / "next.json") or {}
    known = said.get("slots")
    would = {
        (one.get("job"), one.get("at")): one.get("would")
        for one in (known if isinstance(known, list) else ())
    }
    for slot in slots:
        slot["would"] = would.get((slot["job"], slot["at"])) or slot["would"]


def _look_at(slots: list[Json], settings: "Settings") -> None:
    """Put in what each job's preflight says now, where nothing else is said of it already."""
    from jobs.errors import ConfigError  # noqa: PLC0415 - after a broken config has been told
    from runner import look  # noqa: PLC0415 - likewise
    from runner.schedule.firing import refusals  # noqa: PLC0415 - likewise

    said: dict[str, str] = {}
    for name in dict.fromkeys(slot["job"] for slot in slots):
        try:
            found = look.check(name, settings)
        except ConfigError as error:
            said[name] = f"refuse: {error}"
        else:
            refused = refusals(found)
            said[name] = f"refuse: {refused}" if refused else "run"
    for slot in slots:
        if not slot["would"].startswith(("skip", "refuse: drained")):
            slot["would"] = said[slot["job"]]


def _next_lines(slots: list[Json], notes: list[str], job: str | None) -> list[str]:
    rows = [
        [f"{slot['at'][:16].replace('T', ' ')} {slot['at'][-6:]}", slot["job"], slot["would"]]
        for slot in slots
    ]
    nothing = f"{job} is not scheduled" if job else "nothing is scheduled"
    lines = out.columns(rows, ["at", "job", "would"]) or [nothing]
    said = {slot["job"]: slot["in_words"].partition(";")[0] for slot in reversed(slots)}
    lines += ["", *(f"{name}: {what}" for name, what in said.items())] if said else []
    return [*lines, *(f"note: {note}" for note in notes)]


@click.command()
@click.argument("job")
@click.argument("at", metavar="[TIME]", required=False)
@options.answers
def why(job: str, at: str | None, config: str | None, *, as_json: bool) -> int:
    """What became of JOB's slot at or before TIME (default: the last one), and why."""
    settings = _mine(config)
    from runner.journal import Journal  # noqa: PLC0415 - after a broken config has been told
    from runner.schedule.ledger import Ledger  # noqa: PLC0415 - likewise
    from runner.schedule.why import explain, lines  # noqa: PLC0415 - likewise

    before = _past(at, settings) if at else datetime.now(UTC)
    with Journal.open(Path(settings.state_dir), zone=settings.zone) as journal:
        answer = explain(job, Ledger(journal), settings, before=before)
    if answer["slot"] is None and answer["next"] is None and not answer["runs"]:
        raise out.Failure(
            f"nothing is known of a job `{job}`",
            code=exit_code(Outcome.SKIPPED) if answer["scheduled"] else 2,
            remedy="runner list shows the jobs, runner next what is scheduled",
        )
    out.answer(answer, lines(answer), as_json=as_json)
    return 0


def _past(text: str, settings: "Settings") -> datetime:
    """A time that was: `00:00` is the last one, not the next."""
    at = _when(text, settings)
    return at - timedelta(days=1) if at > datetime.now(UTC) and len(text) in {4, 5} else at
