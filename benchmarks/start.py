"""How long a person waits for the shortest commands, whole processes measured. Prints JSON."""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUNNER = Path(sys.executable).with_name("runner")
TIMES = 21
JOBS = 100

JOB = """\
question = "Does job {n} run?"

[candidate]
kind = "llamacpp"
binary = "/usr/bin/true"
model = "/models/{n}.gguf"
port = 8081

[[claim]]
kind = "context"
tokens = 4096
"""


def _median_ms(*command: str) -> float:
    took = []
    for _ in range(TIMES):
        began = time.perf_counter()
        subprocess.run([RUNNER, *command], check=True, stdout=subprocess.DEVNULL)
        took.append((time.perf_counter() - began) * 1000)
    return statistics.median(took)


def main() -> None:
    """Measure the version, and the list of a hundred jobs, which is read without building models."""
    with tempfile.TemporaryDirectory() as room:
        jobs = Path(room) / "jobs"
        jobs.mkdir()
        for n in range(JOBS):
            (jobs / f"job-{n}.toml").write_text(JOB.format(n=n))
        config = Path(room) / "runner.toml"
        config.write_text(f'timezone = "UTC"\njobs_dir = "{jobs}"\nstate_dir = "{room}/state"\n')
        numbers = {
            "version_ms_median": (_median_ms("--version"), 50),
            "list_of_100_jobs_ms_median": (_median_ms("--config", str(config), "list"), 150),
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
