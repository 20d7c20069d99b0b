"""`runner pin`: keep the bytes of files that runs and production need, and put them back."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from preflight.wording import size
from runner import who
from runner.cli import options, out
from runner.outcome import Outcome, exit_code

if TYPE_CHECKING:
    from runner.schedule.pins import Made
    from runner.settings import Settings

_LOOK_WITHIN_S = 120.0

Json = dict[str, Any]


@click.command()
@click.argument("job", required=False)
@click.option("--production", "services", is_flag=True, help="The files of production.")
@click.option("--file", "files", multiple=True, metavar="PATH", help="Only these files.")
@click.option("--dir", "room", metavar="DIR", help="Where to keep them, on the disk of the files.")
@click.option("--put-back", is_flag=True, help="Link what is gone from its path back to it.")
@options.answers
def pin(
    job: str | None,
    files: tuple[str, ...],
    room: str | None,
    config: str | None,
    *,
    services: bool,
    put_back: bool,
    as_json: bool,
) -> int:
    """Keep the bytes of JOB's files: they survive deleting and renaming. Without JOB: the pins.

    By hard link, or reflink where there is one, never by a copy; overwriting a file in place
    changes its hard link too, and is found by preflight. Run it as the owner of the files or root.
    """
    settings = options.settings(config)
    state_dir = Path(settings.state_dir)
    if os.geteuid() != 0:  # what cannot be written down is not begun
        who.become_owner(state_dir, config=options.config_path(config))
    if put_back:
        if files or room:
            raise out.Failure("--put-back goes with neither --file nor --dir", where="--put-back")
        done = list(_put_back(job, settings, services=services))
        who.become_owner(state_dir, config=options.config_path(config))
        rows = rows_of(settings)
        lines = [*(done or ["nothing is gone from its path"]), *_lines(rows)]
        out.answer({"put_back": done, "pins": rows}, lines, as_json=as_json)
        return 0
    wanted = dict(_wanted(job, settings, config, services=services, files=files))
    uid = os.geteuid() if who.owner_of(state_dir) is None else who.owner_of(state_dir)
    kept = _kept(settings)
    made = {
        owner: _make(paths, owner, state_dir, room, uid, kept=kept)
        for owner, paths in wanted.items()
    }
    who.become_owner(state_dir, config=options.config_path(config))
    _write_down(made, settings)
    _remember_production(made, settings)
    rows = rows_of(settings)
    out.answer({"pins": rows}, _lines(rows), as_json=as_json)
    return 0


def _put_back(job: str | None, settings: "Settings", *, services: bool) -> Iterator[str]:
    """Link pinned files whose paths are empty back to them. Raises Failure."""
    from runner.recovery import pins  # noqa: PLC0415 - after a broken config has been told

    for row in rows_of(settings, read_only=True):
        owner = str(row["owner"])
        chosen = owner == f"job:{job}" or (services and owner.startswith("service:"))
        if (job or services) and not chosen:
            continue
        if not pins.is_gone(row["path"]):
            continue
        try:
            pins.put_one_back(row)
        except OSError as error:
            raise out.Failure(
                f"cannot be put back: {error.strerror or error}",
                code=exit_code(Outcome.REFUSED),
                where=row["path"],
                remedy="sudo runner pin --put-back, or as the owner of the file",
            ) from error
        yield f"{row['path']} was gone; its pinned bytes were put back"


def _kept(settings: "Settings") -> dict[tuple[str, str], str]:
    """The pins that hold: (owner, path) → where the bytes are."""
    return {
        (str(row["owner"]), str(row["path"])): str(row["pin"])
        for row in rows_of(settings, read_only=True)
        if row["state"] == "kept"
    }


def _wanted(
    job: str | None,
    settings: "Settings",
    config: str | None,
    *,
    services: bool,
    files: tuple[str, ...],
) -> Iterator[tuple[str, list[str]]]:
    """Whose files are to be pinned, and which."""
    if job is not None:
        found = _look(job, config)
        paths = [os.path.abspath(file) for file in files] or (found.get("needs") or {}).get(
            "pinnable", []
        )
        yield f"job:{job}", _unpinned(paths, settings)
    elif files:
        raise out.Failure("name the JOB that needs them", where="--file")
    named = [one for one in settings.production if services or one.pin]
    if named and (services or job is None):
        found = _look(None, config)
        for one in named:
            paths = (found.get("production_files") or {}).get(one.name) or []
            yield f"service:{one.name}", paths


def _unpinned(paths: Iterable[str], settings: "Settings") -> list[str]:
    """The paths that are no pins themselves: a job that is pinned needs its pins."""
    kept = {row["pin"]: row["path"] for row in rows_of(settings, read_only=True)}
    return [kept.get(path, path) for path in paths]


def _look(job: str | None, config: str | None) -> Json:
    """What `runner check` finds: as a process of its own, since it writes as the owner."""
    words = ["check", *([job] if job else []), "--json"]
    ran = subprocess.run(
        [sys.executable, "-I", "-m", "runner", "--config", options.config_path(config), *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        timeout=_LOOK_WITHIN_S,
        check=False,
    )
    try:
        found = json.loads(ran.stdout)
    except ValueError:
        found = {}
    if "error" in found or not isinstance(found, dict) or not found:
        error = found.get("error") or {}
        raise out.Failure(
            str(error.get("message") or "cannot be looked at"),
            where=str(error.get("where") or job or "production"),
            remedy=str(error.get("remedy") or "runner check"),
        )
    return found


def _make(
    paths: list[str],
    owner: str,
    state_dir: Path,
    room: str | None,
    uid: int | None,
    *,
    kept: Mapping[tuple[str, str], str],
) -> "list[Made]":
    """Pin what is there, and leave alone what is pinned and gone. Raises Failure."""
    from runner.recovery.pins import is_gone  # noqa: PLC0415 - after a broken config has been told
    from runner.schedule import pins  # noqa: PLC0415 - likewise

    made: list[Made] = []
    try:
        for path in paths:
            if not ((owner, path) in kept and is_gone(path)):
                made.append(pins.make(path, owner, state_dir, room=Path(room) if room else None))  # noqa: PERF401 - what was made before a failure must be known
        if os.geteuid() == 0 and uid:
            pins.give_to(made, uid)
    except pins.CannotPin as error:
        for one in made:  # what was kept before stays kept
            if one.pin not in kept.values():
                pins.release({"pin": one.pin})
        raise out.Failure(
            error.message,
            code=exit_code(Outcome.REFUSED),
            where=owner.partition(":")[2],
            remedy=error.remedy,
        ) from error
    return made


def _write_down(made: "Mapping[str, list[Made]]", settings: "Settings") -> None:
    from runner.journal import Journal  # noqa: PLC0415 - after a broken config has been told
    from runner.schedule.ledger import Ledger  # noqa: PLC0415 - likewise

    by = who.named(int(os.environ.get("SUDO_UID") or os.getuid()))
    with Journal.open(Path(settings.state_dir), zone=settings.zone) as journal:
        ledger = Ledger(journal)
        for owner, some in made.items():
            for one in some:
                ledger.pin(
                    owner=owner,
                    path=one.path,
                    pin=one.pin,
                    how=one.how,
                    inode=one.inode,
                    size=one.size,
                    mtime_ns=one.mtime_ns,
                    since=time.time(),
                    by=by,
                )


def _remember_production(owners: Iterable[str], settings: "Settings") -> None:
    """What the services that were pinned run from now, to tell later whether a pin is of that."""
    from runner.production import survey  # noqa: PLC0415 - after a broken config has been told
    from runner.recovery import recipe  # noqa: PLC0415 - likewise

    mine = [one for one in settings.production if f"service:{one.name}" in owners]
    serving = [found.recipe for found in map(survey, mine) if found.look.serving]
    if serving:
        recipe.remember(Path(settings.state_dir), serving)


def rows_of(settings: "Settings", *, read_only: bool = False) -> list[Json]:
    """Every pin as it stands. Raises JournalError."""
    from runner.journal import Journal, JournalError  # noqa: PLC0415 - after a broken config
    from runner.schedule import pins  # noqa: PLC0415 - likewise
    from runner.schedule.ledger import Ledger  # noqa: PLC0415 - likewise

    state_dir = Path(settings.state_dir)
    try:
        with Journal.open(state_dir, zone=settings.zone, read_only=read_only) as journal:
            return [pins.stands(row) for row in Ledger(journal).pins()]
    except JournalError:
        if read_only:  # a journal that no runner of this version has opened yet
            return []
        raise


def _lines(rows: list[Json]) -> list[str]:
    if not rows:
        return ["nothing is pinned"]
    lines = out.columns(
        [
            [row["state"], row["owner"].partition(":")[2], row["path"], row["how"], row["said"]]
            for row in rows
        ]
    )
    total = sum(row["size"] for row in rows)
    alone = sum(row["alone_mib"] for row in rows)
    return [*lines, f"{len(rows)} pins, {size(total)}; {alone} MiB are kept by pins alone"]
