"""A graphics card that is only played: a program under the name of nvidia-smi, and who holds what.

Who holds memory is told by a word of the command line, so that it also holds for processes that a
run starts. A zombie holds nothing.
"""

import json
import sys
from pathlib import Path

UUID = "GPU-00000000-play-0000-0000-000000000000"

_PROGRAM = """#!{python} -IS
import json, os, sys
card = json.load(open({state!r}))
held = []
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        words = open(f"/proc/{{pid}}/cmdline", "rb").read().decode("utf-8", "replace").split("\\0")
        dead = open(f"/proc/{{pid}}/stat", "rb").read().rpartition(b")")[2].split()[0] == b"Z"
    except OSError:
        continue
    held += [(pid, mib) for word, mib in card["held"].items() if word in words and not dead]
used = card["base"] + sum(mib for _, mib in held)
query, _, columns = next((arg for arg in sys.argv if "=" in arg), "").partition("=")
if query == "--query-gpu":
    known = {{"index": 0, "uuid": card["uuid"], "name": "played card", "driver_version": "550.90",
             "memory.total": card["total"], "memory.free": card["total"] - used,
             "temperature.gpu": 41, "utilization.gpu": 0}}
    print(", ".join(str(known.get(column, "[N/A]")) for column in columns.split(",")))
elif query == "--query-compute-apps":
    for pid, mib in held:
        print(f'{{card["uuid"]}}, {{pid}}, {{mib}}')
"""
_STUCK = """#!/bin/sh
trap '' TERM
echo $$ >> {pids}
while :; do sleep 300; done
"""


class Card:
    """One card of 24 GiB in a directory; `program` is its nvidia-smi."""

    def __init__(self, room: Path) -> None:
        self.program = room / "nvidia-smi"
        self._state, self._pids = room / "card.json", room / "card.pids"
        self._held: dict[str, int] = {}
        self._write(_PROGRAM.format(python=sys.executable, state=str(self._state)))
        self.holds({})

    def _write(self, text: str) -> None:
        self.program.unlink(missing_ok=True)
        self.program.write_text(text)
        self.program.chmod(0o755)

    def holds(self, held: dict[str, int]) -> None:
        """Which processes hold how many MiB, by a word of their command line."""
        known = {"uuid": UUID, "total": 24_576, "base": 300, "held": held}
        self._state.write_text(json.dumps(known))

    def is_stuck(self) -> None:
        """From now on it answers nobody, and cannot be asked to end."""
        self._write(_STUCK.format(pids=self._pids))

    def asked(self) -> list[int]:
        """The processes that have asked a stuck card."""
        return [int(line) for line in self._pids.read_text().split()]
