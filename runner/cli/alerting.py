"""`runner alerts`: what was told, what could not be, and whether the way to a person works."""

import socket
import time

import click

from runner import who, words
from runner.cli import options, out
from runner.cli.happened import MOST
from runner.journal import Journal
from runner.outcome import USAGE


@click.group()
def alerts() -> None:
    """What tells a person: the alerts so far, those not delivered yet, a test of every channel."""


@alerts.command("list", short_help="The alerts, newest first, and which are not delivered.")
@click.option("-n", "--limit", type=click.IntRange(1, MOST), default=50, show_default=True)
@click.option("--unsent", is_flag=True, help="Only those that are not delivered.")
@options.answers
def list_alerts(limit: int, config: str | None, *, unsent: bool, as_json: bool) -> int:
    """The alerts, newest first, with what kept those that are not delivered."""
    from runner.delivery import shown  # noqa: PLC0415 - only for this verb

    place = options.place(config)
    with place.journal() as journal:
        rows = journal.outbox(unsent=unsent)[::-1][:limit]
    entries = [shown(row, place.zone) for row in rows]
    lines = out.columns(
        [
            [
                words.day_and_clock(str(entry["created"])),
                "sent" if entry["sent"] else f"unsent, {entry['tries']} tries",
                str(entry["first_line"]),
                "" if entry["sent"] else str(entry["error"] or ""),
            ]
            for entry in entries
        ]
    )
    out.answer({"alerts": entries}, lines or ["no alerts"], as_json=as_json)
    return 0


@alerts.command()
@options.answers
def flush(config: str | None, *, as_json: bool) -> int:
    """Deliver now what is not delivered yet, whenever it would be due."""
    return _deliver(config, at_once=True, as_json=as_json)


@click.command()
@click.argument("run", required=False)
@options.answers
def tell(run: str | None, config: str | None, *, as_json: bool) -> int:
    """Deliver what is due: what runner-tell@RUN.service is for, and the daemon.

    RUN names the occasion only; whatever else is due goes with it. A channel that asked for patience
    gets it.
    """
    del run
    return _deliver(config, at_once=False, as_json=as_json)


def _deliver(config: str | None, *, at_once: bool, as_json: bool) -> int:
    from runner.delivery import flush as deliver  # noqa: PLC0415 - only for these verbs

    settings = options.settings(config)
    place = options.place(config)
    who.become_owner(place.state_dir, config=place.config)
    with Journal.open(place.state_dir, zone=place.zone) as journal:
        done = deliver(journal, settings.alerts.channel, place.state_dir, at_once=at_once)
    answer = {
        "sent": done.sent,
        "failed": done.failed,
        "unsent": done.unsent,
        "errors": list(done.errors),
    }
    lines = [f"{done.sent} delivered, {done.unsent} not"]
    lines += [f"  {words.shown(error)}" for error in done.errors]
    out.answer(answer, lines, as_json=as_json)
    return USAGE if done.failed or (at_once and done.unsent) else 0


@alerts.command(short_help="Does a test reach you, through every channel?")
@options.answers
def test(config: str | None, *, as_json: bool) -> int:
    """Send a test through every channel; a run asks for the proof that one of them works."""
    from runner.delivery import try_all  # noqa: PLC0415 - only for this verb

    settings = options.settings(config)
    place = options.place(config)
    if not settings.alerts.channel:
        raise out.Failure(
            "no channel is configured",
            where=str(place.config),
            remedy='write an [[alerts.channel]], such as one of kind = "telegram"',
        )
    who.become_owner(place.state_dir, config=place.config)
    text = (
        f"TEST from {socket.gethostname()} at "
        f"{words.clock(words.at_epoch(time.time(), place.zone))} · alerts of runner arrive here"
    )
    with Journal.open(place.state_dir, zone=place.zone) as journal:
        tried = try_all(journal, settings.alerts.channel, text=text, zone=place.zone)
    rows = [["ok" if one.reached else "fail", one.kind, one.said] for one in tried]
    answer = {
        "channels": [{"kind": one.kind, "reached": one.reached, "said": one.said} for one in tried]
    }
    out.answer(answer, out.columns(rows), as_json=as_json)
    return 0 if all(one.reached for one in tried) else USAGE
