"""What the demo keeps in `demo.json`: its ports, and every process that it started.

A process is written down with boot, pid and start time as soon as it exists, and nothing that is
not written down here is ever signalled: a pid that is somebody else's by now does not fit.
"""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from preflight.linux import proc
from preflight.linux.proc import Ident
from runner.files import write_json

NAME = "demo.json"


@dataclass
class Notes:
    """The memory of one demo box."""

    production_port: int = 0
    candidate_port: int = 0
    production_argv: list[str] = field(default_factory=list)
    started: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def read(cls, directory: Path) -> "Notes":
        """The notes of this box, empty ones for a new box; raises OSError or ValueError."""
        try:
            said = json.loads((directory / NAME).read_text(encoding="utf-8"))
            return cls(**said)
        except FileNotFoundError:
            return cls()
        except TypeError as error:  # another version's keys, or no object at all
            raise ValueError(str(error)) from error

    def write(self, directory: Path) -> None:
        """Keep them; raises OSError."""
        write_json(directory / NAME, asdict(self))

    def add(self, what: str, who: Ident) -> None:
        """Note a process of ours, once."""
        entry = {"what": what, **who.to_json()}
        if entry not in self.started:
            self.started.append(entry)

    def alive(self, what: str | None = None) -> list[Ident]:
        """Our processes that still run, the last one first; of one sort or of all."""
        noted = [
            Ident.from_json(entry) for entry in self.started if what in (None, entry.get("what"))
        ]
        return [who for who in reversed(noted) if who is not None and proc.alive(who)]

    def forget_dead(self) -> None:
        """Drop the entries of processes that have ended."""
        living = self.alive()
        self.started = [entry for entry in self.started if Ident.from_json(entry) in living]
