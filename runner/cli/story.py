"""`runner logs`: what a run's candidate wrote, or what the run did; followed while it goes on."""

from collections.abc import Iterator
from pathlib import Path

import click

from runner import words
from runner.cli import options, out
from runner.cli.happened import for_everybody, run_of
from runner.until import RealClock, rest

_CHUNK = 1 << 16
_EVERY_S = 0.2


@click.command()
@click.argument("run", required=False)
@click.option("-f", "--follow", is_flag=True, help="Go on until the run has ended.")
@click.option("--events", is_flag=True, help="What the run did, instead of its candidate's log.")
@options.answers
def logs(run: str | None, config: str | None, *, follow: bool, events: bool, as_json: bool) -> int:
    """The log of a run's candidate, of the latest run where RUN is not given."""
    place = options.place(config)
    found = run_of(place, run)
    name = str(found["run"])
    if for_everybody(place) is not None:
        raise out.Failure(
            "what a candidate wrote is its owner's to read",
            where=name,
            remedy=f"see `runner show {name}`; `runner run` shows the story of a run as it goes on",
        )
    path = _log_of(place, found)
    if as_json:
        out.answer(_whole(place, name, path), "", as_json=True)
    elif events or not path.exists():
        _tell(_events(place, name), place, name, follow=follow)
    else:
        _tell(_lines(path), place, name, follow=follow)
    return 0


def _log_of(place: options.Place, run: dict[str, object]) -> Path:
    artifacts = run.get("artifacts")
    named = artifacts.get("candidate_log") if isinstance(artifacts, dict) else None
    return Path(named) if named else place.state_dir / "runs" / str(run["run"]) / "candidate.log"


def _whole(place: options.Place, run: str, path: Path) -> dict[str, object]:
    with place.journal() as journal:
        happened = journal.events(run)
    try:
        text = path.read_text("utf-8", errors="replace")
    except OSError:
        text = ""
    return {"run": run, "path": str(path), "lines": text.splitlines(), "events": happened}


def _tell(news: Iterator[list[str]], place: options.Place, run: str, *, follow: bool) -> None:
    """Print what is there; with `follow` go on until the run has an outcome and all is said."""
    clock = RealClock()
    while True:
        ended = not follow or _ended(place, run)
        out.say(*next(news))
        if ended:
            out.say(*next(news))  # a last line without its end
            return
        rest(_EVERY_S, clock=clock)


def _ended(place: options.Place, run: str) -> bool:
    with place.journal() as journal:
        return (journal.run(run) or {"outcome": ""}).get("outcome") is not None


def _lines(path: Path) -> Iterator[list[str]]:
    """Each time what was added since, in whole lines; a half line waits for its end."""
    half = b""
    with path.open("rb") as file:
        while True:
            added = b""
            while chunk := file.read(_CHUNK):
                added += chunk
            *whole, half = (half + added).split(b"\n")
            if not added and half:
                whole, half = [half], b""
            yield [words.shown(line.decode("utf-8", "replace"), lines=True) for line in whole]


def _events(place: options.Place, run: str) -> Iterator[list[str]]:
    told = 0
    while True:
        with place.journal() as journal:
            happened = journal.events(run)
        yield [_event(event) for event in happened[told:]]
        told = len(happened)


def _event(event: dict[str, object]) -> str:
    detail = event["detail"]
    fields = "".join(
        f" {name}={value}" for name, value in (detail.items() if isinstance(detail, dict) else ())
    )
    return words.shown(f"{event['at']} {event['name']}{fields}")
