"""What a job needs of this box, as plain JSON for others to see: paths, ports, units, memory, time."""

from collections.abc import Iterable, Sequence
from typing import Any

from preflight.check import Check
from preflight.files import FileExists
from preflight.gpu import GpuBudget
from preflight.host import Binary
from preflight.ports import PortOwner
from preflight.shard_names import shard_name
from preflight.shards import Shards

Json = dict[str, Any]


def needs(checks: Sequence[Check], recipes: Iterable[Json], *, takes_s: float) -> Json:
    """The needs that lie in a plan's checks; `takes_s` is how long the run may take at most."""
    files: dict[str, None] = {}
    for check in checks:
        match check:
            case FileExists() | Binary():
                files[check.path] = None
            case Shards():
                shards = shard_name(check.path)
                files |= dict.fromkeys(shards.paths() if shards else (check.path,))
            case _:
                pass
    budgets = [check for check in checks if isinstance(check, GpuBudget)]
    return {
        "files": list(files),
        "ports": sorted({check.port for check in checks if isinstance(check, PortOwner)}),
        "units": [one["supervisor"]["unit"] for one in recipes if one["supervisor"].get("unit")],
        "gpu": [{"gpu": one.gpu, "mib": one.need_mib or "estimate"} for one in budgets],
        "takes_s": round(takes_s),
    }
