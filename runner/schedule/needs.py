"""What a job needs of this box, as plain JSON for others to see: paths, ports, units, memory, time."""

from collections.abc import Iterable, Sequence
from typing import Any

from preflight.check import Check
from preflight.files.exists import FileExists
from preflight.gpu.budget import GpuBudget
from preflight.host.room import Binary
from preflight.models.shard_names import shard_name
from preflight.models.shards import Shards
from preflight.ports.owner import PortOwner

_BYTES = ("weights", "draft", "mmproj", "prompt")

Json = dict[str, Any]


def needs(
    checks: Sequence[Check], recipes: Iterable[Json], *, takes_s: float, named: Sequence[str] = ()
) -> Json:
    """The needs that lie in a plan's checks; `takes_s` is how long the run may take at most.

    `named` are files of which the job says itself that it needs them. Those and models can be
    pinned; a program cannot, since it looks for others beside itself.
    """
    files: dict[str, bool] = {}
    for check in checks:
        match check:
            case Binary():
                files.setdefault(check.path, False)
            case FileExists():
                mine = check.owner == "job" and (check.role in _BYTES or check.path in named)
                files.setdefault(check.path, mine)
            case Shards():
                shards = shard_name(check.path)
                for path in shards.paths() if shards else (check.path,):
                    files.setdefault(path, check.owner == "job")
            case _:
                pass
    budgets = [check for check in checks if isinstance(check, GpuBudget)]
    return {
        "files": list(files),
        "pinnable": [path for path, may in files.items() if may],
        "ports": sorted({check.port for check in checks if isinstance(check, PortOwner)}),
        "units": [one["supervisor"]["unit"] for one in recipes if one["supervisor"].get("unit")],
        "gpu": [{"gpu": one.gpu, "mib": one.need_mib or "estimate"} for one in budgets],
        "takes_s": round(takes_s),
    }
