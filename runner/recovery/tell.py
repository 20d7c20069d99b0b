"""Writes down how a dead run ended, and tells a person; each step goes on without the one before.

With a journal the alert is an outbox row, written with the outcome in one transaction. Without one
(full disk, read-only, newer, locked) it is sent straight away: twice is allowed, never is not.
"""

from __future__ import annotations

import contextlib
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from alerts import plain
from alerts.deliver import deliver_all
from alerts.message import Alert, DeliveryError
from runner import public
from runner.journal import Journal, JournalError
from runner.journal_file import JournalBusy, JournalFull
from runner.recovery import unit, words
from runner.recovery.account import Scale
from runner.recovery.files import alone, free_reserve
from runner.recovery.recipe import Owed
from runner.recovery.told import Told
from runner.until import Clock

DELIVER_WITHIN_S = 20.0

Json = dict[str, Any]


class Apart:
    """Work that may hang, such as a delivery: it goes on beside the restore, one at a time."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None

    def do(self, work: Callable[[], object]) -> None:
        """Begin, unless the last one is still under way: what is so will be said the next time."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=work, daemon=True, name="telling")
            self._thread.start()

    def finish(self) -> None:
        """Wait for what is under way; all that is done here bounds itself."""
        if self._thread is not None:
            self._thread.join()


def tell(
    state_dir: Path,
    owed: Owed,
    known: Json,
    *,
    production: Json,
    clock: Clock,
    notes: list[str],
    shutdown: bool = False,
) -> str | None:
    """Write down what became of `owed`; the word for what was told, None when nobody could be.

    `known` is what `recovery.state` holds; its `told` is the last word said without a journal.
    """
    scale = Scale.of(clock, owed.timezone)
    alert = words.alert(owed, known, production, notes=notes, scale=scale, shutdown=shutdown)
    result = words.result(owed, known, production, alert, scale)
    news = words.news(production, scale, shutdown=shutdown)
    while True:
        try:
            with Journal.open(state_dir, zone=scale.zone) as journal:
                _write(journal, owed, known, result=result, alert=alert, clock=clock)
                with contextlib.suppress(JournalError, OSError):
                    public.show_history(state_dir, journal)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with it, a person is told
            if made_room(state_dir, error):
                continue
            because = f"the journal cannot be used: {error}"
        else:
            Told(state_dir).forget(f"{owed.run}:")
            return news
        # no outbox; and when the machine goes down there is no time to send anything
        past = known.get("told") == news
        if past or (not shutdown and _past_it(state_dir, owed, alert, because, clock)):
            return news
        return None


def made_room(state_dir: Path, error: Exception) -> bool:
    """Whether a write that failed like this may succeed now: a full disk has got its reserve back.

    What another process holds, or what may not be written, needs no room.
    """
    if isinstance(error, JournalBusy):
        return False
    return free_reserve(state_dir, sure=isinstance(error, JournalFull))


def _write(
    journal: Journal, owed: Owed, known: Json, *, result: Json, alert: Alert, clock: Clock
) -> None:
    whole = result["production"]
    for one in whole["services"]:
        if one["load_s"] is not None and one["state"] != "down":
            journal.note_load(one["name"], one["load_s"])
    if whole["state"] == "down":
        journal.drain(f"production was not restored after run {owed.run}: {words.reasons(whole)}")
    row = journal.run(owed.run)
    if row is None:
        journal.begin(owed.run, owed.job, owed.trigger, known.get("who") or {}, clock.wall())
    if row is None or row.get("outcome") is None:
        journal.close(
            owed.run,
            result["outcome"],
            result["exit_code"],
            result["headline"],
            result=result,
            alert=_body(alert),
            ended=clock.wall(),
        )
        return
    # the run has its outcome; what may be new is only how production stands now
    was_up = (row.get("production") or {}).get("state") in {"serving", "degraded"}
    if (whole["state"] == "down" or not was_up) and row.get("news") != result["news"]:
        journal.post(alert.key, _body(alert), owed.run)


def _body(alert: Alert) -> Json:
    return {
        "first_line": alert.first_line,
        "text": alert.text,
        "at": alert.at,
        "kind": alert.kind,
    }


def post(state_dir: Path, owed: Owed, alert: Alert, *, clock: Clock) -> None:
    """Tell of something on the way, once a key: into the outbox where there is one, and deliver."""
    try:
        with Journal.open(state_dir) as journal:
            journal.post(alert.key, _body(alert), owed.run)
    except Exception as error:  # noqa: BLE001 - as in `tell`
        _past_it(state_dir, owed, alert, f"the journal cannot be used: {error}", clock)
    else:
        deliver(state_dir, owed)


def deliver(state_dir: Path, owed: Owed) -> None:
    """Deliver what is due in the outbox, over the channels that need no installed package.

    For what is left, and for the other channels, there is a unit where systemd has it.
    """
    unsent = True
    try:
        with Journal.open(state_dir) as journal:
            with alone(state_dir) as ours:
                if ours:
                    flush(journal, owed.tell)
            unsent = bool(journal.outbox(unsent=True))
    except Exception:  # noqa: BLE001 - it stands in the outbox; what is owed is paid already
        traceback.print_exc()
    teller = f"runner-tell@{owed.run}.service"
    if unsent and unit.loaded(teller):
        with contextlib.suppress(unit.Refused):
            unit.start(teller, block=False)


def flush(journal: Journal, specs: list[Json]) -> None:
    """Deliver what is due in the outbox, over the channels that need no installed package."""
    deliver_all(
        journal.outbox(unsent=True),
        plain.channels(specs),
        mark_sent=journal.sent,
        mark_failed=journal.failed,
        within=DELIVER_WITHIN_S,
    )


def _past_it(state_dir: Path, owed: Owed, alert: Alert, because: str, clock: Clock) -> bool:
    """Tell without an outbox, unless that was done a short while ago; whether somebody was told."""
    told = Told(state_dir)
    if not told.due(alert.key, clock.now()):
        return True
    if not _send_now(owed, alert, because):
        return False
    told.note(alert.key, clock.now(), because)
    return True


def _send_now(owed: Owed, alert: Alert, because: str) -> bool:
    """Without an outbox: every channel, at once, with the reason why nothing was written down.

    Whether at least one took it.
    """
    text = f"{alert.text}\n{because}"
    told = Alert(alert.key, alert.first_line, text, at=alert.at, kind=alert.kind)
    took = 0
    for spec in owed.tell:
        try:
            for channel in plain.channels([spec]):
                channel.deliver(told, within=DELIVER_WITHIN_S)
                took += 1
        except DeliveryError:
            continue
        except Exception:  # noqa: BLE001 - a spec that nobody can read must not silence the others
            traceback.print_exc()
    return took > 0
