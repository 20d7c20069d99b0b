"""`runner list`: the jobs there are, read as plain TOML so that a hundred take a moment."""

import click

from jobs.errors import Problem
from runner.cli import options, out


@click.command("list")
@options.answers
def list_jobs(config: str | None, *, as_json: bool) -> int:
    """The jobs there are, and what each asks. A broken job file is named; the others are listed."""
    from jobs.load import list_jobs as read_jobs  # noqa: PLC0415 - only for this verb

    place = options.place(config)
    jobs = read_jobs(place.jobs_dir)
    answer = {
        "jobs_dir": str(place.jobs_dir),
        "jobs": [
            {
                "name": job.name,
                "question": job.question,
                "problem": job.problem.to_json() if job.problem else None,
            }
            for job in jobs
        ],
    }
    rows = [
        [job.name, f"broken: {_said(job.problem)}" if job.problem else job.question or ""]
        for job in jobs
    ]
    text = out.columns(rows, ["job", "question"]) or [f"no job files in {place.jobs_dir}"]
    out.answer(answer, text, as_json=as_json)
    return 0


def _said(problem: Problem) -> str:
    return f"{problem.key}: {problem.message}" if problem.key else problem.message
