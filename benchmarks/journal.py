"""What the journal costs: a durable append, and the history of 100,000 runs. Prints JSON."""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from runner.journal import Journal
from runner.journal_rows import dumps

RUNS = 100_000
APPENDS = 500


def _append_ms(state: Path) -> list[float]:
    took = []
    with Journal.open(state) as journal:
        for n in range(APPENDS):
            began = time.perf_counter()
            journal.event("r", "stopping", service="llm", attempt=n)
            took.append((time.perf_counter() - began) * 1000)
    return took


def _fill(state: Path) -> None:
    now = datetime.now(UTC).isoformat()
    claims = [{"kind": kind, "state": "proven", "said": "x" * 60} for kind in ("a", "b", "c")]
    with Journal.open(state) as journal, journal._write() as db:  # noqa: SLF001 - 100,000 durable commits would take minutes
        for n in range(RUNS):
            result = {"run": f"r{n:06}", "job": f"job{n % 20}", "outcome": "proven"} | {
                "exit_code": 0,
                "headline": "SERVING since 00:38 · 200k-mtp PROVEN · down 37m",
                "trigger": "schedule",
                "started": now,
                "ended": now,
                "production": {"state": "serving", "identity": "same", "downtime_s": 2220.5},
                "claims": claims,
            }
            body = dumps(result) if n == 0 else json.dumps(result)
            db.execute(
                "INSERT INTO runs (run, job, trigger, started, ident, ended, outcome, exit_code,"
                " headline, summary) VALUES (?, ?, 'schedule', ?, '{}', ?, 'proven', 0, ?, ?)",
                (result["run"], result["job"], now, now, result["headline"], body),
            )
            db.execute("INSERT INTO results (run, body) VALUES (?, ?)", (result["run"], body))


def _history_ms(state: Path, *options: str) -> list[float]:
    config = state.parent / "runner.toml"
    config.write_text(f'timezone = "UTC"\nstate_dir = "{state}"\n')
    runner = Path(sys.executable).with_name("runner")
    took = []
    for _ in range(9):
        began = time.perf_counter()
        subprocess.run(
            [runner, "--config", config, "history", *options],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        took.append((time.perf_counter() - began) * 1000)
    return took


def main() -> None:
    """Measure on the disk of the temporary directory; `TMPDIR` chooses another."""
    with tempfile.TemporaryDirectory() as room:
        append = _append_ms(Path(room) / "append")
        state = Path(room) / "history"
        _fill(state)
        numbers = {
            "append_ms_median": (statistics.median(append), 0.5),
            "history_of_100000_ms_median": (statistics.median(_history_ms(state)), 250),
            "history_of_one_job_ms_median": (
                statistics.median(_history_ms(state, "job7", "--json")),
                250,
            ),
        }
    print(
        json.dumps(
            {
                name: {"found": round(found, 3), "wanted_at_most": limit, "ok": found <= limit}
                for name, (found, limit) in numbers.items()
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
