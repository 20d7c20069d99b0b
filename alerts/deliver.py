"""The rules of delivery over an outbox that is handed in. Standard library only; knows no journal.

At least once: a row is marked sent only after a channel took it, and a crash in between sends it
again under the same id. Nothing here waits for a later try: when that is due is written to the row.
"""

import math
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from alerts.message import KINDS, Alert, DeliveryError, digest, scrub, stamped

PACE: Final = (10.0, 60.0, 300.0, 900.0, 3600.0)
"""Seconds to the next try after the first, second, … failure; the last one stays."""
SLOW: Final = 3600.0  # what only a person can mend, for example a bot that was blocked
SURPLUS: Final = 24 * 3600.0  # after COPIES that may all have arrived: not lost, and no flood
COPIES: Final = 3
DIGEST_FROM: Final = 3
DIGEST_MOST: Final = 10  # so that each still has its line and its id in one message

_MAYBE = "may have arrived, {} of {}"
_COUNTED = re.compile(r"may have arrived, (\d+) of")


class Row(Protocol):
    """One row of the outbox; times are seconds since 1970, `body` holds an alert as JSON."""

    @property
    def id(self) -> int: ...
    @property
    def key(self) -> str: ...
    @property
    def created(self) -> float: ...
    @property
    def body(self) -> Mapping[str, Any]: ...
    @property
    def tries(self) -> int: ...
    @property
    def next_at(self) -> float: ...
    @property
    def last_error(self) -> str | None: ...
    @property
    def sent_at(self) -> float | None: ...


class Teller(Protocol):
    """A channel, configured or plain; see alerts.channel.Channel for the contract."""

    @property
    def kind(self) -> str: ...
    @property
    def on(self) -> tuple[str, ...] | None: ...
    @property
    def far(self) -> bool: ...
    def deliver(self, alert: Alert, *, within: float) -> str: ...


@dataclass(slots=True)
class Delivered:
    """What came of one pass: ids of rows, and what could not be written down about them.

    `forgotten` are those that were told, and of which that could not be written down.
    """

    sent: list[int] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)
    forgotten: list[int] = field(default_factory=list)
    unmarked: list[str] = field(default_factory=list)


def deliver_all(
    rows: Iterable[Row],
    channels: Sequence[Teller],
    *,
    mark_sent: Callable[[int, str], object],
    mark_failed: Callable[[int, str, float], object],
    now: Callable[[], float] = time.time,
    within: float = 20.0,
) -> Delivered:
    """Deliver the rows that are due, each to every channel that asks for its kind.

    `mark_sent(id, note)` and `mark_failed(id, error, next_at)` write the result down; where one
    of them raises, the other rows are delivered all the same. `within` bounds one delivery.
    """
    done = Delivered()
    asking = _Pass(channels, within)
    for batch in _batches([row for row in rows if row.sent_at is None and is_due(row, now())]):
        asking.tell(batch)
        for row in batch:
            note, delay = asking.result(row)
            try:
                if delay is None:
                    mark_sent(row.id, note)
                    done.sent.append(row.id)
                else:
                    mark_failed(row.id, note, now() + delay)
                    done.failed.append(row.id)
            except Exception as error:  # noqa: BLE001 - a full disk must not keep the other rows back
                done.unmarked.append(scrub(f"alert {row.key}: {type(error).__name__}: {error}"))
                if delay is None:
                    done.forgotten.append(row.id)
    return done


def is_due(row: Row, now: float) -> bool:
    """Whether a row is to be tried. No try is put off for longer than SURPLUS: what seems to be was
    put off by a clock that has been set back since.
    """
    return not now < row.next_at <= now + SURPLUS


def alert_of(row: Row) -> Alert:
    """The alert that a row holds: first_line, text (the rest or the whole), at and kind."""
    text = str(row.body.get("text") or "")
    first = str(row.body.get("first_line") or text.partition("\n")[0] or row.key)
    at = row.body.get("at") or datetime.fromtimestamp(row.created, UTC).isoformat(
        timespec="seconds"
    )
    return Alert(
        key=row.key,
        first_line=first,
        text=text,
        at=str(at),
        kind=str(row.body.get("kind") or row.body.get("outcome") or "incident"),
    )


