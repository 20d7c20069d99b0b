"""Delivers what stands in the outbox, apart from any run. Knows the journal and the channels.

Delivery never delays a restore and never changes an outcome: it begins when these are done.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from pathlib import Path

from alerts.channel import Channel
from alerts.deliver import deliver_all
from alerts.message import Alert, DeliveryError, stamped
from runner import words
from runner.journal import Journal, OutboxRow
from runner.recovery.files import alone
from runner.recovery.told import Told

WITHIN_S = 20.0


@dataclass(frozen=True, slots=True)
class Flushed:
    """What one pass over the outbox did: how many alerts, and what kept the others."""

    sent: int = 0
    failed: int = 0
    unsent: int = 0
    errors: tuple[str, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Tried:
    """One channel, tried by hand."""

    kind: str
    reached: bool
    said: str
    far: bool


def flush(
    journal: Journal,
    channels: Sequence[Channel],
    state_dir: Path,
    *,
    at_once: bool = False,
    now: Callable[[], float] = time.time,
) -> Flushed:
    """Deliver the alerts that are due, or all of them if `at_once`. Raises JournalError.

    Where another process is at it already, this one leaves it the work.
    """
    told, at = Told(state_dir), time.clock_gettime(time.CLOCK_BOOTTIME)
    with alone(state_dir) as ours:
        if not ours:
            unsent = len(journal.outbox(unsent=True))
            return Flushed(unsent=unsent, errors=("another process is delivering",))
        # On a full disk nobody can write down that a row was told: it is remembered elsewhere.
        rows = {row.id: row for row in journal.outbox(unsent=True) if told.due(_mark(row), at)}
        due = [replace(row, next_at=0.0) for row in rows.values()] if at_once else rows.values()
        done = deliver_all(
            due,
            channels,
            mark_sent=journal.sent,
            mark_failed=journal.failed,
            now=now,
            within=WITHIN_S,
        )
        for row_id in done.forgotten:
            told.note(_mark(rows[row_id]), at, "; ".join(done.unmarked))
        for row_id in done.sent:
            told.forget(_mark(rows[row_id]))
        left = journal.outbox(unsent=True)
    errors = [row.last_error for row in left if row.last_error] + done.unmarked
    return Flushed(len(done.sent), len(done.failed), len(left), tuple(dict.fromkeys(errors)))


def _mark(row: OutboxRow) -> str:
    """What a row is called where it cannot be marked in the journal."""
    return f"outbox:{row.id}:{row.key}"


def try_all(
    journal: Journal, channels: Sequence[Channel], *, text: str, zone: tzinfo | None = None
) -> list[Tried]:
    """Send a test to every channel; one that arrives is remembered as the proof of the path."""
    at = words.at_epoch(time.time(), zone)
    key = f"test:{at}"
    alert = stamped(Alert(key=key, first_line=text, at=at, kind="test"), 0)
    tried = [_tried(channel, alert) for channel in channels]
    reached = [one for one in tried if one.reached]
    far_wanted = any(one.far for one in tried)
    if any(one.far or not far_wanted for one in reached):
        journal.post(key, {"first_line": text, "text": text, "at": at, "kind": "test"})
        row = next(row for row in journal.outbox(unsent=True) if row.key == key)
        journal.sent(row.id, "; ".join(f"{one.kind}: {one.said}" for one in reached))
    return tried


def _tried(channel: Channel, alert: Alert) -> Tried:
    try:
        said = channel.deliver(alert, within=WITHIN_S)
    except DeliveryError as error:
        return Tried(channel.kind, reached=False, said=str(error), far=channel.far)
    return Tried(channel.kind, reached=True, said=said, far=channel.far)


def shown(row: OutboxRow, zone: tzinfo | None = None) -> dict[str, object]:
    """A row of the outbox as plain JSON, with its times in `zone`."""
    return {
        "id": row.id,
        "key": row.key,
        "run": row.run,
        "kind": row.body.get("kind"),
        "first_line": row.body.get("first_line") or row.body.get("text"),
        "created": words.at_epoch(row.created, zone),
        "tries": row.tries,
        "next": words.at_epoch(row.next_at, zone) if row.next_at and not row.sent_at else None,
        "error": row.last_error,
        "sent": words.at_epoch(row.sent_at, zone) if row.sent_at else None,
        "by": row.note,
    }
