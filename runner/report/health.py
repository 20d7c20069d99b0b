"""What `runner doctor` looks at: configuration, jobs, memory, ways to a person, GPU, programs.

Every answer is a verdict as preflight gives them; none of it starts, stops or writes anything.
"""

import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jobs.errors import ConfigError, Problem
from jobs.load import list_jobs
from preflight.box import Box
from preflight.host.room import StateDir
from preflight.linux.box import LinuxBox
from preflight.verdict import BlastRadius, State, Verdict
from runner import who, words
from runner.journal import Journal, JournalError
from runner.schedule.process import serves
from runner.settings import Settings, load_settings
from runner.supervisors import Systemd
from runner.units import compare as units
from runner.where import Found

GPU_WITHIN_S = 10.0
_LONG_UNTOLD_S = 900.0


def examine(found: Found) -> list[dict[str, Any]]:
    """The verdicts about this box and the configuration that was found, as plain JSON."""
    return [verdict.to_json() for verdict in _examine(found)]


def _examine(found: Found) -> Iterator[Verdict]:
    config = found.path
    if config is None:
        yield _says(
            "self.config",
            State.FAIL,
            "runner.toml" if len(found.looked) > 1 else found.paths,
            found.missing,
            remedy="write one, or name it with --config",
        )
        return
    try:
        settings = load_settings(config)
    except ConfigError as error:
        yield from (_mistake("self.config", problem) for problem in error.problems)
        return
    yield _says("self.config", State.PASS, str(config), "is in order")
    with LinuxBox() as box:
        yield from units.examine(config, settings, box)
    # root has looked at what only root may see; the rest is as the owner finds it
    who.become_owner(Path(settings.state_dir), config=config, sight=True)
    yield from _jobs(settings)
    yield from _memory(settings)
    yield _told(settings)
    gpu = settings.gpu
    with LinuxBox(nvidia_smi=gpu.nvidia_smi, reader=gpu.reader) as box:
        yield StateDir(path=settings.state_dir).look(box)
        yield _gpu(box)
    yield from _programs(settings)
    if settings.schedule:
        yield _fires(settings)


def _jobs(settings: Settings) -> Iterator[Verdict]:
    directory = settings.jobs_dir
    jobs = list_jobs(Path(directory))
    broken = [job for job in jobs if job.problem is not None]
    yield from (_mistake("self.job", job.problem) for job in jobs if job.problem is not None)
    there = {job.name for job in jobs}
    for row in settings.schedule:
        if row.job not in there:
            yield _says(
                "self.job",
                State.FAIL,
                f"{directory}/{row.job}.toml",
                "is not there, and [[schedule]] names it",
                remedy="write it, or correct the name",
            )
    state = State.PASS if jobs else State.WARN
    count = f"{len(jobs) - len(broken)} of {len(jobs)} readable"
    yield _says("self.jobs", state, directory, count, remedy="" if jobs else "write a job file")


def _mistake(check: str, problem: Problem) -> Verdict:
    """What is wrong with a file, at the file's line."""
    where = problem.file if problem.line is None else f"{problem.file}:{problem.line}"
    said = f"{problem.key}: {problem.message}" if problem.key else problem.message
    return _says(check, State.FAIL, where, said, remedy=problem.remedy)


def _fires(settings: Settings) -> Verdict:
    """Whether there is a daemon for what is scheduled."""
    what = f"{len(settings.schedule)} [[schedule]]"
    if serves(Path(settings.state_dir)):
        return _says("self.schedule", State.PASS, what, "the daemon runs")
    return _says(
        "self.schedule",
        State.WARN,
        what,
        "no daemon runs, so nothing fires",
        remedy="systemctl enable --now runner.service, or runner serve",
    )


def _memory(settings: Settings) -> Iterator[Verdict]:
    state_dir = Path(settings.state_dir)
    try:
        with Journal.open(state_dir, read_only=True, zone=settings.zone) as journal:
            drained, unsent = journal.drained(), journal.outbox(unsent=True)
    except JournalError as error:
        message, _, remedy = str(error).partition(" → ")
        yield _says("self.journal", State.FAIL, "the journal", message, remedy=remedy)
        return
    yield _says("self.journal", State.PASS, "the journal", f"readable in {state_dir}")
    if drained:
        yield _says(
            "self.drained",
            State.FAIL,
            "this box",
            f"is drained since {words.day_and_clock(drained['since'])}: {drained['reason']}",
            remedy="see `runner status`; when it is mended: runner undrain --reason …",
        )
    if unsent:
        oldest = time.time() - min(row.created for row in unsent)
        yield _says(
            "self.outbox",
            State.FAIL if oldest > _LONG_UNTOLD_S else State.WARN,
            f"{len(unsent)} alerts",
            f"not delivered, the oldest for {words.duration(oldest)}",
            remedy="see `runner alerts list`, then `runner alerts flush`",
        )


def _told(settings: Settings) -> Verdict:
    """Whether somebody would be told: the channels, and the last delivery that arrived."""
    kinds = ", ".join(channel.kind for channel in settings.alerts.channel)
    if not kinds:
        return _says(
            "self.alerts",
            State.WARN,
            "alerts",
            "no channel is configured, so nobody is told",
            remedy="write an [[alerts.channel]]",
        )
    try:
        with Journal.open(Path(settings.state_dir), read_only=True) as journal:
            last = journal.last_delivery()
    except JournalError:
        last = None
    if last is None:
        said = f"{kinds}: nothing has ever arrived"
        return _says("self.alerts", State.WARN, "alerts", said, remedy="runner alerts test")
    ago = words.duration(time.time() - last)
    return _says("self.alerts", State.PASS, "alerts", f"{kinds}: last arrived {ago} ago")


def _gpu(box: Box) -> Verdict:
    reading = box.gpus(within=GPU_WITHIN_S)
    if reading.fault == "absent":
        return _says("gpu.driver", State.SKIPPED, "GPU", "none on this box, as far as is known")
    if reading.fault:
        return _says("gpu.driver", State.FAIL, "GPU", f"{reading.said} ({reading.fault})")
    found = ", ".join(f"{gpu.name} with {gpu.free_mib} MiB free" for gpu in reading.gpus)
    return _says("gpu.driver", State.PASS, "GPU", f"{found or 'none'} (by {reading.source})")


def _programs(settings: Settings) -> Iterator[Verdict]:
    if any(isinstance(service.supervisor, Systemd) for service in settings.production):
        path = shutil.which("systemctl")
        yield _says(
            "host.systemctl",
            State.PASS if path else State.FAIL,
            "systemctl",
            path or "is not on PATH",
            remedy="" if path else "use another supervisor, or run on the host itself",
        )
    if not settings.production:
        yield _says(
            "self.production", State.WARN, "production", "no [[production]]: nothing to stop"
        )
    yield _says("self.python", State.PASS, "Python", sys.executable)


def _says(
    check: str, state: State, subject: str, found: str, *, wanted: str = "", remedy: str = ""
) -> Verdict:
    return Verdict(check, state, subject, wanted, found, remedy, BlastRadius.SELF)