def _batches(due: list[Row]) -> list[list[Row]]:
    """One row a message; after an outage the newest together first, since they tell what is now."""
    if len(due) < DIGEST_FROM:
        return [[row] for row in due]
    ends = range(len(due), 0, -DIGEST_MOST)
    return [due[max(0, end - DIGEST_MOST) : end] for end in ends]


class _Pass:
    """One round over the channels. A channel that fails is not asked again in the same round."""

    def __init__(self, channels: Sequence[Teller], within: float) -> None:
        self._channels = channels
        self._within = within
        self._failing: dict[int, DeliveryError] = {}
        self._took: dict[int, list[tuple[Teller, str]]] = defaultdict(list)
        self._refused: dict[int, list[tuple[Teller, DeliveryError]]] = defaultdict(list)

    def tell(self, batch: Sequence[Row]) -> None:
        """Send these rows, as one message, to each channel that asks for them."""
        for place, channel in enumerate(self._channels):
            rows = [row for row in batch if self._asked(channel, row)]
            if not rows:
                continue
            note, failed = "", self._failing.get(place)
            if failed is None:
                note, failed = self._send(channel, rows)
            for row in rows:
                if failed is None:
                    self._took[row.id].append((channel, note))
                else:
                    self._refused[row.id].append((channel, failed))
            if failed is not None and not failed.permanent:
                # For the rows to come it is not asked, so nothing of them can have arrived.
                self._failing[place] = DeliveryError(str(failed), retry_after=failed.retry_after)

    def result(self, row: Row) -> tuple[str, float | None]:
        """What to write down about a row, and the seconds to its next try, None if it is told."""
        took, refused = self._took[row.id], self._refused[row.id]
        if any(channel.far or not self._is_told_far(row) for channel, _ in took):
            said = [f"{channel.kind}: {note}" for channel, note in took]
            return "; ".join(
                said + [f"{channel.kind}: {error}" for channel, error in refused]
            ), None
        if refused:
            return _later(row, refused)
        if not self._channels:
            return "no channel is configured", SLOW
        return f"told nobody: no channel's `on` names {alert_of(row).kind!r}", None

    def _send(self, channel: Teller, rows: Sequence[Row]) -> tuple[str, DeliveryError | None]:
        alerts = [(alert_of(row), row.tries) for row in rows]
        alert = digest(alerts) if len(alerts) > 1 else stamped(*alerts[0])
        together = f" with {len(rows) - 1} others" if len(rows) > 1 else ""
        try:
            return channel.deliver(alert, within=self._within) + together, None
        except DeliveryError as error:
            return "", error
        except Exception as error:  # noqa: BLE001 - a bug in one channel must not silence the others
            return "", DeliveryError(scrub(f"{type(error).__name__}: {error}"))

    def _asked(self, channel: Teller, row: Row) -> bool:
        """A near channel is told with the first try: a file need not grow while Telegram is down."""
        if not _wants(channel, row):
            return False
        return channel.far or row.tries == 0 or not self._is_told_far(row)

    def _is_told_far(self, row: Row) -> bool:
        return any(channel.far and _wants(channel, row) for channel in self._channels)


def _wants(channel: Teller, row: Row) -> bool:
    kind = alert_of(row).kind
    return channel.on is None or kind in channel.on or kind == "test" or kind not in KINDS


def _later(row: Row, refused: Sequence[tuple[Teller, DeliveryError]]) -> tuple[str, float]:
    """What went wrong, and in how many seconds to try again.

    The row has no column of its own for copies that may have arrived, so the text counts them.
    """
    errors = [error for channel, error in refused if channel.far] or [error for _, error in refused]
    counted = _COUNTED.search(row.last_error or "")
    uncertain = any(error.uncertain for error in errors)
    maybe = (int(counted[1]) if counted else 0) + uncertain
    said = "; ".join(f"{channel.kind}: {error}" for channel, error in refused)
    if maybe:
        said += f"; {_MAYBE.format(maybe, COPIES)}"
    if waits := [error.retry_after for error in errors if error.retry_after is not None]:
        return said, _sane(max(waits))
    if uncertain and maybe >= COPIES:
        return said, SURPLUS
    if all(error.permanent for error in errors):
        return said, SLOW
    return said, PACE[min(row.tries, len(PACE) - 1)]


def _sane(wait: float) -> float:
    """A wait that the far side asked for: whatever stands in between may ask for years, or for NaN."""
    return min(max(wait, 1.0), SURPLUS) if math.isfinite(wait) else PACE[0]
