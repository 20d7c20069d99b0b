"""`runner serve` on a clock that a test can set: a program, started as a child.

    shifted.py CONFIG OFFSET_FILE

The file holds the seconds by which the wall clock is wrong; it is read at each look, so that
writing to it is what setting the clock is.
"""

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import apscheduler.schedulers.base

from runner.schedule.keep import keep_serving
from runner.schedule.moments import Moment, RealTimes
from runner.schedule.process import Taken, Wishes
from runner.settings import load_settings
from runner.stopping import StopFlag

OFFSET = Path(sys.argv[2])


def offset() -> float:
    """By how many seconds the clock is wrong now."""
    return float(OFFSET.read_text() or 0)


class ShiftedTimes(RealTimes):
    """The machine's clocks, the wall clock wrong by as much as the file says."""

    def wall(self) -> datetime:
        """The wrong date and time."""
        return super().wall() + timedelta(seconds=offset())

    def moment(self) -> Moment:
        """All clocks at once, one of them wrong."""
        true = super().moment()
        return Moment(true.wall + offset(), true.boot, true.steady, true.boot_id)


class ShiftedDatetime(datetime):
    """What APScheduler asks for the time."""

    @classmethod
    def now(cls, tz=None):
        """The wrong time."""
        return datetime.now(tz or UTC) + timedelta(seconds=offset())


def main() -> int:
    """Serve until TERM."""
    apscheduler.schedulers.base.datetime = ShiftedDatetime
    stop, wishes = StopFlag(), Wishes()
    stop.install()
    wishes.install()
    config = Path(sys.argv[1])
    try:
        keep_serving(config, load_settings(config), times=ShiftedTimes(), stop=stop, wishes=wishes)
    except Taken as taken:
        sys.stderr.write(f"{taken}\n")
        return 4
    return 0


if __name__ == "__main__":
    sys.exit(main())
