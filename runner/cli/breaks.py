"""`runner release` and `runner undrain`: a person takes a decision over from the runner."""

import click

from runner import who
from runner.cli import options, out
from runner.journal import Journal
from runner.outcome import Outcome, exit_code
from runner.recovery.lock import Busy
from runner.recovery.recover import release as take_over


@click.command()
@click.option("--reason", required=True, help="Why; it stands in the journal.")
@options.answers
def release(reason: str, config: str | None, *, as_json: bool) -> int:
    """Take over what a run owes production: nothing of ours will start it any more."""
    place = options.place(config)
    who.become_owner(place.state_dir)
    try:
        released = take_over(place.state_dir, reason)
    except Busy as busy:
        raise out.Failure(
            f"{busy.holder} is alive, and restores by itself",
            code=exit_code(Outcome.SKIPPED),
            where=str(place.state_dir),
            remedy="runner cancel",
        ) from busy
    said = (
        "released: bringing production back is yours now; `runner status` shows how it stands"
        if released
        else "nothing is owed; there was nothing to release"
    )
    out.answer({"released": released, "reason": reason}, said, as_json=as_json)
    return 0


@click.command()
@click.option("--reason", required=True, help="What was done; it stands in the journal.")
@options.answers
def undrain(reason: str, config: str | None, *, as_json: bool) -> int:
    """Let jobs fire again on a box that was drained, as after a failed restore."""
    place = options.place(config)
    who.become_owner(place.state_dir)
    with Journal.open(place.state_dir, zone=place.zone) as journal:
        before = journal.drained()
        if before is not None:
            journal.undrain()
            journal.event("box", "undrained", reason=reason, was=before["reason"])
    said = (
        f"jobs fire again; it was drained since {before['since']}: {before['reason']}"
        if before
        else "the box was not drained"
    )
    out.answer(
        {"undrained": before is not None, "reason": reason, "was": before}, said, as_json=as_json
    )
    return 0
