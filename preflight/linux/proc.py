"""How /proc tells it: processes, families, sockets. Standard library only.

Both the Box and the recovery read the machine through this page, so that the look before a stop
and the look after a restore can never disagree. It must not know jobs, services or recipes, and it
changes nothing.

psutil is not used here: it hides "(deleted)" in mapped paths, names one holder of a shared socket
where there are three, and its creation times move with the clock.
"""

from preflight.linux.processes import (
    TAG,
    Ident,
    Stat,
    alive,
    boot_id,
    cgroup,
    cmdline,
    cwd,
    descendants,
    environ,
    exe,
    family,
    ident,
    in_cgroup,
    mapped_deleted,
    open_files,
    pids,
    started_at,
    stat,
    stats,
    tagged,
    uid,
    unit_of,
    unit_or_container,
)
from preflight.linux.sockets import (
    Socket,
    claimants,
    established,
    holders,
    listening,
    other_namespaces,
    owners,
)

__all__ = [
    "TAG",
    "Ident",
    "Socket",
    "Stat",
    "alive",
    "boot_id",
    "cgroup",
    "claimants",
    "cmdline",
    "cwd",
    "descendants",
    "environ",
    "established",
    "exe",
    "family",
    "holders",
    "ident",
    "in_cgroup",
    "listening",
    "mapped_deleted",
    "open_files",
    "other_namespaces",
    "owners",
    "pids",
    "started_at",
    "stat",
    "stats",
    "tagged",
    "uid",
    "unit_of",
    "unit_or_container",
]
