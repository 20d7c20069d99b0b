"""The rules of delivery: at least once, never for ever in a loop, and every failure written down."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from alerts.deliver import COPIES, PACE, SLOW, SURPLUS, Delivered, deliver_all
from alerts.message import Alert, DeliveryError
from alerts.telegram import Telegram
from tests.alerts.bot_api import BotApi
from tests.alerts.conftest import FakeRow


@dataclass
class FakeChannel:
    """Takes alerts, or fails with the given errors first, one a message."""

    kind: str = "telegram"
    on: tuple[str, ...] | None = None
    far: bool = True
    errors: list[Exception] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    asked: int = 0

    def deliver(self, alert: Alert, *, within: float) -> str:
        """Take it, or raise what is next."""
        self.asked += 1
        assert within > 0
        if self.errors:
            raise self.errors.pop(0)
        self.texts.append(alert.text)
        return f"message {len(self.texts)}"


class Outbox:
    """Rows in memory, marked like the journal marks them, and a clock that a test moves."""

    def __init__(self, *rows: FakeRow) -> None:
        self.rows = {row.id: row for row in rows}
        self.notes: dict[int, str] = {}
        self.now = 1000.0

    def sent(self, row_id: int, note: str) -> None:
        """Mark it delivered."""
        row = self.rows[row_id]
        self.rows[row_id] = replace(row, sent_at=self.now, tries=row.tries + 1)
        self.notes[row_id] = note

    def failed(self, row_id: int, error: str, next_at: float) -> None:
        """Mark it as still to be told."""
        row = self.rows[row_id]
        self.rows[row_id] = replace(row, tries=row.tries + 1, last_error=error, next_at=next_at)

    def deliver(self, *channels: Any, within: float = 5.0) -> Delivered:
        """One pass, as the runner makes it."""
        return deliver_all(
            self.rows.values(),
            channels,
            mark_sent=self.sent,
            mark_failed=self.failed,
            now=lambda: self.now,
            within=within,
        )

    def row(self, row_id: int = 1) -> FakeRow:
        """The row as it is now."""
        return self.rows[row_id]


def rows(count: int) -> list[FakeRow]:
    """So many rows, oldest first, each with a text of its own."""
    return [
        FakeRow(id=n, key=f"run-{n}", body={"text": f"alert {n}", "kind": "refused"})
        for n in range(1, count + 1)
    ]


def test_a_delivered_alert_is_marked_and_not_sent_again() -> None:
    """One pass delivers, the next has nothing to do."""
    outbox, channel = Outbox(FakeRow()), FakeChannel()
    assert outbox.deliver(channel).sent == [1]
    assert outbox.notes == {1: "telegram: message 1"}
    assert outbox.deliver(channel) == Delivered()
    assert len(channel.texts) == 1


def test_nothing_is_marked_before_a_channel_took_it() -> None:
    """A crash between sending and marking sends twice; marking first would lose the alert."""
    outbox = Outbox(FakeRow())

    crash: Any = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        outbox.deliver(FakeChannel(errors=[crash]))
    assert outbox.row() == FakeRow()


def test_the_pace_slows_down_and_never_ends() -> None:
    """Each failure sets the time of the next try; nothing is tried before that time."""
    outbox, channel = Outbox(FakeRow()), FakeChannel()
    for delay in (*PACE, PACE[-1]):
        channel.errors = [DeliveryError("no connection")]
        assert outbox.deliver(channel).failed == [1]
        assert outbox.row().next_at == outbox.now + delay
        outbox.now += delay - 1
        assert outbox.deliver(channel) == Delivered()
        outbox.now += 1
    assert outbox.deliver(channel).sent == [1]
    assert channel.texts[0].endswith("· try 7]")


def test_a_wait_that_telegram_asks_for_is_kept() -> None:
    """The next try is never before the time that Telegram named, however long, and nothing sleeps."""
    outbox, channel = Outbox(FakeRow()), FakeChannel()
    channel.errors = [DeliveryError("flood", retry_after=12966)]
    outbox.deliver(channel)
    assert outbox.row().next_at == outbox.now + 12966


@pytest.mark.parametrize(
    ("asked", "kept"),
    [
        (float("nan"), PACE[0]),
        (float("inf"), PACE[0]),
        (1e9, SURPLUS),
        (0.0, 1.0),
        (-30.0, 1.0),
    ],
)
def test_a_wait_that_nobody_can_mean_is_not_kept(asked: float, kept: float) -> None:
    """A captive portal may answer anything; an alert is never put off for years."""
    outbox, channel = Outbox(FakeRow()), FakeChannel()
    channel.errors = [DeliveryError("flood", retry_after=asked)]
    outbox.deliver(channel)
    assert outbox.row().next_at == outbox.now + kept


def test_a_clock_that_was_set_back_does_not_put_an_alert_off() -> None:
    """The battery said 2031 when the first try failed; now it is 2026 again."""
    outbox, channel = Outbox(FakeRow()), FakeChannel()
    outbox.now = 5 * 365 * 86400.0
    channel.errors = [DeliveryError("no connection")]
    outbox.deliver(channel)
    outbox.now = 1000.0
    assert outbox.deliver(channel).sent == [1]


def test_the_longest_wait_of_ours_is_kept() -> None:
    """A surplus copy waits a day, and a day is what the clock may have been set back by."""
    outbox, channel = Outbox(FakeRow(next_at=1000.0 + SURPLUS)), FakeChannel()
    assert outbox.deliver(channel) == Delivered()


def test_what_only_a_person_can_mend_is_tried_slowly() -> None:
    """A blocked bot is no reason to ask every minute, nor to lose the alert."""
    outbox, channel = Outbox(FakeRow()), FakeChannel()
    channel.errors = [DeliveryError("blocked", permanent=True)]
    outbox.deliver(channel)
    assert outbox.row().next_at == outbox.now + SLOW
    assert outbox.row().last_error == "telegram: blocked"


def test_a_hanging_server_sends_few_copies_and_loses_none(
    telegram: Telegram, bot_api: BotApi
) -> None:
    """A server that takes messages and never says so: three copies with one id in the first day."""
    bot_api.reply = "hang"
    outbox = Outbox(FakeRow())
    for _ in range(200):
        outbox.deliver(telegram, within=1.0)
        outbox.now += 300
    assert outbox.now > 50_000
    assert len(bot_api.texts) == COPIES
    ident = bot_api.texts[0][-5:-1]
    assert [text.splitlines()[-1] for text in bot_api.texts] == [
        f"[{ident}]",
        f"[{ident} · try 2]",
        f"[{ident} · try 3]",
    ]
    assert outbox.row().sent_at is None
    assert "may have arrived, 3 of 3" in str(outbox.row().last_error)
    bot_api.reply = "ok"
    outbox.now += SURPLUS
    assert outbox.deliver(telegram).sent == [1]


def test_tries_without_a_connection_use_up_no_copies() -> None:
    """A box that boots without network keeps its full count of tries for when the network is there."""
    outbox, channel = Outbox(FakeRow()), FakeChannel()
    for error in [DeliveryError("no connection")] * 10 + [DeliveryError("hung", uncertain=True)]:
        channel.errors = [error]
        outbox.now = outbox.row().next_at
        outbox.deliver(channel)
    assert outbox.row().next_at == outbox.now + PACE[-1]
    assert "may have arrived, 1 of 3" in str(outbox.row().last_error)
    channel.errors = [DeliveryError("no connection")]
    outbox.now = outbox.row().next_at
    outbox.deliver(channel)
    assert "may have arrived, 1 of 3" in str(outbox.row().last_error)


def test_one_channel_is_enough_and_the_failure_of_the_other_is_kept() -> None:
    """Where the mailer took it while Telegram was down, it is told, and the note says both."""
    outbox = Outbox(FakeRow())
    down, mail = FakeChannel(errors=[DeliveryError("no connection")]), FakeChannel(kind="command")
    assert outbox.deliver(down, mail).sent == [1]
    assert outbox.notes[1] == "command: message 1; telegram: no connection"


def test_a_file_on_the_box_does_not_stand_in_for_the_phone() -> None:
    """With Telegram configured, a line in a local file reaches nobody who sleeps: it is tried on."""
    outbox = Outbox(FakeRow())
    phone = FakeChannel(errors=[DeliveryError("no connection")])
    file = FakeChannel(kind="file", far=False)
    assert outbox.deliver(phone, file).failed == [1]
    outbox.now = outbox.row().next_at
    assert outbox.deliver(phone, file).sent == [1]
    assert len(file.texts) == 1, "the file has it from the first try"


def test_a_file_alone_is_told() -> None:
    """A box without Telegram is served by what it has."""
    outbox, file = Outbox(FakeRow()), FakeChannel(kind="file", far=False)
    assert outbox.deliver(file).sent == [1]


def test_a_near_channel_alone_is_tried_again() -> None:
    """With no far channel a file on a full disk is tried until it took the alert."""
    file = FakeChannel(kind="file", far=False, errors=[DeliveryError("No space left on device")])
    outbox = Outbox(FakeRow())
    assert outbox.deliver(file).failed == [1]
    outbox.now = outbox.row().next_at
    assert outbox.deliver(file).sent == [1]


def test_the_row_may_hold_the_first_line_apart() -> None:
    """A body of first line and rest, and one of the whole text, are sent alike."""
    bodies = ({"first_line": "DOWN", "text": "why"}, {"text": "DOWN\nwhy"}, {"first_line": "DOWN"})
    outbox, channel = Outbox(), FakeChannel()
    for number, body in enumerate(bodies):
        outbox.rows[number] = FakeRow(id=number, body=body)
        outbox.deliver(channel)
    assert [text.splitlines()[:-1] for text in channel.texts] == [["DOWN", "why"]] * 2 + [["DOWN"]]


def test_on_chooses_the_channel() -> None:
    """A channel gets the kinds that its `on` names; a test is told by all."""
    loud, quiet = FakeChannel(), FakeChannel(kind="command", on=("production down",))
    outbox = Outbox(
        FakeRow(id=1, body={"text": "a", "kind": "refused"}),
        FakeRow(id=2, key="2", body={"text": "b", "kind": "test"}),
    )
    assert outbox.deliver(loud, quiet).sent == [1, 2]
    assert [text[0] for text in loud.texts] == ["a", "b"]
    assert [text[0] for text in quiet.texts] == ["b"]


def test_an_alert_that_no_channel_asks_for_says_so() -> None:
    """Silence by the person's own `on` is written down as such."""
    outbox = Outbox(FakeRow(body={"text": "a", "kind": "skipped"}))
    assert outbox.deliver(FakeChannel(on=("refused",))).sent == [1]
    assert outbox.notes[1] == "told nobody: no channel's `on` names 'skipped'"


