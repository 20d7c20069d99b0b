"""`runner run` and `cancel` for whoever is not the owner, on a box where runs are systemd's units.

Members of a group may start and stop these units and nothing else, so all that happens here is a
start, a look at public files, and a stop. Root does the same: the unit sees what only it may see,
and the run outlives the terminal.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from jobs.names import bad_name
from runner import public, who, words
from runner.cli import out
from runner.outcome import Outcome, exit_code
from runner.recovery import unit, world
from runner.units.place import MEMBERS
from runner.until import Hopeless, RealClock, TimedOut, until

BEGINS_WITHIN_S = 60.0
ENDS_WITHIN_S = 7 * 86400.0
RECOVERS_WITHIN_S = 3600.0
_EVERY_S = 0.2
_ASK_WITHIN_S = 10.0

Json = dict[str, Any]


def unit_of(job: str, state_dir: Path) -> str | None:
    """The unit that runs this job for us; None where this process may, or must, run it itself."""
    owner = who.owner_of(state_dir)
    if owner in {None, os.geteuid()} or bad_name(job):
        return None
    name = f"runner-run@{job}.service"
    return name if unit.loaded(name) else None


def run(job: str, name: str, state_dir: Path, *, as_json: bool) -> int:
    """Start the run, follow its story, and end with its exit code. Raises Failure."""
    if _is_active(name):
        raise out.Failure(
            f"{job} is running already",
            code=exit_code(Outcome.SKIPPED),
            where=name,
            remedy="see `runner status`; it ends by itself, or with `runner cancel`",
        )
    before = public.job(state_dir, job).get("invocation")
    known = {run.get("run") for run in public.history(state_dir) or []}
    try:
        unit.start(name, block=False)
    except unit.Refused as error:
        raise _not_let(name, state_dir, error) from error
    story = _begun(job, name, state_dir, before)
    following = _Following(job, name, state_dir, story, print_it=not as_json)
    ended = following.to_the_end(lambda: _closed_by_recovery(job, state_dir, known))
    result = ended.get("result")
    if result is None:
        raise out.Failure(
            str(ended.get("error") or "it ended without a result; see `runner status`"),
            code=int(ended.get("exit_code") or exit_code(Outcome.BUG)),
            where=name,
        )
    if as_json:
        out.answer(result, "", as_json=True)
    return int(result["exit_code"])


def cancel(state_dir: Path, run_id: str | None) -> Json | None:
    """End the run that goes on, in order; what became of it, None where none is a unit.

    Raises Failure where systemd does not let us.
    """
    names = [name for name in _active_runs() if run_id is None or f"-{_job_of(name)}-" in run_id]
    if not names:
        return None
    name = names[0]
    _ask_to_stop(name, state_dir)
    try:
        until(
            lambda: None if _is_active(name) else True,
            within=RECOVERS_WITHIN_S,
            clock=RealClock(),
            every=_EVERY_S,
        )
    except TimedOut as error:
        raise out.Failure("it has not ended within an hour", where=name) from error
    ended = public.job(state_dir, _job_of(name)).get("ended") or {}
    result: Json | None = ended.get("result")
    return result


class _Following:
    """The story of one run, told on as it is written."""

    def __init__(
        self, job: str, name: str, state_dir: Path, story: Json, *, print_it: bool
    ) -> None:
        self._job, self._name, self._state_dir = job, name, state_dir
        self._invocation = story["invocation"]
        self._lines = _lines(Path(str(story["story"])))
        self._print = print_it
        self._cancelled = False

    def to_the_end(self, recovered: Callable[[], Json | None]) -> Json:
        """What was shown of its end; a run that was killed is awaited until it was recovered."""
        while True:
            try:
                return until(
                    self._look,
                    within=ENDS_WITHIN_S,
                    clock=RealClock(),
                    every=_EVERY_S,
                    hopeless=self._gone,
                )
            except KeyboardInterrupt:
                self._interrupted()
            except Hopeless:
                return self._look() or self._after_its_death(recovered)

    def _look(self) -> Json | None:
        said = public.job(self._state_dir, self._job)
        if self._print:
            out.say(*next(self._lines))
        if said.get("invocation") != self._invocation:
            return {"error": "it has ended, and runs again"}
        ended: Json | None = said.get("ended")
        if ended is not None and self._print:
            out.say(*next(self._lines))
        return ended

    def _gone(self) -> str | None:
        return None if _is_active(self._name) else "its unit is over"

    def _after_its_death(self, recovered: Callable[[], Json | None]) -> Json:
        if self._print:
            out.say("the run died; production is being brought back")
        try:
            result = until(recovered, within=RECOVERS_WITHIN_S, clock=RealClock(), every=_EVERY_S)
        except TimedOut:
            return {"error": "the run died, and nobody has told since how production is"}
        if self._print:
            out.say(words.shown(result.get("headline") or ""))
        return {"result": result}

    def _interrupted(self) -> None:
        """The first time it is a wish to cancel; the second only ends the watching."""
        if self._cancelled:
            raise KeyboardInterrupt
        self._cancelled = True
        _ask_to_stop(self._name, self._state_dir)
        out.warn("cancelling; production comes back first (again to stop watching)")


def _begun(job: str, name: str, state_dir: Path, before: object) -> Json:
    """What is shown of the start that was just asked for. Raises Failure."""

    def shown() -> Json | None:
        said = public.job(state_dir, job)
        return said if said.get("invocation") not in {None, before} else None

    try:
        return until(
            shown,
            within=BEGINS_WITHIN_S,
            clock=RealClock(),
            every=_EVERY_S,
            hopeless=lambda: None if _is_active(name) or shown() else "it ended at once",
        )
    except (Hopeless, TimedOut) as error:
        raise out.Failure(
            f"it did not begin: {error}", where=name, remedy=f"journalctl --unit {name}"
        ) from error


def _closed_by_recovery(job: str, state_dir: Path, known: set[object]) -> Json | None:
    for run in public.history(state_dir) or []:
        if run.get("job") == job and run.get("run") not in known and run.get("outcome"):
            return run
    return None


def _lines(path: Path) -> Iterator[list[str]]:
    """Each time the whole lines that were added since."""
    half = ""
    with path.open(encoding="utf-8", errors="replace") as file:
        while True:
            *whole, half = (half + file.read()).split("\n")
            yield whole


def _is_active(name: str) -> bool:
    argv = ["systemctl", "show", "--property=ActiveState", "--value", "--", name]
    code, said = world.quiet(argv, within=_ASK_WITHIN_S)
    return code != 0 or said not in {"inactive", "failed"}


def _active_runs() -> list[str]:
    """The units of runs that go on."""
    argv = ["systemctl", "list-units", "--plain", "--no-legend", "--state=active,activating"]
    code, said = world.quiet([*argv, "runner-run@*.service"], within=_ASK_WITHIN_S)
    return [line.split()[0] for line in said.splitlines() if line.split()] if code == 0 else []


def _job_of(name: str) -> str:
    return name.removeprefix("runner-run@").removesuffix(".service")


def _ask_to_stop(name: str, state_dir: Path) -> None:
    argv = ["systemctl", "--no-ask-password", "stop", "--no-block", "--", name]
    code, said = world.quiet(argv, within=_ASK_WITHIN_S)
    if code != 0:
        raise _not_let(name, state_dir, said)


def _not_let(name: str, state_dir: Path, why: object) -> out.Failure:
    owner = who.owner_of(state_dir)
    return out.Failure(
        f"systemd does not let you: {why}",
        where=name,
        remedy=f"ask for membership in the group {MEMBERS}, or run this as "
        f"{who.named(owner) if owner is not None else 'the owner'}",
    )
