"""What a job's files were when it last passed: kept in the state directory, read back for the checks.

A record is made by `runner check --record` and by every proven run, of what was really looked at: a
file that changed while the run went on is not recorded.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from preflight.box import Box
from preflight.check import Check
from preflight.files.recorded import KnownFile, Record, listing
from preflight.files.unchanged import Unchanged, Watched
from preflight.host.room import SAYS
from preflight.verdict import Verdict
from runner import __version__
from runner.files import write_json

ROOM = "recorded"
_SAMPLE_S = 60.0
_LIST_S = 5.0
_PROGRAM = "program "


def read(state_dir: Path, job: str) -> Record | None:
    """The record of a job; None where there is none that can be read."""
    try:
        return Record.model_validate_json((state_dir / ROOM / f"{job}.json").read_bytes())
    except (OSError, ValidationError):
        return None


def anew(checks: Iterable[Check]) -> tuple[Check, ...]:
    """The same checks for a person who records the files as they are: a change is what is meant."""
    return tuple(
        one.model_copy(update={"recording": True}) if isinstance(one, Unchanged) else one
        for one in checks
    )


def keep(
    state_dir: Path,
    job: str,
    checks: Iterable[Check],
    verdicts: Sequence[Verdict],
    box: Box,
    *,
    proven: bool,
) -> Record | None:
    """Record a job's files as they are now; None where one of them is not what was looked at.

    Raises OSError.
    """
    watched = {
        file.path: file for one in checks if isinstance(one, Unchanged) for file in one.files
    }
    made = _made(job, watched, verdicts, box, proven=proven)
    if made is not None:
        room = state_dir / ROOM
        room.mkdir(mode=0o700, exist_ok=True)
        write_json(room / f"{job}.json", made.model_dump(mode="json"))
    return made


def _made(
    job: str,
    watched: Mapping[str, Watched],
    verdicts: Sequence[Verdict],
    box: Box,
    *,
    proven: bool,
) -> Record | None:
    looked_at = _looked_at(verdicts)
    samples = box.sampled(list(watched), within=_SAMPLE_S)
    files = []
    for seen in samples:
        now = f"{seen.inode}:{seen.size}:{seen.mtime_ns}"
        if seen.fault or looked_at.get(seen.path, now) != now:
            return None
        files.append(KnownFile.of(seen, watched[seen.path].role))
    reading = box.gpus(within=_LIST_S)
    directories = dict.fromkeys(path.rpartition("/")[0] or "/" for path in watched)
    listings = {each: listing(box.neighbours(each, within=_LIST_S)) for each in directories}
    return Record(
        job=job,
        at=time.time(),
        by=box.me().user,
        version=__version__,
        proven=proven,
        files=tuple(files),
        listings={each: names for each, names in listings.items() if names is not None},
        programs={
            one.subject.removeprefix(_PROGRAM): said.removeprefix(SAYS)
            for one in verdicts
            for said in one.evidence
            if one.id == "host.binary" and said.startswith(SAYS)
        },
        driver=reading.driver,
        gpus={gpu.uuid: gpu.index for gpu in reading.gpus if gpu.uuid and not gpu.parent},
    )


def _looked_at(verdicts: Sequence[Verdict]) -> dict[str, str]:
    """Path → the fingerprint that the check of this one file has seen."""
    return {
        said.removeprefix("path: "): verdict.seen
        for verdict in verdicts
        for said in verdict.evidence
        if verdict.seen and " " not in verdict.seen and said.startswith("path: ")
    }


def summary(record: Record) -> dict[str, Any]:
    """What was recorded, for an answer of the command line."""
    return {"at": record.at, "files": [file.path for file in record.files]}
