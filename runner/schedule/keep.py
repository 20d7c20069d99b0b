"""One daemon after the other over the same state directory, and a person told where none can be."""

from pathlib import Path

from runner import logs
from runner.journal import Journal, JournalError
from runner.schedule.aloud import Aloud
from runner.schedule.daemon import Daemon, StateGone
from runner.schedule.moments import Times
from runner.schedule.process import Wishes
from runner.settings import Settings
from runner.stopping import StopFlag

log = logs.get(__name__)


def keep_serving(
    config: Path, settings: Settings, *, times: Times, stop: StopFlag, wishes: Wishes
) -> None:
    """Serve until a signal asks for an end, also when the state directory is taken away meanwhile.

    Raises ConfigError, Taken, and JournalError or OSError where the state directory cannot be used;
    then a person has been told, since no daemon that runs could.
    """
    why: StateGone | None = None
    while True:
        try:
            daemon = Daemon(config, times=times, stop=stop, wishes=wishes)
        except (JournalError, OSError) as error:
            aloud = Aloud(Path(settings.state_dir), times)
            aloud.say("NOT WATCHED", error, settings.alerts.channel)
            aloud.finish()
            raise
        try:
            if why is not None:
                log.warning("another state directory", said=str(why))
                _begin_anew(Path(settings.state_dir), str(why))
            daemon.serve()
        except StateGone as gone:
            why = gone
        else:
            return
        finally:
            daemon.close()


def _begin_anew(state_dir: Path, why: str) -> None:
    with Journal.open(state_dir) as journal:
        journal.starts_anew(why)