def test_a_kind_that_no_config_can_name_is_told_to_all() -> None:
    """An alert of an unknown kind is never filtered away."""
    channel = FakeChannel(on=("refused",))
    Outbox(FakeRow(body={"text": "a", "kind": "something new"})).deliver(channel)
    assert len(channel.texts) == 1


def test_without_channels_the_alert_stays_in_plain_sight() -> None:
    """Nothing is marked told where there is nobody to tell it to."""
    outbox = Outbox(FakeRow())
    assert outbox.deliver().failed == [1]
    assert outbox.row().last_error == "no channel is configured"


def test_after_an_outage_the_alerts_come_together() -> None:
    """Twelve alerts become two messages, the newest first, and every row is marked."""
    outbox, channel = Outbox(*rows(12)), FakeChannel()
    assert sorted(outbox.deliver(channel).sent) == list(range(1, 13))
    assert [text.partition("\n")[0] for text in channel.texts] == ["alert 12", "alert 2"]
    assert "9 earlier, newest first:" in channel.texts[0]
    assert outbox.notes[5] == "telegram: message 1 with 9 others"


def test_a_channel_that_fails_is_not_asked_again_in_the_same_pass() -> None:
    """A dead network costs one time limit, not one for each alert, and the rows learn the reason."""
    outbox = Outbox(*rows(2))
    channel = FakeChannel(errors=[DeliveryError("no answer", uncertain=True)])
    assert outbox.deliver(channel).failed == [1, 2]
    assert channel.asked == 1
    assert outbox.row(1).last_error == "telegram: no answer; may have arrived, 1 of 3"
    assert outbox.row(2).last_error == "telegram: no answer", "it was never sent"


