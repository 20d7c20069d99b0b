"""The end of a run: outcome and alert in one transaction, then the debt, the report, the guardian.

The order matters. The outcome is written before the debt is closed, so that a crash in between is
told; delivery comes last and apart, so that it delays no restore and changes no outcome.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from alerts.message import Alert, DeliveryError
from preflight.box import Box
from runner import learned, logs, public, recorded
from runner.delivery import flush
from runner.journal import Journal, JournalError
from runner.measure import log_name
from runner.obligation import Obligation
from runner.outcome import Outcome
from runner.recovery import recipe, status
from runner.recovery.account import Scale
from runner.recovery.tell import made_room
from runner.report.alert import alert_body
from runner.report.files import write_result
from runner.report.headline import headline
from runner.result import Draft, Ending, to_json
from runner.settings import Settings
from runner.until import Clock

Json = dict[str, Any]

log = logs.get(__name__)

_LOST = "the state directory {} was removed or renamed while the run was under way"


def close(
    draft: Draft,
    ending: Ending,
    obligation: Obligation | None,
    *,
    journal: Journal,
    settings: Settings,
    clock: Clock,
) -> Json:
    """Write down how the run ended and let go of what is paid; the result object."""
    result = to_json(draft, ending, Scale(clock.now(), clock.wall(), settings.zone))
    result["headline"] = headline(result)
    lost = "" if journal.is_there else _LOST.format(journal.path.parent)
    result["notes"] += [lost] if lost else []
    body = alert_body(result) if lost or _is_told(draft, ending) else None
    result["alert"] = body["text"] if body else None
    with _journal_of(draft, journal, settings, lost) as its:
        _write_down(draft, ending, result, body, journal=its, settings=settings, clock=clock)
    if obligation is not None:
        _let_go(draft, obligation)
    with suppress(OSError):
        write_result(draft.directory, result)
    with suppress(OSError, JournalError):
        public.show_history(Path(settings.state_dir), journal)
    return result


@contextmanager
def _journal_of(draft: Draft, journal: Journal, settings: Settings, lost: str) -> Iterator[Journal]:
    """The journal that people read: a new one where that of this run was taken away under it."""
    try:
        fresh = Journal.open(Path(settings.state_dir), zone=settings.zone) if lost else None
    except JournalError as error:
        log.warning("a new journal cannot be made", error=str(error))
        fresh = None
    if fresh is None:
        yield journal
        return
    with fresh:
        with suppress(JournalError):
            fresh.starts_anew(lost)
            fresh.begin(draft.run, draft.job, draft.trigger, {}, draft.started)
        yield fresh


def remember(draft: Draft, result: Json, settings: Settings, box: Box) -> None:
    """Keep what a later look compares with: the files of a proven run, and what its logs taught.

    Last of all, since files are read for it: nobody waits for that any more.
    """
    state_dir = Path(settings.state_dir)
    logs_ = [draft.directory / log_name(arm) for arm in ("candidate", "baseline")]
    try:
        learned.learn(state_dir, draft.run, logs_)
        if result["outcome"] == Outcome.PROVEN:
            recorded.keep(state_dir, draft.job, draft.checks, draft.verdicts, box, proven=True)
    except OSError as error:
        log.warning("what this run taught could not be kept", error=str(error))


def _is_told(draft: Draft, ending: Ending) -> bool:
    """Each ending but *proven*. A refusal that is looked at again each minute was told already, and
    stands in its incident.
    """
    again = draft.trigger == "retry" and ending.outcome is Outcome.REFUSED
    return ending.outcome is not Outcome.PROVEN and not again


def deliver(journal: Journal, settings: Settings) -> None:
    """Deliver what stands in the outbox; what cannot be delivered stays there with its age.

    Last, what other users may see of it all: a server that hangs is asked patiently.
    """
    state_dir = Path(settings.state_dir)
    with suppress(JournalError, OSError):
        flush(journal, settings.alerts.channel, state_dir)
        if not journal.is_there:
            with Journal.open(state_dir, zone=settings.zone) as fresh:
                flush(fresh, settings.alerts.channel, state_dir)
    with suppress(OSError):
        status.show(state_dir, status.status(state_dir))


def _write_down(
    draft: Draft,
    ending: Ending,
    result: Json,
    body: Json | None,
    *,
    journal: Journal,
    settings: Settings,
    clock: Clock,
) -> None:
    def write() -> None:
        if result["production"]["state"] == "down":
            journal.drain(f"production was not restored after run {draft.run}")
        journal.close(
            draft.run,
            str(ending.outcome),
            ending.code,
            result["headline"],
            result=result,
            alert=body,
            ended=clock.wall(),
        )

    try:
        _with_reserve(Path(settings.state_dir), write)
    except JournalError as error:
        log.warning("the outcome could not be written down", error=str(error))
        result["notes"].append(f"the journal could not be written: {error}")
        if body is not None:
            _tell_without_journal(draft.run, body, settings)


def _with_reserve(state_dir: Path, write: Callable[[], None]) -> None:
    """Write; on a full disk once more with the space that was kept back for this."""
    try:
        write()
    except JournalError as error:
        if not made_room(state_dir, error):
            raise
        log.warning("the journal could not be written; the reserve space is given up for it")
        write()


def _tell_without_journal(run: str, body: Json, settings: Settings) -> None:
    """No outbox: every channel at once. Twice is allowed, never is not."""
    for channel in settings.alerts.channel:
        with suppress(DeliveryError):
            channel.deliver(Alert(key=run, **body))


def _let_go(draft: Draft, obligation: Obligation) -> None:
    """Close the debt when all that was stopped answers; else the guardian goes on where we end."""
    served = draft.served
    if obligation.stopping and served is not None and all(one.state != "down" for one in served):
        try:
            obligation.close(served)
        except OSError as error:
            log.warning("the obligation could not be closed; recovery will", error=str(error))
    if not (obligation.state_dir / recipe.NAME).exists():
        obligation.release()
