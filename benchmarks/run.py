"""Runs every benchmark of this folder, one after the other, and prints one JSON object.

Each script prints an object of its own: name -> found, wanted_at_most, ok. Exits 1 if one is not ok.
"""

import json
import subprocess
import sys
from pathlib import Path

SCRIPTS = ("start", "journal", "preflight", "recovery", "downtime", "schedule")


def main() -> int:
    """Run them, each in a fresh process, since one would warm the caches of another."""
    numbers = {}
    for name in SCRIPTS:
        script = Path(__file__).with_name(f"{name}.py")
        done = subprocess.run(
            [sys.executable, "-I", str(script)], check=True, stdout=subprocess.PIPE, text=True
        )
        numbers[name] = json.loads(done.stdout)
    print(json.dumps(numbers, indent=2))
    return int(not all(one["ok"] for part in numbers.values() for one in part.values()))


if __name__ == "__main__":
    sys.exit(main())
