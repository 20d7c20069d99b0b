"""`runner check` and `runner explain`: what preflight finds, ring by ring, and what it looks for."""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import click

from preflight.verdict import BlastRadius, Verdict
from runner import words
from runner.cli import options, out
from runner.cli.tonight import overrides_of, ready
from runner.cli.watching import Guarded
from runner.outcome import Outcome, exit_code
from runner.progress import Progress, Unwatched
from runner.report.alert import seen_in_passing
from runner.report.page import check_line

Json = Mapping[str, Any]


@click.command()
@click.argument("job", required=False)
@click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="As for `run`.")
@click.option(
    "--record", is_flag=True, help="Record JOB's files as they are, to see changes later."
)
@click.option("--tell", is_flag=True, help="Open or resolve the incident about JOB, and tell it.")
@click.option("--because", default="", hidden=True)
@options.answers
def check(
    job: str | None,
    sets: tuple[str, ...],
    because: str,
    config: str | None,
    *,
    record: bool,
    tell: bool,
    as_json: bool,
) -> int:
    """Look whether JOB could run now; with no JOB at production and every scheduled job."""
    if record and job is None:
        raise out.Failure(
            "--record needs a job: what is recorded are its files",
            where="runner check",
            remedy="runner check JOB --record",
        )
    settings = ready(config)
    from runner import look  # noqa: PLC0415 - after a broken config has been told

    watching: Progress = Unwatched() if as_json else Guarded(Rings())
    try:
        if job is None:
            found = look.check_all(settings, progress=watching)
        else:
            overrides = overrides_of(sets)
            found = look.check(job, settings, overrides=overrides, progress=watching, record=record)
    finally:
        watching.close()
    refused = found["state"] not in {"pass", "warn"}
    if tell and job is not None:
        from runner.schedule.early import tell_of  # noqa: PLC0415 - only when asked

        found["told"] = tell_of(found, settings, because=because)
    out.answer(found, [*_summary(found, record=record)], as_json=as_json)
    return exit_code(Outcome.REFUSED) if refused else 0


class Rings:
    """The rings as they are looked at, each verdict on a line with the time it took."""

    def __init__(
        self, say: Callable[..., None] = out.say, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._say, self._now = say, now
        self._began = now()
        self._ring: BlastRadius | None = None
        self._skipped = 0

    @property
    def live(self) -> bool:
        """Whether a person watches: what this says is then told."""
        return out.on_terminal()

    def phase(self, name: str, within_s: float | None = None) -> None:
        """What is looked at now: production, or a job."""
        del within_s
        self._count_up()
        self._say(words.shown(name))
        self._ring = None

    def note(self, text: str) -> None:
        """A line of its own."""
        self._say(f"  {words.shown(text)}")

    def tokens(self, done: int, total: int) -> None:
        """A look sends none."""

    def verdict(self, verdict: Verdict) -> None:
        """The ring where it begins, then the answer; what was not looked at is counted."""
        if str(verdict.state) == "skipped" and _not_reached(verdict):
            self._skipped += 1
            return
        if verdict.radius != self._ring:
            self._ring = verdict.radius
            self._say(f"ring {verdict.radius.value} · {verdict.radius.name.lower()}")
        line = out.coloured(str(verdict.state), verdict.message())
        self._say(f"  {line} ({verdict.took_ms:.0f} ms)")

    def close(self) -> None:
        """How long all of it took."""
        self._count_up()
        if self._ring is None:  # nothing was looked at; why is told elsewhere
            return
        took = (self._now() - self._began) * 1000
        self._say(f"all of it took {took:,.0f} ms")

    def _count_up(self) -> None:
        if self._skipped:
            self._say(f"  {self._skipped} more not looked at: a smaller ring has refused")
        self._skipped = 0


def _not_reached(verdict: Verdict) -> bool:
    return verdict.found.startswith("not looked at: the ") and not seen_in_passing(
        verdict.to_json()
    )


def _summary(found: Json, *, record: bool) -> Iterator[str]:
    """How each came out, and last the one thing to do first."""
    looks = [found, *found.get("jobs", ())]
    for one in looks:
        minutes = one.get("needs_minutes")
        needs = f", needs about {words.duration(minutes * 60)}" if minutes else ""
        yield f"{one.get('job') or 'production'}: {out.coloured(_state_of(one))}{needs}"
    if record:
        kept = found.get("recorded")
        yield (
            f"recorded: {len(kept['files'])} files"
            if kept
            else "not recorded: only what could run is, and only if nobody changes it meanwhile"
        )
    yield _first(looks)


def _state_of(found: Json) -> str:
    """The state of one look, without those of the jobs beside it."""
    states = [_counted(check) for check in found.get("checks", ())]
    worst = ("fail", "unknown", "warn", "pass")
    return next((state for state in worst if state in states), str(found["state"]))


def _counted(check: Json) -> str:
    accepted = any(str(said).startswith("accepted: ") for said in check.get("evidence") or ())
    return "warn" if check["state"] == "unknown" and accepted else str(check["state"])


def _first(looks: list[Json]) -> str:
    """The one thing to do first: what refuses in the smallest ring, else the first warning."""
    for state in ("refused", "warn"):
        for look in looks:
            for check in look.get("checks", ()):
                counted = _counted(check)
                fits = counted in ("fail", "unknown") if state == "refused" else counted == "warn"
                if fits:
                    verb = "do first" if state == "refused" else "could run; worth a look"
                    what = check.get("remedy") or check_line(check)
                    return words.shown(f"{verb}: {what} ({check['id']}: {check['subject']})")
    return "could run: nothing stands in the way"


@click.command()
@click.argument("check_id", metavar="[CHECK-ID]", required=False)
@options.answers
def explain(check_id: str | None, config: str | None, *, as_json: bool) -> int:
    """What one check reads, how it comes out and what helps; without an id the list of all."""
    del config  # the rules are the same for every configuration
    from runner.report.checks import explanations  # noqa: PLC0415 - models only where needed

    known = {one["id"]: one for one in explanations()}
    if check_id is None:
        rows = [[one["id"], one["ring"], one["about"]] for one in known.values()]
        out.answer({"checks": [*known.values()]}, out.columns(rows), as_json=as_json)
        return 0
    one = known.get(check_id)
    if one is None:
        import difflib  # noqa: PLC0415 - only for a misspelt id

        asked = check_id.lower()
        close = difflib.get_close_matches(asked, known, 1)
        family = [name for name in known if name.startswith(f"{asked}.")]
        raise out.Failure(
            f"there is no check `{check_id}`",
            where="runner explain",
            remedy=f"one of {', '.join(family)}"
            if family
            else f"did you mean {close[0]}?"
            if close
            else "runner explain lists them",
        )
    out.answer(one, [*_explained(one)], as_json=as_json)
    return 0


def _explained(one: Json) -> Iterator[str]:
    yield f"{one['id']}: {one['about']}"
    yield f"  ring      {one['ring']}{', asked again at the gate' if one['gate'] else ''}"
    yield f"  deadline  {one['deadline']}"
    yield f"  reads     {one['reads']}"
    for state, rule in one["rules"].items():
        yield f"  {out.coloured(state, state.ljust(9))} {rule}"
    for remedy in one["remedies"]:
        yield f"  helps     {remedy}"
    if not one["acceptable"]:
        yield "  an unknown here is never accepted: it is about production's way back"
    elif "unknown" in one["rules"]:
        yield f'  to accept an unknown, with a reason: [accept] "{one["id"]}" = "…" in the job'
