"""What the daemon tells when its journal cannot be used: straight over the channels, once, then rarely.

Everything else that it tells stands in the outbox of that journal, where nothing can be written now.
"""

from collections.abc import Sequence
from pathlib import Path

from alerts.channel import WITHIN, Channel
from alerts.message import Alert, DeliveryError
from runner import logs
from runner.journal import JournalBusy
from runner.recovery.account import Scale
from runner.recovery.tell import Apart
from runner.recovery.told import Told
from runner.secrets import redact
from runner.until import Clock

log = logs.get(__name__)

_OURS = "serve:"
_BUSY_S = 60.0
"""A journal that another process holds is let go of again, mostly before anybody need be woken."""


class Aloud:
    """One daemon's voice without a journal. It waits for nobody, and raises nothing."""

    def __init__(self, state_dir: Path, clock: Clock) -> None:
        self._told, self._clock, self._apart = Told(state_dir), clock, Apart()
        self._since: float | None = None
        self.is_lost = any(key.startswith(_OURS) for key in self._told.all())
        """Whether the journal could not be used when it was last tried, by this daemon or before."""

    def say(self, standing: str, error: Exception, channels: Sequence[Channel]) -> None:
        """The journal cannot be used; `standing` is how production is, and news when it changes."""
        key, now = f"{_OURS}{standing}", self._clock.now()
        self.is_lost, self._since = True, now if self._since is None else self._since
        if isinstance(error, JournalBusy) and now - self._since < _BUSY_S:
            return
        if not self._told.due(key, now):
            return
        because = redact(f"the journal cannot be used: {error}")
        alert = Alert(
            key=f"{key}:{now:.0f}",
            first_line=f"{standing} · runner serve cannot write its journal: no job fires",
            text=f"{because}\nwhat production does is told here, until the journal can be written;"
            " on the box: runner status",
            at=Scale.of(self._clock).iso(now) or "",
            kind="incident",
        )
        self._apart.do(lambda: self._deliver(key, now, alert, because, channels))

    def _deliver(
        self, key: str, now: float, alert: Alert, because: str, channels: Sequence[Channel]
    ) -> None:
        took = 0
        for channel in channels:
            try:
                channel.deliver(alert, within=WITHIN)
                took += 1
            except DeliveryError as failed:
                log.warning("nobody was told", channel=channel.kind, error=str(failed))
            except Exception as error:
                log.exception("a fault in a channel", channel=channel.kind, error=str(error))
        if took:
            self._told.note(key, now, because)

    def works_again(self) -> None:
        """The journal was written: the next time that it cannot be is told at once."""
        self.is_lost, self._since = False, None
        self._told.forget(_OURS)

    def finish(self) -> None:
        """Wait until what is being told is told; each channel bounds itself."""
        self._apart.finish()