def test_a_message_that_is_refused_does_not_hold_up_the_next() -> None:
    """A 400 is about one message; the next one is sent all the same."""
    outbox = Outbox(*rows(2))
    channel = FakeChannel(errors=[DeliveryError("bad request", permanent=True)])
    outbox.deliver(channel)
    assert outbox.row(2).sent_at is not None


def test_a_bug_in_a_channel_does_not_silence_the_others() -> None:
    """Any exception of a channel is a failed delivery, told by its name."""
    outbox = Outbox(FakeRow())
    broken, good = FakeChannel(errors=[ZeroDivisionError("division")]), FakeChannel(kind="command")
    assert outbox.deliver(broken, good).sent == [1]
    assert "telegram: ZeroDivisionError: division" in outbox.notes[1]


def test_a_full_disk_does_not_keep_alerts_back() -> None:
    """Where the result cannot be written down, the other alerts are delivered and it is said."""
    outbox, channel = Outbox(*rows(2)), FakeChannel()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    done = deliver_all(outbox.rows.values(), [channel], mark_sent=full, mark_failed=outbox.failed)
    assert len(channel.texts) == 2
    assert done.sent == []
    assert done.forgotten == [1, 2]
    assert len(done.unmarked) == 2
    assert "No space left" in done.unmarked[0]


def test_the_pace_is_that_of_the_channel_that_may_still_take_it() -> None:
    """One bot is blocked, the other had no connection: a person can be told within seconds."""
    outbox = Outbox(FakeRow())
    blocked = FakeChannel(errors=[DeliveryError("blocked", permanent=True)])
    offline = FakeChannel(kind="command", errors=[DeliveryError("no connection")])
    outbox.deliver(blocked, offline)
    assert outbox.row().next_at == outbox.now + PACE[0]


def test_a_file_on_the_box_does_not_set_the_pace() -> None:
    """The phone decides: a full disk would ask a blocked bot every few seconds."""
    outbox = Outbox(FakeRow())
    blocked = FakeChannel(errors=[DeliveryError("blocked", permanent=True)])
    file = FakeChannel(kind="file", far=False, errors=[DeliveryError("the disk is full")])
    outbox.deliver(blocked, file)
    assert outbox.row().next_at == outbox.now + SLOW
